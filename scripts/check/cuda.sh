#!/usr/bin/env bash
# Compiles the CUDA kernels and type-checks everything with the `cuda` and `nccl` features, tests and
# benches included, without a GPU: six to nine minutes, most of them for Candle's own kernels.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/check/cuda_toolkit.sh target/cuda-toolkit
# shellcheck source=/dev/null
source target/cuda-toolkit/env.sh
cargo check --release --workspace --all-targets --features cuda,nccl
