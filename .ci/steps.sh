# What .ci/run and .ci/nightly share: steps, their times, and what both of them call.
export CARGO_TERM_COLOR=never
# Nothing is compiled twice here, and nobody debugs these programs: what incremental builds keep and
# lines of the source would only cost time. So would optimising: Cargo.toml names the packages that
# are hot. Without `lto = "off"` what build scripts use is compiled as the rest is, and so once.
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0
export CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_LTO=false

# One line a step, of the stages that run in processes of their own, too.
is_outermost=
if [ -z "${CI_TIMES-}" ]; then
    is_outermost=yes
    CI_TIMES=$(mktemp)
    export CI_TIMES
    trap 'rm -f "$CI_TIMES"' EXIT
fi

# usage: processor_seconds SHELL
# What the commands of this process took that have ended.
processor_seconds() {
    awk '{ print int(($16 + $17) / 100) }' "/proc/$1/stat"
}

# usage: step COMMAND [ARGUMENT...]
step() {
    local shell=$BASHPID began=$SECONDS used
    used=$(processor_seconds "$shell")
    printf '\n== %s (%ss)\n' "$*" "$SECONDS"
    "$@"
    printf '%6ss %6ss of processors  %s\n' \
        "$((SECONDS - began))" "$(($(processor_seconds "$shell") - used))" "$*" >>"$CI_TIMES"
}

# usage: side_by_side COMMAND...
# Commands at once, the last one first. What the others say comes after what it says.
side_by_side() {
    local command logs=() shells=() status=0 first i
    # Not `command || status=$?`: there `set -e` would not end it at its first failure.
    ${!#} &
    first=$!
    for command in "${@:1:$#-1}"; do
        logs+=("$(mktemp)")
        $command >"${logs[-1]}" 2>&1 &
        shells+=($!)
    done
    wait "$first" || status=$?
    for i in "${!logs[@]}"; do
        wait "${shells[i]}" || status=$?
        cat "${logs[i]}"
        rm "${logs[i]}"
    done
    return "$status"
}

# The end of a script: every step's times, unless another script calls it.
report() {
    [ "$is_outermost" ] || return 0
    printf '\n'
    cat "$CI_TIMES"
    printf '\nall of it passed in %ss, %ss of processors\n' "$SECONDS" "$(processor_seconds $$)"
}

# ptxas, and cuobjdump beside it.
install_ptxas() {
    python3 -m venv target/nvidia
    target/nvidia/bin/pip install --quiet --disable-pip-version-check \
        nvidia-cuda-nvcc==13.5.37 nvidia-cuda-cuobjdump==13.5.37 nvidia-cuda-nvdisasm==13.5.37
    PTXAS=$(find "$PWD/target/nvidia" -name ptxas -type f)
    export PTXAS
    "$PTXAS" --version
}

# usage: other_systems TARGET...
other_systems() {
    local target targets=()
    rustup target add "$@"
    for target in "$@"; do
        targets+=(--target "$target")
    done
    RUSTFLAGS="-D warnings" cargo check --quiet -p host -p xtask "${targets[@]}"
}

# Which crates a stage tests. They have the features that `host` asks for, so that stages compile what
# they share once. Arguments go to `cargo test`.
libraries=(cuda_distributed cuda_gemm gemm_bench gemm_report gemm_verify host_system kernels-gpu sample_stats)
device=(soft_cuda ptx_syntax cuda_driver shared)
features=(--features cuda_driver/json)

# The libraries behind `host`.
library_tests() {
    cargo test "${libraries[@]/#/-p}" "${features[@]}" "$@"
}

# The software device, what reads PTX for it, and the driver API in front.
device_tests() {
    cargo test "${device[@]/#/-p}" "${features[@]}" "$@"
}

# Their unit tests, which are quick: to optimise the software device once more for them would take a
# minute.
device_units() {
    cargo test -p soft_cuda -p ptx_syntax -p cuda_driver "${features[@]}" --lib \
        --config 'profile.dev.package.soft_cuda.opt-level = 0' "$@"
}

# The builder of kernels, the device library, the examples, and what else has features of its own.
# Faer and ndarray are the nightly's.
builder_tests() {
    local others=("${libraries[@]}" "${device[@]}" host xtask xtask-new faer_views ndarray_stream)
    REQUIRE_RUST_SRC=1 cargo test --workspace "${others[@]/#/--exclude=}" "${features[@]}" "$@"
}

# usage: checked_contract SCHEDULE [ARGUMENT...]
# Parts of the contract under all checks, in one order of warps and blocks.
checked_contract() {
    SOFT_CUDA_CHECK=all SOFT_CUDA_SCHEDULE=$1 cargo test -p host --test contract -- \
        small_integers stream_k:: splits:: views sixteen_bits outputs_and_epilogues "${@:2}"
}
