#!/usr/bin/env bash
# Runs every kernel under all four tools of compute-sanitizer, at awkward shapes, on a GPU.
#
# usage: tests/sanitize.sh HOST
#   HOST  the host's binary, such as target/debug/host
#
# Prints a line per tool, kernel and shape. Kernels that can split K split it in three. Blocks that
# stay share tiles at all shapes but 1 x 1 x 1, and at 257 x 129 x 31 A and B are copied first.
# Exit status: 0 if all are clean, else 1.
set -u
host=$1
kernels=$("$host" --list --format json | sed -n \
    -e 's/.*"kernel":"\([a-z0-9_]*\)".*"splits":true.*/\1 --splits 3/p;t' \
    -e 's/.*"kernel":"\([a-z0-9_]*\)".*/\1/p')
status=0
for tool in memcheck racecheck initcheck synccheck; do
    for shape in "257 129 31" "260 132 36" "1 1 1" "64 200 900"; do
        read -r m n k <<<"$shape"
        while read -r kernel splits; do
            out=$(compute-sanitizer --tool "$tool" --error-exitcode 9 \
                "$host" --kernel "$kernel" $splits --m "$m" --n "$n" --k "$k" --alpha -1.5 --beta 0.5 \
                --repeat 1 --device gpu --format json 2>&1)
            code=$?
            summary=$(grep 'SUMMARY' <<<"$out" | sed 's/^=* //')
            echo "$tool $kernel ${m}x${n}x$k: exit $code, ${summary:-no summary}"
            if [ $code -ne 0 ]; then
                status=1
                grep -v '^{' <<<"$out" | head -20
            fi
        done <<<"$kernels"
    done
done
exit $status
