#!/usr/bin/env python3
"""Writes what Homebrew, conda and a shell install a release by: taper.rb, recipe.yaml, install.sh.

    scripts/package/channels.py --repository https://HOST/OWNER/NAME --archives dist --to dist

The archives are those of scripts/package/archive.sh, which the release of their version holds; their
sums are written down, and checked by whoever installs. Needs Python 3.9.
"""

import argparse
import hashlib
import re
from pathlib import Path

SUMMARY = "Train Transformers, and translate with them"
ARCHIVE = re.compile(r"taper-(.+?)-((?:x86_64|aarch64)-.+)\.tar\.gz")
# A target as Ruby and conda ask for it.
HOMEBREW = {"x86_64-apple-darwin": "on_macos { on_intel", "aarch64-apple-darwin": "on_macos { on_arm",
            "x86_64-unknown-linux-gnu": "on_linux { on_intel",
            "aarch64-unknown-linux-gnu": "on_linux { on_arm"}
CONDA = {"x86_64-apple-darwin": "osx and x86_64", "aarch64-apple-darwin": "osx and arm64",
         "x86_64-unknown-linux-gnu": "linux and x86_64",
         "aarch64-unknown-linux-gnu": "linux and aarch64"}


def formula(version, sources):
    """The formula of Homebrew."""
    systems = "\n".join(f'  {HOMEBREW[target]} {{ url "{url}"; sha256 "{digest}" }} }}'
                        for target, (url, digest) in sources.items() if target in HOMEBREW)
    return f'''class Taper < Formula
  desc "{SUMMARY}"
  version "{version}"
  license "MIT"
{systems}

  def install
    bin.install "bin/taper"
    pkgshare.install Dir["share/taper/*"]
    man1.install Dir["share/man/man1/*"]
    bash_completion.install "share/bash-completion/completions/taper"
    zsh_completion.install "share/zsh/site-functions/_taper"
    fish_completion.install "share/fish/vendor_completions.d/taper.fish"
  end

  test do
    system bin/"taper", "doctor"
  end
end
'''


def recipe(version, sources):
    """The recipe of conda, in the format of rattler-build."""
    systems = "\n".join(
        f"  - if: {CONDA[target]}\n    then:\n      url: {url}\n      sha256: {digest}"
        for target, (url, digest) in sources.items() if target in CONDA)
    return f'''schema_version: 1

package:
  name: taper
  version: "{version}"

source:
{systems}

build:
  number: 0
  script:
    - mkdir -p "$PREFIX"
    - cp -R bin share "$PREFIX/"

tests:
  - script:
      - taper doctor

about:
  summary: {SUMMARY}
  license: MIT
  license_file: LICENSE-MIT
'''


def installer(version, sources):
    """A script for a shell: the archive of this machine, checked, into ~/.local or $TAPER_PREFIX."""
    cases = "\n".join(f"  {target}) sum={digest} ;;" for target, (_, digest) in sources.items())
    base = next(iter(sources.values()))[0].rpartition("/")[0]
    return f'''#!/bin/sh
# Installs taper {version} into ~/.local, or $TAPER_PREFIX.
set -eu
case $(uname -s) in
  Linux)
    system=unknown-linux-gnu
    # The archive that needs no library, where the C library is another one.
    getconf GNU_LIBC_VERSION >/dev/null 2>&1 || system=unknown-linux-musl ;;
  Darwin) system=apple-darwin ;;
  *) echo "there is no archive for $(uname -s)" >&2; exit 1 ;;
esac
case $(uname -m) in
  x86_64 | amd64) target=x86_64-$system ;;
  aarch64 | arm64) target=aarch64-$system ;;
  *) echo "there is no archive for $(uname -m)" >&2; exit 1 ;;
esac
case $target in
{cases}
  *) echo "there is no archive for $target" >&2; exit 1 ;;
esac
prefix=${{TAPER_PREFIX:-$HOME/.local}}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
curl -fsSL -o "$folder/archive" "{base}/taper-{version}-$target.tar.gz"
if command -v sha256sum >/dev/null; then got=$(sha256sum "$folder/archive"); else got=$(shasum -a 256 "$folder/archive"); fi
if [ "${{got%% *}}" != "$sum" ]; then echo "the archive is damaged, or another" >&2; exit 1; fi
mkdir -p "$prefix"
tar -xzf "$folder/archive" --strip-components=1 -C "$folder"
cp -R "$folder/bin" "$folder/share" "$prefix/"
"$prefix/bin/taper" --version
case :$PATH: in *:"$prefix/bin":*) ;; *) echo "add $prefix/bin to PATH" ;; esac
'''


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--repository", required=True)
    arguments.add_argument("--archives", type=Path, default=Path("dist"))
    arguments.add_argument("--to", type=Path, default=Path("dist"))
    given = arguments.parse_args()
    found = {}
    for path in sorted(given.archives.glob("taper-*.tar.gz")):
        if match := ARCHIVE.fullmatch(path.name):
            version, target = match.groups()
            url = f"{given.repository}/releases/download/v{version}/{path.name}"
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            found.setdefault(version, {})[target] = (url, digest)
    if len(found) != 1:
        raise SystemExit(f"{given.archives}: archives of one version are wanted, not {list(found)}")
    [(version, sources)] = found.items()
    given.to.mkdir(parents=True, exist_ok=True)
    for name, make in [("taper.rb", formula), ("recipe.yaml", recipe), ("install.sh", installer)]:
        (given.to / name).write_text(make(version, sources), encoding="utf-8")


if __name__ == "__main__":
    main()
