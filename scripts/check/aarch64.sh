#!/usr/bin/env bash
# Taper for ARM on another machine: the tests of the operations, with the kernels for NEON, and a
# translation and a training with the program, emulated.
#
#   scripts/check/aarch64.sh [ops|program]        # both, if none is named
#
# Debian: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static
# and once: rustup target add aarch64-unknown-linux-gnu
set -euo pipefail
cd "$(dirname "$0")/../.."

export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
emulator=$(command -v qemu-aarch64-static || command -v qemu-aarch64) \
  || { echo "qemu-aarch64-static is missing" >&2; exit 2; }
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$emulator -L /usr/aarch64-linux-gnu"
# Compiled in a third of the time; the products stay several times as fast as without.
export CARGO_PROFILE_RELEASE_OPT_LEVEL=${CARGO_PROFILE_RELEASE_OPT_LEVEL:-1}
target=(--release --target aarch64-unknown-linux-gnu)

if [ "${1:-ops}" = ops ]; then
  # Tests that start themselves again, once for each kernel, would start out of the emulator.
  cargo test "${target[@]}" -p taper-ops --lib --tests -- --skip every_kernel
fi

if [ "${1:-program}" = program ]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  cargo build "${target[@]}" -p taper
  read -ra taper <<<"$CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER"
  taper+=("$(pwd)/target/aarch64-unknown-linux-gnu/release/taper")
  cp -r crates/cli/tests/frozen/format-1 "$folder/run"
  frozen=crates/cli/tests/frozen
  "${taper[@]}" translate "$folder/run" --n-best 2 < $frozen/source.txt > "$folder/found.txt"
  python3 scripts/check/same_translations.py $frozen/n_best.txt "$folder/found.txt"
  (cd "$folder" && "${taper[@]}" quickstart --set training.max_updates=5)
fi
