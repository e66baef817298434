#!/usr/bin/env bash
# Runs every planted bug of `soft_cuda` and its clean twin on a GPU, alone and under the four tools
# of compute-sanitizer.
#
# usage: run.sh LAUNCH_PTX TWINS OUT
#   LAUNCH_PTX  the example of `cuda_driver` of that name
#   TWINS       a folder: `TWINS=... cargo test -p soft_cuda --test checks export -- --ignored`
#   OUT         a folder for what each run said, and `raw.csv`: number, twin, tool, exit status,
#               the first thing said. Exit status 9: the tool found something; 124 or 137: it was
#               still running after 10 s.
#   ONLY        in the environment: a file of lines NUMBER TWIN TOOL, which are run and no others
set -u
export LAUNCH_PTX=$1 TWINS=$2 OUT=$3
mkdir -p "$OUT/said"

# usage: one NUMBER BLOCKS THREADS TWIN TOOL
one() {
    local number=$1 blocks=$2 threads=$3 twin=$4 tool=$5 said code first
    local command=("$LAUNCH_PTX" "$TWINS/$number-$twin.ptx" "$blocks" "$threads")
    [ "$tool" = none ] || command=(compute-sanitizer --tool "$tool" --error-exitcode 9 "${command[@]}")
    said=$OUT/said/$number-$twin-$tool
    timeout -k 5 10 "${command[@]}" >"$said" 2>&1
    code=$?
    first=$(grep -v -e '^$' -e 'COMPUTE-SANITIZER' "$said" | head -1 | sed 's/^=* *//; s/[",]/ /g')
    echo "$number,$twin,$tool,$code,$first"
}
export -f one

for twin in bug fix; do
    for tool in none memcheck racecheck initcheck synccheck; do
        tail -n +2 "$TWINS/twins.csv" | while IFS=, read -r number blocks threads _; do
            echo "$number $blocks $threads $twin $tool"
        done
    done
done | if [ -n "${ONLY-}" ]; then
    awk 'NR == FNR { only[$1, $2, $3]; next } ($1, $4, $5) in only' "$ONLY" -
else
    cat
fi | xargs -P 16 -L 1 bash -c 'one "$@"' one | sort >"$OUT/raw.csv"
