#!/usr/bin/env bash
# Lints the program, its libraries and their tests for Windows, on any machine: what can be known
# without it. Not part of every run of the tests, as all dependencies are checked anew.
#
#   rustup target add x86_64-pc-windows-gnu && scripts/check/windows.sh
#
# Nothing is linked, and C code of dependencies is not compiled: that takes the headers of MinGW.
set -euo pipefail
cd "$(dirname "$0")/../.."
source scripts/check/no_compiler.sh x86_64_pc_windows_gnu
# The package for Python needs one for Windows, and the fuzz targets a compiler.
cargo clippy --target x86_64-pc-windows-gnu --workspace --exclude taper-python --exclude taper-fuzz \
  --all-targets --features full "$@" -- -D warnings
