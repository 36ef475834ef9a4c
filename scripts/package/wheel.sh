#!/usr/bin/env bash
# Builds the wheel into dist/: `import taper` and the program, for CPython 3.9 and later.
#
#   scripts/package/wheel.sh                    # for Linux as old as this machine's C library allows
#   scripts/package/wheel.sh --glibc 2.28       # for older ones too: build.sh says what it takes
#   scripts/package/wheel.sh --features mpi     # options of Cargo's
#   pip install dist/*.whl
set -euo pipefail
cd "$(dirname "$0")/../.."

# In one call, so that both share what they depend on.
made=$(scripts/package/build.sh "$@" -p taper -p taper-python)
read -r built triple <<<"$made"
share=$(mktemp -d)
trap 'rm -rf "$share"' EXIT
scripts/package/share.sh "$built/taper" "$share" "$triple"
python3 scripts/package/wheel.py --built "$built" --to dist --share "$share"
