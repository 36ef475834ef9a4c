#!/usr/bin/env bash
# Packs the program with its manual pages, completions, recipes and licence: dist/taper-VERSION-TARGET.tar.gz
#
#   scripts/package/archive.sh [OPTIONS OF CARGO'S]
set -euo pipefail
cd "$(dirname "$0")/../.."

TAPER_COMMIT=$(git rev-parse --short HEAD)
export TAPER_COMMIT
cargo build --release "$@"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
name=taper-$version-$(rustc -vV | sed -n 's/^host: //p')
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
root=$folder/$name
mkdir -p "$root"/{bin,share/taper,share/bash-completion/completions,share/zsh/site-functions,share/fish/vendor_completions.d}
cp target/release/taper "$root/bin/"
cp LICENSE-MIT README.md README.zh.md "$root/"
cp -r docs "$root/share/taper/"
mkdir "$root/share/taper/configs"
cp configs/*.toml "$root/share/taper/configs/"
cp scripts/package/taper@.service "$root/share/taper/"
"$root/bin/taper" manual "$root/share/man/man1" >/dev/null
"$root/bin/taper" completions bash > "$root/share/bash-completion/completions/taper"
"$root/bin/taper" completions zsh > "$root/share/zsh/site-functions/_taper"
"$root/bin/taper" completions fish > "$root/share/fish/vendor_completions.d/taper.fish"
mkdir -p dist
# The same bytes for the same files.
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$folder" -cf - "$name" |
  gzip -9n > "dist/$name.tar.gz"
ls -l "dist/$name.tar.gz"
