#!/bin/sh
# The tests of the operations on processors that this one is not: x86-64 with AVX2 and without AVX-512, x86-64 with SSE alone, and
# ARM with NEON. They are emulated, which takes some minutes; what is not installed is skipped, and said.
#
# Debian: apt-get install valgrind qemu-user, and for ARM what aarch64.sh names
set -eu
cd "$(dirname "$0")/../.."

# The test binaries of a build, with the given arguments of cargo's.
binaries() {
    built=$(cargo test --release -p taper-ops --lib --tests --no-run "$@" 2>&1) || { echo "$built" >&2; return 1; }
    echo "$built" | sed -n 's/^ *Executable.*(\(.*\))$/\1/p'
}

# Runs all binaries under an emulator. Each kernel is tested by tests that start the binary again, out of the emulator: left out.
run() {
    what=$1
    tests=$2
    shift 2
    for binary in $tests; do
        echo "$what: $binary"
        "$@" "./$binary" --skip every_kernel
    done
}

tests=$(binaries)
if command -v valgrind >/dev/null; then
    run "AVX2 without AVX-512" "$tests" valgrind -q --error-exitcode=1
elif command -v qemu-x86_64 >/dev/null; then
    run "AVX2 without AVX-512" "$tests" qemu-x86_64 -cpu Haswell
else
    echo "skipped: AVX2 without AVX-512, for want of valgrind or qemu-x86_64"
fi
if command -v qemu-x86_64 >/dev/null; then
    run "SSE alone" "$tests" qemu-x86_64 -cpu Nehalem
else
    echo "skipped: SSE alone, for want of qemu-x86_64"
fi

if command -v aarch64-linux-gnu-gcc >/dev/null \
    && rustup target list --installed 2>/dev/null | grep -q '^aarch64-unknown-linux-gnu$'; then
    scripts/check/aarch64.sh ops
else
    echo "skipped: NEON, for want of what scripts/check/aarch64.sh names"
fi
