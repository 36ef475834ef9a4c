#!/usr/bin/env bash
# Builds the wheel into dist/: `import taper` and the program, for CPython 3.9 and later.
#
#   scripts/package/wheel.sh                    # for Linux as old as this machine's C library allows
#   scripts/package/wheel.sh --glibc 2.28       # for older ones too, by cargo-zigbuild (on PyPI, with ziglang)
#   scripts/package/wheel.sh --features mpi     # options of Cargo's
#   pip install dist/*.whl
set -euo pipefail
cd "$(dirname "$0")/../.."

build=(cargo build --release)
built=target/release
if [ "${1:-}" = --glibc ]; then
  triple=$(rustc -vV | sed -n 's/^host: //p')
  build=(cargo zigbuild --release --target "$triple.$2")
  built=target/$triple/release
  shift 2
fi
TAPER_COMMIT=$(git rev-parse --short HEAD)
export TAPER_COMMIT
# In one call, so that both share what they depend on.
"${build[@]}" -p taper -p taper-python "$@"
python3 scripts/package/wheel.py --built "$built" --to dist
