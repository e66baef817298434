#!/usr/bin/env bash
# The software device next to OpenCL on the CPU: the same two kernels, in turn, each on one pinned
# thread, by the processor time of the whole process (so that other load on the machine matters
# little): that of 1 + RUNS products less that of 1, over RUNS. Every process has run once before, so
# that pocl finds its compiled kernel.
#
# usage: pocl.sh HOST [CPU]
#   HOST  the host's binary, of a release build
#   CPU   the processor to run on (1)
#
# Needs a C compiler and Debian's pocl-opencl-icd and ocl-icd-opencl-dev. Prints CSV.
set -euo pipefail
host=$(realpath "$1") cpu=${2:-1}
cd "$(dirname "$0")"
opencl=$(mktemp)
trap 'rm -f "$opencl"' EXIT
cc -O2 opencl.c -lOpenCL -lm -o "$opencl"
export OCL_ICD_VENDORS=pocl.icd POCL_MAX_PTHREAD_COUNT=1 RAYON_NUM_THREADS=1

# usage: one DEVICE KERNEL SIZE RUNS: runs it so often
one() {
    local device=$1 kernel=$2 size=$3 runs=$4
    case $device in
    soft) "$host" --kernel "$kernel" --size "$size" --device soft --repeat "$runs" ;;
    pocl) "$opencl" gemm.cl "$kernel" "$size" "$runs" ;;
    esac >/dev/null 2>&1
}

# usage: seconds DEVICE KERNEL SIZE RUNS: the processor time of that
seconds() {
    local TIMEFORMAT='%U %S' times
    times=$({ time one "$@"; } 2>&1)
    awk '{ print $1 + $2 }' <<<"$times"
}

taskset -pc "$cpu" $$ >/dev/null
echo "round,device,kernel,size,runs,ms,gflops"
for round in warm-up 1 2 3 4 5 6 7; do
    while read -r kernel size runs device; do
        short=$(seconds "$device" "$kernel" "$size" 1)
        long=$(seconds "$device" "$kernel" "$size" $((1 + runs)))
        [ "$round" != warm-up ] || continue
        awk -v r="$round" -v d="$device" -v k="$kernel" -v n="$size" -v c="$runs" -v t="$short" -v u="$long" \
            'BEGIN { s = (u - t) / c; printf "%d,%s,%s,%d,%d,%.2f,%.3f\n", r, d, k, n, c, s * 1e3, 2 * n^3 / s / 1e9 }'
    done <<'END'
tile2d 1024 10 soft
tile2d 1024 8 pocl
naive 512 12 soft
naive 512 12 pocl
END
done
