#!/usr/bin/env bash
# Checks operations and models for CUDA on a machine without a GPU: the device that counts runs all
# kernels, Candle's and ours, compiled for the host.
#
#   scripts/check/counting_gpu/build.sh && scripts/check/counting_gpu/compute.sh [COMMAND…]
#
# COMMAND is run on that device [default: the test of every operation against f64, and that of models
# against PyTorch, of the build in TARGET, which is target/cuda by default]. It is slow: small models
# take seconds a step.
set -euo pipefail
cd "$(dirname "$0")/../../.."
target=${TARGET:-target/cuda}
libraries=$(realpath "$target/counting-gpu")
kernels=$libraries/kernels.so

# Kernels of Candle, from the sources of the version that is built.
candle=$(cargo metadata --format-version 1 --offline --features taper-ops/cuda |
  grep -o '"[^"]*/candle-kernels-[^"/]*/Cargo.toml"' | head -n 1 | tr -d '"')
sources=(crates/ops/src/cuda/kernels/kernels.cu)
for name in affine binary cast fill indexing reduce ternary unary; do
  sources+=("$(dirname "$candle")/src/$name.cu")
done
last=$(ls -t "$kernels" "${sources[@]}" crates/ops/src/cuda/kernels/* scripts/check/host_gpu/* \
  2>/dev/null | head -n 1 || true)
if [ "$last" != "$kernels" ]; then
  KERNEL_FLAGS="-D__CUDA_ARCH__=900 -D__CUDACC_VER_MAJOR__=13 -D__CUDACC_VER_MINOR__=0
    -include $PWD/scripts/check/host_gpu/candle.h" \
    scripts/check/host_gpu/build.sh "$kernels" "${sources[@]}"
fi

export LD_LIBRARY_PATH=$libraries COUNTING_GPU_KERNELS=$kernels TAPER_TEST_DEVICE=cuda
if [ $# -gt 0 ]; then exec "$@"; fi
newest() { realpath "$(ls -t "$target"/release/deps/"$1"-* | grep -v '\.d$' | head -n 1)"; }
"$(newest devices)"
parity=$(newest parity)
cd crates/model
"$parity" cuda
