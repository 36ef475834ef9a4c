#!/usr/bin/env bash
# What preparing, walking and resuming a run costs in time, memory and disk on corpora of different sizes, by one process and by
# several. Corpora are made of the lines of Multi30k, the same each time: each pair is the first half of one line and the second half
# of another.
#
#   scripts/bench/scale.sh [FOLDER] [OPTIONS] [PAIRS...]      (default: data/multi30k --resume 1e5 1e6 1e7)
#
#   --ways 1x1,1x2,2x2    processes, and threads of all of them together   (default: 1x2,2x2)
#   --corpora FOLDER      keeps corpora there, and takes those that are there
#   --resume              measures `taper resume` too
#   --tokenise PROGRAM    measures the tokenizer alone too, by target/release/examples/tokenise
#
# The largest takes 4 GB in the temporary folder (TMPDIR) and, on two cores, five minutes for each way. TAPER and WALK name the
# programs where they are not to be built. Processor time is given beside that of the clock, for machines that do other work.
set -euo pipefail
[ "${1:-}" = --help ] && { sed -n '2,15p' "$0" | sed 's/^# \{0,1\}//'; exit; }
folder=$(realpath "${1:-data/multi30k}")
shift || true
[ $# -gt 0 ] || set -- --resume 1e5 1e6 1e7
cd "$(dirname "$0")/../.."

if [ -z "${TAPER:-}" ]; then
    cargo build --release --quiet
    cargo build --release --quiet -p taper-data --example walk
    TAPER=target/release/taper WALK=target/release/examples/walk
fi
exec python3 scripts/bench/scale.py --taper "$TAPER" --walk "$WALK" --text "$folder" "$@"
