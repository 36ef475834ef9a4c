#!/usr/bin/env bash
# Compiles CUDA kernels for the host into a library with one function, `run_kernel` (threads.cpp).
#
#   scripts/check/host_gpu/build.sh OUT.so SOURCE.cu…
#
# Needs a C++ compiler ($CXX, or c++) and nothing of CUDA. $KERNEL_FLAGS are further options.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$1
shift
compiler=${CXX:-c++}
# As a GPU does, products and sums are contracted where the compiler can.
flags=(-std=c++17 -O1 -fPIC -w -I"$here")
read -rd "" -a further <<<"${KERNEL_FLAGS:-}" || true
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for source in "$@"; do
  source=$(realpath "$source")
  name=$(basename "$source" .cu)
  # Names are made by macros, so that they are read after those.
  {
    printf '#include "gpu.h"\n#include "%s"\n' "$source"
    printf 'static const host_gpu::Kernel found[] = {\n'
    "$compiler" -x c++ -E -P -D__global__=__global__ "${flags[@]}" "${further[@]}" "$source" |
      tr '\n' ' ' | grep -o 'extern "C" __global__ void *[A-Za-z0-9_]*' | awk '{ print $NF }' |
      sort -u | sed 's/.*/    {"&", host_gpu::Call<\&&>::run},/'
    printf '};\nstatic const host_gpu::Kernels here(found, sizeof found / sizeof *found);\n'
  } >"$work/$name.cpp"
  "$compiler" "${flags[@]}" "${further[@]}" -c "$work/$name.cpp" -o "$work/$name.o"
done
"$compiler" "${flags[@]}" -c "$here/threads.cpp" -o "$work/threads.o"
# Sources that include the same functions each have a copy of them.
"$compiler" -shared -Wl,-z,muldefs -o "$out.new" "$work"/*.o -lpthread
mv "$out.new" "$out"
