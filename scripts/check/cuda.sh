#!/usr/bin/env bash
# Type-checks everything with the `cuda` and `nccl` features, tests and benches included, without a
# GPU. Not part of every run of the tests: the CUDA kernels take minutes to compile.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/check/cuda_toolkit.sh target/cuda-toolkit
# shellcheck source=/dev/null
source target/cuda-toolkit/env.sh
cargo check --release --workspace --all-targets --features cuda,nccl
