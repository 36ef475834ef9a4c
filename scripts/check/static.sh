#!/usr/bin/env bash
# An archive for musl: its program, alone in an empty root, translates with the frozen run of the
# tests, and its memory comes from mimalloc.
#
#   scripts/package/archive.sh --target x86_64-unknown-linux-musl
#   scripts/check/static.sh dist/taper-VERSION-x86_64-unknown-linux-musl.tar.gz
#
# Needs root, for chroot.
set -euo pipefail
cd "$(dirname "$0")/../.."

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
tar -xzf "$1" --strip-components=2 -C "$root" --wildcards '*/bin/taper'
cp -r crates/cli/tests/frozen/format-1 "$root/run"
find "$root" -maxdepth 1
inside() { chroot "$root" /taper "$@"; }
inside --version
inside translate /run --n-best 2 < crates/cli/tests/frozen/source.txt > "$root/found.txt"
python3 scripts/check/same_translations.py crates/cli/tests/frozen/n_best.txt "$root/found.txt"
# mimalloc says how it is set when it begins, if it is asked.
MIMALLOC_VERBOSE=1 inside --version 2>&1 | grep -m 1 'mimalloc' \
  || { echo "mimalloc is not the allocator" >&2; exit 1; }
