#!/usr/bin/env bash
# What preparing and resuming a run costs in time and memory on corpora of different sizes, made of the lines of Multi30k: each pair is
# the first half of one line and the second half of another.
#
#   scripts/bench/scale.sh [FOLDER] [PAIRS...]      (default: data/multi30k 100000 1000000 10000000)
#
# The largest takes 3 GB in the temporary folder (TMPDIR) and, on two cores, five minutes. TAPER and TOKENISE name the programs where
# they are not to be built. Processor time is given beside that of the clock, for machines that do other work.
set -euo pipefail
[ "${1:-}" = --help ] && { sed -n '2,8p' "$0" | sed 's/^# \{0,1\}//'; exit; }
folder=$(realpath "${1:-data/multi30k}")
shift || true
[ $# -gt 0 ] || set -- 100000 1000000 10000000
cd "$(dirname "$0")/../.."

if [ -z "${TAPER:-}" ]; then
    cargo build --release --quiet
    cargo build --release --quiet -p taper-data --example tokenise
    TAPER=target/release/taper TOKENISE=target/release/examples/tokenise
fi
exec python3 scripts/bench/scale.py --taper "$TAPER" --tokenise "$TOKENISE" --text "$folder" "$@"
