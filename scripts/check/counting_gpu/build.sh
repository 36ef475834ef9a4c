#!/usr/bin/env bash
# Builds `taper` and the tests of its operations and models for CUDA on a machine without a GPU, and
# the device that counts in place of one.
#
#   scripts/check/counting_gpu/build.sh [TARGET]     # default: target/cuda
#
# The toolkit comes from PyPI (scripts/check/cuda_toolkit.sh); compiling its kernels takes minutes.
# The program is linked against the names that CUDA's libraries have, so that it runs on a machine
# with a GPU as it is. With TARGET/counting-gpu in LD_LIBRARY_PATH it runs on the counting device.
set -euo pipefail
cd "$(dirname "$0")/../../.."
target=${1:-target/cuda}
libraries=$target/counting-gpu
mkdir -p "$libraries"
libraries=$(realpath "$libraries")

scripts/check/cuda_toolkit.sh target/cuda-toolkit
# shellcheck source=/dev/null
source target/cuda-toolkit/env.sh

# The driver has everything; the other libraries are there for their names alone.
driver=scripts/check/counting_gpu/driver.c
gcc -shared -fPIC -w -O1 -Wl,-soname,libcuda.so.1 "$driver" -o "$libraries/libcuda.so.1" -lpthread -ldl
for name in libcudart.so.13 libcublas.so.13 libcublasLt.so.13 libcurand.so.10 libnvrtc.so.13; do
  echo | gcc -shared -fPIC -Wl,-soname,$name -x c - -o "$libraries/$name"
done
for file in "$libraries"/*.so.*; do
  ln -sf "$(basename "$file")" "${file%.so.*}.so"
done

# Without kernels of Candle's that nothing here calls.
export NVCC=$PWD/scripts/package/cuda/nvcc

# Links these with those names, none of which has what would be a reason to.
cat >"$libraries/cc" <<CC
#!/usr/bin/env bash
case " \$* " in
  *" -o "*/deps/taper-*" "* | *" -o "*/deps/devices-*" "* | *" -o "*/deps/parity-*" "*)
    exec $(command -v cc) "\$@" -L"$libraries" -Wl,--unresolved-symbols=ignore-all \\
      -Wl,--no-as-needed -lcuda -lcudart -lcublas -lcublasLt -lcurand -lnvrtc ;;
esac
exec $(command -v cc) "\$@" -L"$libraries"
CC
chmod +x "$libraries/cc"
export PATH="$libraries:$PATH" CARGO_TARGET_DIR=$target

cargo build --release --features cuda
cargo test --release --features taper-ops/cuda,taper-model/cuda --workspace --test devices \
  --test parity --no-run
