#!/usr/bin/env bash
# Training steps of Taper against the same model in PyTorch, on the same batches, in turn.
#
#   scripts/bench/vs_pytorch.sh [--isa native|avx512|avx2]... [BATCHES] [ROUNDS]
#
# --isa    limits both programs to the same instructions, avx512 being AVX-512 without bf16 (default: native, all that the processor
#          has); several make one table
# BATCHES  a safetensors file with int32 src.N and tgt.N; default: made of data/multi30k by scripts/bench/make_batches.py
# ROUNDS   runs of each program, in turn (default 5); the table has the median of the ratios
#
# From the environment: PYTHON, an interpreter with torch, safetensors, tokenizers and numpy (default: a virtual environment, made in
# .venv/pytorch); PEER, the PyTorch program (default: scripts/bench/pytorch_peer.py); CASES (default: tiny:f32 tiny:bf16 base:f32 base:bf16);
# THREADS (default: all).
set -euo pipefail

usage() { sed -n '2,13p' "$0" | sed 's/^# \{0,1\}//'; exit 2; }
sets=()
while [ "${1:-}" = --isa ]; do
    case "${2:-}" in native | avx512 | avx2) sets+=("$2"); shift 2 ;; *) usage ;; esac
done
[ "${1:-}" != --help ] && [ $# -le 2 ] || usage
batches=${1:+$(realpath "$1")} rounds=${2:-5} peer=${PEER:+$(realpath "$PEER")}
cd "$(dirname "$0")/../.."

if [ -z "${PYTHON:-}" ]; then
    PYTHON=.venv/pytorch/bin/python
    if [ ! -x "$PYTHON" ]; then
        python3 -m venv .venv/pytorch
        "$PYTHON" -m pip install --quiet torch safetensors tokenizers numpy
    fi
fi
if [ -z "$batches" ]; then
    batches=target/multi30k-en-de.batches.safetensors
    [ -f "$batches" ] || "$PYTHON" scripts/bench/make_batches.py data/multi30k/train.en data/multi30k/train.de "$batches"
fi
cargo build --release --quiet
read -r -a cases <<< "${CASES:-tiny:f32 tiny:bf16 base:f32 base:bf16}"
exec "$PYTHON" scripts/bench/compare.py --taper target/release/taper --batches "$batches" \
    --peer "${peer:-scripts/bench/pytorch_peer.py}" --rounds "$rounds" --threads "${THREADS:-$(nproc)}" --cases "${cases[@]}" \
    --isa "${sets[@]:-native}"
