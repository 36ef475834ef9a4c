#!/usr/bin/env bash
# Builds crates for others' machines in the profile `dist` with the feature `full`, and prints the
# folder that they are in.
#
#   scripts/package/build.sh [--glibc 2.28 | --target TRIPLE] [OPTIONS OF CARGO'S]
#
# `--glibc` is for Linux with that version of the C library or a later one, by cargo-zigbuild (on
# PyPI, with ziglang); without it, the program needs this machine's or a later one.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=(cargo build --profile dist --locked --features full)
built=target/dist
case ${1:-} in
  --glibc)
    triple=$(rustc -vV | sed -n 's/^host: //p')
    build=(cargo zigbuild --profile dist --locked --features full --target "$triple.$2")
    built=target/$triple/dist
    shift 2 ;;
  --target)
    build+=(--target "$2")
    built=target/$2/dist
    shift 2 ;;
esac
TAPER_COMMIT=$(git rev-parse --short HEAD)
export TAPER_COMMIT
"${build[@]}" "$@" >&2
echo "$built"
