#!/usr/bin/env bash
# Builds the wheel into dist/: `import taper` and the program, for CPython 3.9 and later.
#
#   scripts/package/wheel.sh                    # for Linux as old as this machine's C library allows
#   scripts/package/wheel.sh --glibc 2.28       # for older ones too: build.sh says what it takes
#   scripts/package/wheel.sh --cuda [--glibc 2.28]   # the wheel taper-cuda13, for NVIDIA's GPUs too
#   scripts/package/wheel.sh --features mpi     # options of Cargo's
#   pip install dist/*.whl
#
# `--cuda`, which comes first, needs no GPU; it downloads a compiler of CUDA's from PyPI.
set -euo pipefail
cd "$(dirname "$0")/../.."

features=full cuda=()
if [ "${1:-}" = --cuda ]; then
  shift
  source scripts/package/cuda/environment.sh
  features=full,cuda cuda=(--cuda)
fi
# In one call, so that both share what they depend on.
made=$(scripts/package/build.sh "$@" --features "$features" -p taper -p taper-python)
read -r built triple <<<"$made"
share=$(mktemp -d)
trap 'rm -rf "$share"' EXIT
scripts/package/share.sh "$built/taper" "$share" "$triple" "$features"
python3 scripts/package/wheel.py --built "$built" --to dist --share "$share" "${cuda[@]}"
