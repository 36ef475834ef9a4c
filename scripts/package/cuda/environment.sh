# shellcheck shell=bash
# Makes, and tells Cargo of, what a build for CUDA needs on a machine without a GPU, a driver and a
# toolkit: sourced in the root of the sources, by wheel.sh.
scripts/check/cuda_toolkit.sh target/cuda-toolkit >&2
# shellcheck source=/dev/null
source target/cuda-toolkit/env.sh
scripts/package/cuda/late.py target/cuda-late

# Machine code of the kernels for each family of GPUs, and PTX of the last. Candle's kernels are PTX
# of the first.
export TAPER_CUDA_CAPABILITIES=80,86,89,90,100
export CUDA_COMPUTE_CAP=${TAPER_CUDA_CAPABILITIES%%,*}
# One of the folders where cudarc lets the linker look for libraries.
export CUDA_TOOLKIT_ROOT_DIR=$PWD/target/cuda-late
export NVCC=$PWD/scripts/package/cuda/nvcc
