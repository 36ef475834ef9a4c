#!/usr/bin/env bash
# Packs the program with what share.sh puts beside it: dist/taper-VERSION-TARGET.tar.gz
#
#   scripts/package/archive.sh [OPTIONS OF build.sh]
#   scripts/package/archive.sh --target x86_64-unknown-linux-musl      # needs no library
#   scripts/package/archive.sh --target aarch64-unknown-linux-gnu      # for another processor
set -euo pipefail
cd "$(dirname "$0")/../.."

made=$(scripts/package/build.sh "$@" -p taper)
read -r built triple <<<"$made"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
name=taper-$version-$triple
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
root=$folder/$name
mkdir -p "$root/bin"
cp "$built/taper" "$root/bin/"
cp LICENSE-MIT README.md README.zh.md "$root/"
scripts/package/share.sh "$root/bin/taper" "$root/share" "$triple"
mkdir -p dist
# The same bytes for the same files: whatever the day, and whoever packs them.
python3 - "$folder" "$name" "dist/$name.tar.gz" <<'PACK'
import gzip, os, sys, tarfile
folder, name, to = sys.argv[1:]
def plain(member):
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member
paths = sorted(os.path.relpath(os.path.join(at, file), folder)
               for at, _, files in os.walk(os.path.join(folder, name)) for file in files)
with open(to, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in paths:
            archive.add(os.path.join(folder, path), path, filter=plain)
PACK
ls -l "dist/$name.tar.gz"
