#!/usr/bin/env bash
# Runs every kernel under all four tools of compute-sanitizer, at awkward shapes, on a GPU.
#
# usage: [JOBS=N] tests/sanitize.sh HOST
#   HOST  the host's binary, such as target/debug/rungs
#   N     how many run at a time (4)
#
# Prints a line per tool, kernel and shape. Kernels that can split K split it in three. Blocks that
# stay share the tile of 64 x 200 x 900, and at 257 x 129 x 31 A and B are copied first. There
# tiles run twice, with copies of A and B and without.
# Exit status: 0 if all are clean, else 1.
set -u
export HOST=$1

# usage: check TOOL M N K KERNEL [--splits 3 [--staged]]
check() {
    local tool=$1 m=$2 n=$3 k=$4 kernel=$5 compute=f32 out code summary
    shift 5
    case $kernel in
        mma* | wgmma*) compute=bf16 ;;
        tf32x3*) compute=tf32x3 ;;
        tf32*) compute=tf32 ;;
    esac
    out=$(compute-sanitizer --tool "$tool" --error-exitcode 9 \
        "$HOST" --kernel "$kernel" --compute $compute "$@" --m "$m" --n "$n" --k "$k" --alpha -1.5 --beta 0.5 \
        --repeat 1 --device gpu --format json 2>&1)
    code=$?
    summary=$(grep SUMMARY <<<"$out" | sed 's/^=* //')
    echo "$tool $kernel ${m}x${n}x$k: exit $code, ${summary:-no summary}"
    [ $code -eq 0 ] || grep -v '^{' <<<"$out" | head -20
    return $code
}
export -f check

kernels=$("$HOST" --list --format json | sed -n \
    -e 's/.*"kernel":"\([a-z0-9_]*\)".*"splits":true.*/\1 --splits 3/p;t' \
    -e 's/.*"kernel":"\([a-z0-9_]*\)".*/\1/p')
for tool in memcheck racecheck initcheck synccheck; do
    for shape in "257 129 31" "260 132 36" "1 1 1" "64 200 900"; do
        while read -r kernel; do
            echo "$tool $shape $kernel"
            [[ $shape$kernel != "257 "*tile_*--splits* ]] || echo "$tool $shape $kernel --staged"
        done <<<"$kernels"
    done
done | xargs -P "${JOBS:-4}" -L 1 bash -c 'check "$@" || exit 1' check || exit 1
