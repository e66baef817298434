#!/usr/bin/env bash
# What all checks of the software device cost: the processor time of a product with them and without,
# in turn, for every rung and for auto's kernel. The time of a product is that of a process that
# computes 1 + RUNS, less that of one that computes 1, over RUNS.
#
# usage: checks.sh HOST [SIZE..] > checks.csv
#   HOST  the host's binary: the software device is optimised in every profile
#   SIZE  256, 512 and 1024 if none is given; `checks.sh HOST 64` shows that the script works
set -euo pipefail
host=$(realpath "$1")
shift
[ $# -gt 0 ] || set -- 256 512 1024
export RAYON_NUM_THREADS=1

# usage: seconds KERNEL SIZE CHECK RUNS: the processor time of a process
seconds() {
    local TIMEFORMAT='%U %S' times device=soft
    case $1 in tma | warp_specialized | persistent) device=soft-sm90 ;; esac
    # What the host has to say about a failure comes before the times.
    times=$({ time "$host" run "$1" "$2" --device $device --check "$3" --samples "$4" 2>&1 >/dev/null; } 2>&1) || {
        echo "$times" >&2
        return 1
    }
    times=$(tail -n 1 <<<"$times")
    awk '{ print $1 + $2 }' <<<"$times"
}

echo "kernel,size,none_ms,all_ms,ratio"
for size in "$@"; do
    runs=$((size <= 256 ? 12 : size <= 512 ? 3 : 1))
    for kernel in naive coalesced smem_full smem_tile rows2 tile1d tile2d vec4 regtile smem2d transposed \
        frag_prefetch prefetch warptile async_copy tma warp_specialized persistent auto; do
        # Too much shared memory.
        [ $kernel$size != smem_full1024 ] || continue
        times=()
        for check in none all; do
            short=$(seconds $kernel $size $check 1)
            long=$(seconds $kernel $size $check $((1 + runs)))
            times+=("$(awk -v s="$short" -v l="$long" -v r=$runs 'BEGIN { print (l - s) / r * 1e3 }')")
        done
        awk -v k=$kernel -v n=$size -v a="${times[0]}" -v b="${times[1]}" \
            'BEGIN { printf "%s,%d,%.1f,%.1f,%.2f\n", k, n, a, b, (a > 0 ? b / a : 0) }'
    done
done
