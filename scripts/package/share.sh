#!/usr/bin/env bash
# Fills a folder with what is installed beside the program: manual pages, completions, the manual as
# a site, recipes with their schema, licences of what it is built from.
#
#   scripts/package/share.sh PROGRAM FOLDER [TARGET [FEATURES]]
#
# A program for another processor is run by QEMU (Debian: qemu-user-static), which finds the C
# library of the target where Debian's cross compilers have it.
#
# The site is left out where there is no mdBook (scripts/package/book.py says how to get it).
set -euo pipefail
cd "$(dirname "$0")/../.."

program=$1
to=$2
host=$(rustc -vV | sed -n 's/^host: //p')
target=${3:-$host}
taper=("$program")
machine=${target%%-*}
if [ "$machine" != "${host%%-*}" ] && [[ $target == *-linux-* ]]; then
  emulator=$(command -v "qemu-$machine-static" || command -v "qemu-$machine") \
    || { echo "no qemu-$machine to run $program" >&2; exit 1; }
  taper=("$emulator" -L "/usr/${target/-unknown/}" "$program")
fi
mkdir -p "$to"/{taper/configs,man,bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
"${taper[@]}" manual "$to/man/man1" >/dev/null
"${taper[@]}" completions bash > "$to/bash-completion/completions/taper"
"${taper[@]}" completions zsh > "$to/zsh/site-functions/_taper"
"${taper[@]}" completions fish > "$to/fish/vendor_completions.d/taper.fish"
"${taper[@]}" config explain --json > "$to/taper/recipe.schema.json"
cp configs/*.toml "$to/taper/configs/"
cp scripts/package/taper@.service "$to/taper/"
python3 scripts/package/third_parties.py --to "$to/taper" --target "$target" \
  --features "${4:-full}"
if command -v mdbook >/dev/null; then
  python3 scripts/package/book.py --to "$to/taper/book"
else
  echo "no mdbook: the manual is left out" >&2
fi
if rustup target list --installed 2>/dev/null | grep -q '^wasm32-wasip1$'; then
  scripts/package/web.sh "$to/taper/taper.wasm"
else
  echo "no target wasm32-wasip1: the module for browsers is left out" >&2
fi
