#!/usr/bin/env bash
# Type-checks the program and its libraries with the `metal` feature, on any machine: what can be
# known without a Mac. Not part of every run of the tests, as all dependencies are checked anew.
#
#   rustup target add aarch64-apple-darwin && scripts/check/metal.sh
#
# Nothing is linked, and C code of dependencies is not compiled: that takes Apple's headers. Metal
# compiles Candle's kernels when they are first used, so that none of them is checked either.
set -euo pipefail
cd "$(dirname "$0")/../.."
source scripts/check/no_compiler.sh aarch64_apple_darwin
cargo check --target aarch64-apple-darwin -p taper --features full,metal
