#!/usr/bin/env bash
# Builds crates for others' machines in the profile `dist` with the feature `full`, and prints the
# folder that they are in, and their target.
#
#   scripts/package/build.sh [--glibc 2.28] [--target TRIPLE] [OPTIONS OF CARGO'S]
#
# `--glibc` is for Linux with that version of the C library or a later one; without it, the program
# needs this machine's or a later one. `--target` is for other machines; with musl, such as
# x86_64-unknown-linux-musl, the program needs no library. Each takes cargo-zigbuild (on PyPI, with
# ziglang), and a target `rustup target add TRIPLE`. Without cargo-zigbuild, `--target` takes the
# compilers that Cargo is told of: CC_TRIPLE and CARGO_TARGET_TRIPLE_LINKER.
set -euo pipefail
cd "$(dirname "$0")/../.."

glibc= target=
while :; do
  case ${1:-} in
    --glibc) glibc=$2; shift 2 ;;
    --target) target=$2; shift 2 ;;
    *) break ;;
  esac
done
triple=${target:-$(rustc -vV | sed -n 's/^host: //p')}
command=build built=target/dist
if [ -n "$glibc$target" ]; then
  built=target/$triple/dist
  if [ -n "$glibc" ] || [[ $triple == *-linux-* && -n $(command -v cargo-zigbuild) ]]; then
    command=zigbuild
  fi
  set -- --target "$triple${glibc:+.$glibc}" "$@"
fi
TAPER_COMMIT=$(git rev-parse --short HEAD)
export TAPER_COMMIT
cargo "$command" --profile dist --locked --features full "$@" >&2
echo "$built $triple"
