#!/usr/bin/env bash
# Makes a package for Debian and its kin of an archive: dist/taper_VERSION_ARCHITECTURE.deb
#
#   scripts/package/debian.sh dist/taper-VERSION-TARGET.tar.gz
#
# Needs dpkg-deb and readelf.
set -euo pipefail
cd "$(dirname "$0")/../.."

archive=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/root/usr" "$folder/root/DEBIAN"
tar -xzf "$archive" --strip-components=1 -C "$folder/root/usr"
cd "$folder/root"
version=$(basename "$archive" | cut -d- -f2)
case $archive in
  *x86_64*) architecture=amd64 ;;
  *aarch64*) architecture=arm64 ;;
  *) echo "$archive: for no architecture of Debian's" >&2; exit 2 ;;
esac
# Where Debian wants them.
documents=usr/share/doc/taper
mkdir -p "$documents" usr/lib/systemd/system usr/share/zsh/vendor-completions
mv usr/README.md usr/README.zh.md "$documents/"
mv usr/LICENSE-MIT "$documents/copyright"
mv usr/share/taper/taper@.service usr/lib/systemd/system/
sed -i 's|/usr/local/bin|/usr/bin|' usr/lib/systemd/system/taper@.service
mv usr/share/zsh/site-functions/_taper usr/share/zsh/vendor-completions/
rmdir usr/share/zsh/site-functions
gzip -9n usr/share/man/man1/*.1
find . -type d -exec chmod 755 {} +
find usr -type f -exec chmod 644 {} +
chmod 755 usr/bin/taper
glibc=$(readelf -V usr/bin/taper | sed -n 's/.*Name: GLIBC_\([0-9.]*\).*/\1/p' | sort -V | tail -1)
# A static program needs no library.
depends=${glibc:+"
Depends: libc6 (>= $glibc), libgcc-s1"}
cat >DEBIAN/control <<CONTROL
Package: taper
Version: $version
Architecture: $architecture
Maintainer: The Taper authors <taper@localhost>
Section: science
Priority: optional
Installed-Size: $(du -ks usr | cut -f1)$depends
Description: train Transformers, and translate with them
 Taper goes from raw text to a scored model that can be served, in one program: recipes, exact
 resuming, beam search, BLEU, and a page with an API.
CONTROL
cd - >/dev/null
mkdir -p dist
deb=dist/taper_${version}_$architecture.deb
dpkg-deb --build --root-owner-group "$folder/root" "$deb" >/dev/null
ls -l "$deb"
