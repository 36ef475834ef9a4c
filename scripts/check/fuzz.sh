#!/usr/bin/env bash
# Runs every fuzz target of crates/fuzz for some seconds, and prints how many inputs each has survived.
#
#   scripts/check/fuzz.sh [SECONDS] [TARGET...]      (default: 600, all)
#
# Needs a nightly toolchain and `cargo install cargo-fuzz`. An input that is not survived is kept under
# crates/fuzz/artifacts, and ends the script.
set -euo pipefail
cd "$(dirname "$0")/../.."

seconds=${1:-600}
shift || true
targets=${*:-$(cargo +nightly fuzz list --fuzz-dir crates/fuzz)}
cargo +nightly fuzz build --fuzz-dir crates/fuzz -s none
# The targets write their input to files: in memory, where there is such a folder, that is up to seven times as fast.
if [ -z "${TMPDIR:-}" ] && [ -w /dev/shm ]; then
    TMPDIR=$(mktemp -d /dev/shm/taper-fuzz.XXXXXX)
    export TMPDIR
    trap 'rm -rf "$TMPDIR"' EXIT
fi
for target in $targets; do
    log=$(mktemp)
    # A file of 1 MiB is longer than any that the targets begin with; 2 GiB are far more than any of them needs.
    if ! cargo +nightly fuzz run --fuzz-dir crates/fuzz -s none "$target" -- -max_total_time="$seconds" -max_len=1048576 -rss_limit_mb=2048 -timeout=60 > "$log" 2>&1; then
        tail -n 40 "$log" >&2
        exit 1
    fi
    echo "$target: $(grep -a '^Done ' "$log" || tail -n 1 "$log")"
    rm "$log"
done
