#!/usr/bin/env bash
# Compiles what a browser runs to translate: a module of WebAssembly for `taper page --module`.
#
#   scripts/package/web.sh [FILE]        target/taper.wasm if no file is named
#
# Needs the target once: rustup target add wasm32-wasip1
set -euo pipefail
cd "$(dirname "$0")/../.."

to=${1:-target/taper.wasm}
# A folder of its own: the flags would have everything else compiled again.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/web
RUSTFLAGS="-C target-feature=+simd128" cargo rustc --profile web --target wasm32-wasip1 \
  -p taper-web --crate-type cdylib
mkdir -p "$(dirname "$to")"
cp "$CARGO_TARGET_DIR/wasm32-wasip1/web/taper_web.wasm" "$to"
gzip -9 -c "$to" | wc -c | awk -v file="$to" '{ printf "%s: %.2f MB compressed\n", file, $1 / 1e6 }'
