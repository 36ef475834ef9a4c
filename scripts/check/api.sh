#!/usr/bin/env bash
# What the crates' public API had at a revision and has no longer, or has in another form.
#
#   scripts/check/api.sh                                        # since the last tag
#   scripts/check/api.sh REVISION                               # since a revision
#   scripts/check/api.sh REVISION --release-type minor          # options of cargo-semver-checks
#
# Needs, once: cargo install --locked cargo-semver-checks
# The documentation of both is built as JSON, in one folder, so that dependencies are checked once.
set -euo pipefail
cd "$(dirname "$0")/../.."

revision=${1:-$(git describe --tags --abbrev=0)} \
  || { echo "there is no tag: name a revision" >&2; exit 2; }
[ $# -eq 0 ] || shift
api=$(pwd)/target/api
before=$(mktemp -d)
trap 'git worktree remove --force "$before/source"; rm -rf "$before"' EXIT
git worktree add --quiet --detach "$before/source" "$revision"

# What cargo-semver-checks wants to see, to know what has been moved or hidden.
SHOWN="--document-private-items --document-hidden-items"

# Writes the public API of the crates of a folder, but for those that are no libraries for others.
describe() {
  rm -rf "$api"/debug/.fingerprint/taper* "$api/doc"
  # JSON is behind a switch of rustdoc's, in any toolchain.
  (cd "$1" && RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$api \
    RUSTDOCFLAGS="-Z unstable-options --output-format json $SHOWN --cap-lints allow" \
    cargo doc --quiet --locked --no-deps --lib --workspace --exclude taper-hostile \
      --exclude taper-fuzz --exclude taper-python --features full)
  rm -rf "$2"
  mkdir -p "$2"
  cp "$api"/doc/*.json "$2/"
}
describe "$before/source" "$api/before"
describe . "$api/now"

failed=0
for now in "$api"/now/*.json; do
  name=$(basename "$now")
  if [ -f "$api/before/$name" ]; then
    cargo semver-checks --baseline-rustdoc "$api/before/$name" --current-rustdoc "$now" "$@" \
      || failed=1
  else
    echo "${name%.json} is new"
  fi
done
for old in "$api"/before/*.json; do
  name=$(basename "$old")
  [ -f "$api/now/$name" ] || { echo "${name%.json} is gone"; failed=1; }
done
exit "$failed"
