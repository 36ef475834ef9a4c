#!/usr/bin/env bash
# Training steps of Taper against the same model in PyTorch, on the same batches, in turn.
#
#   scripts/bench_vs_pytorch.sh BATCHES PEER [ROUNDS]
#
# BATCHES  a safetensors file with int32 src.N and tgt.N (see `taper bench train --help`)
# PEER     a Python program that takes --batches, --preset, --dtype, --steps, --warmup and --threads, trains the
#          model in PyTorch and prints one line of JSON with target_tokens_per_s
# ROUNDS   runs of each program, in turn (default 5); the table has the median of the ratios
#
# The virtual environment with PyTorch is made in .venv/pytorch, unless PYTHON names an interpreter that has torch.
# CASES ("tiny:f32 tiny:bf16 base:f32 base:bf16") and THREADS (all) choose what is measured.
set -euo pipefail

usage() { sed -n '2,14p' "$0" | sed 's/^# \{0,1\}//'; exit 2; }
[ $# -ge 2 ] && [ $# -le 3 ] || usage
batches=$(realpath "$1") peer=$(realpath "$2") rounds=${3:-5}
cd "$(dirname "$0")/.."
cases=${CASES:-tiny:f32 tiny:bf16 base:f32 base:bf16}
threads=${THREADS:-$(nproc)}

if [ -z "${PYTHON:-}" ]; then
    PYTHON=.venv/pytorch/bin/python
    if [ ! -x "$PYTHON" ]; then
        python3 -m venv .venv/pytorch
        "$PYTHON" -m pip install --quiet torch safetensors numpy
    fi
fi
cargo build --release --quiet
exec "$PYTHON" scripts/bench_vs_pytorch.py --taper target/release/taper --batches "$batches" --peer "$peer" \
    --rounds "$rounds" --threads "$threads" --cases $cases
