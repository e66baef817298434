#!/usr/bin/env bash
# Types the commands of the README as they stand, on a machine that has nothing but rustup.
#
# usage: tests/fresh.sh [--here]
#   --here  in this checkout, instead of a clone of HEAD with an empty target folder and CARGO_HOME;
#           the tests, and what builds kernels, are left out
#
# The toolchain's component rust-src is removed first. `cargo run` needs none; when a kernel was
# edited, `cargo run` and `cargo xtask build-ptx` each have to bring it back, or say how. Exit status:
# 0 if all is well.
set -euo pipefail

has_rust_src() {
    rustup component list --installed | grep '^rust-src' >/dev/null
}

remove_rust_src() {
    ! has_rust_src || rustup component remove rust-src
}

type_it() {
    printf '\n$ %s\n' "$*"
    "$@"
}

# Of the smallest family, whose PTX is built soonest.
edited=kernels-gpu/src/utility/roofline.rs
record=kernels-gpu/ptx/SOURCES.sha256
fresh= refused=
cd "$(dirname "$0")/.."
root=$PWD
# They are as committed in the end, too.
git diff --exit-code --stat -- "$edited" kernels-gpu/ptx
at_exit() {
    git checkout --quiet -- "$edited" "$record"
    cd "$root"
    rm -rf "$fresh" "$refused"
    [ -z "$had_rust_src" ] || has_rust_src || rustup component add rust-src
}
had_rust_src=$(has_rust_src && echo yes || true)
trap at_exit EXIT
if [ "${1-}" != --here ]; then
    fresh=$(mktemp -d)
    git clone --quiet . "$fresh/clone"
    cd "$fresh/clone"
    export CARGO_HOME=$fresh/cargo
    unset CARGO_TARGET_DIR
fi
unset CUDA_BUILDER_INSTALL_RUST_SRC

# The committed PTX is what runs.
remove_rust_src
type_it cargo run -p host -- --kernel tile2d --size 4096
if has_rust_src; then
    echo 'error: the committed PTX was built anew: its digests are not those of its sources' >&2
    exit 1
fi
[ -z "$fresh" ] || type_it cargo test -p host

refused=$(mktemp)
if [ -n "$fresh" ]; then
    # `build-ptx` brings it back before it compiles, here what is wrong on the device alone.
    remove_rust_src
    printf '\n#[cfg(target_arch = "nvptx64")]\ncompile_error!("refused");\n' >>"$edited"
    if type_it cargo xtask build-ptx 2>"$refused"; then
        echo 'error: kernels that do not compile were built' >&2
        exit 1
    fi
    grep 'error: refused' "$refused"
    has_rust_src || { echo 'error: `build-ptx` has not brought rust-src' >&2; exit 1; }
    git checkout --quiet -- "$edited"

    # An edited kernel is rebuilt by whatever runs it.
    remove_rust_src
    printf '\nconst _: u32 = 1;\n' >>"$edited"
    type_it cargo run -p host -- --kernel naive --size 8
    has_rust_src || { echo 'error: an edited kernel was not built anew' >&2; exit 1; }

    # A constant that nothing uses changes no entry: the PTX stays as committed, and so do the digests
    # of all other families and crates.
    type_it cargo xtask build-ptx
    git diff --exit-code --stat -- kernels-gpu/ptx ":!$record"
    git diff -U0 -- "$record"
    [ "$(git diff --numstat -- "$record" | cut -f 1,2)" = $'1\t1' ]
    git diff -U0 -- "$record" | grep '^+.*  kernels-gpu --features utility$'
    git checkout --quiet -- "$record"
fi

# Where it is forbidden, the error says what to type.
remove_rust_src
printf 'const _: u32 = 2;\n' >>"$edited"
if CUDA_BUILDER_INSTALL_RUST_SRC=0 cargo run -p host -- --kernel naive --size 8 2>"$refused"; then
    echo 'error: a build without rust-src went through' >&2
    exit 1
fi
grep "rustup component add rust-src" "$refused"
