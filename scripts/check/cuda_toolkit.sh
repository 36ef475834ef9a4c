#!/usr/bin/env bash
# Makes a CUDA 13.0 toolkit from PyPI wheels, enough to compile (not to run) the `cuda` feature on a machine without one.
#
#   scripts/check/cuda_toolkit.sh [PREFIX]        # default: target/cuda-toolkit
#   source PREFIX/env.sh && cargo check --release --features cuda
#
# CUDA 13.0 is pinned because driver 580 accepts no newer PTX. About 104 MB are downloaded.
set -euo pipefail

prefix=${1:-target/cuda-toolkit}
mkdir -p "$prefix"
prefix=$(cd "$prefix" && pwd)

if [ ! -x "$prefix/nvidia/cu13/bin/nvcc" ]; then
  python3 -m pip install --quiet --no-deps --target "$prefix" \
    nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 \
    nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
fi
home="$prefix/nvidia/cu13"
chmod +x "$home"/bin/* "$home"/nvvm/bin/* 2>/dev/null || true

cat > "$prefix/env.sh" <<ENV
export CUDA_HOME="$home" CUDA_PATH="$home" CUDA_ROOT="$home" CUDA_TOOLKIT_ROOT_DIR="$home"
export CUDA_COMPUTE_CAP=\${CUDA_COMPUTE_CAP:-90}
export PATH="$home/bin:\$PATH"
ENV
"$home/bin/nvcc" --version | tail -n 2
echo "toolkit in $home; now: source $prefix/env.sh && cargo check --release --features cuda"
