#!/usr/bin/env bash
# Compiles the CUDA kernels and type-checks everything with the `cuda` and `nccl` features, tests and
# benches included, without a GPU: two to five minutes. Candle's own kernels, which nothing here
# calls and which take longer than all the rest, are left out.
#
#   scripts/check/cuda.sh [COMMAND OF CARGO'S]
#
# Another command than `check` takes its place: with `clippy`, one pass has the lints as well.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/check/cuda_toolkit.sh target/cuda-toolkit
# shellcheck source=/dev/null
source target/cuda-toolkit/env.sh

# Stands in for nvcc while Candle's kernels are built: writes an empty object or no kernel at all.
NVCC=$PWD/target/cuda-toolkit/nvcc-without-candle
export NVCC
cat > "$NVCC" <<'STAND_IN'
#!/usr/bin/env bash
case $PWD:$* in
  *candle-kernels*:*--lib*) ;;
  *candle-kernels*.cu)
    out="" folder="" source=""
    while [ $# -gt 0 ]; do
      case $1 in
        -o) out=$2 ;;
        --output-directory) folder=$2 ;;
        *.cu) source=$1 ;;
      esac
      shift
    done
    if [ -n "$out" ]; then
      exec cc -x c -c /dev/null -o "$out"
    fi
    exec echo "// not compiled, for a type check alone" > "$folder/$(basename "$source" .cu).ptx" ;;
esac
exec "$CUDA_HOME/bin/nvcc" "$@"
STAND_IN
chmod +x "$NVCC"
# A build for a GPU must not find what stands in for kernels.
trap 'cargo clean --quiet --release -p candle-kernels' EXIT
cargo clean --quiet --release -p candle-kernels
if [ $# = 0 ]; then
  set -- check --release --workspace --all-targets --features full,cuda,nccl
fi
cargo "$@"
