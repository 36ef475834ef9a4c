#!/usr/bin/env bash
# Fills data/tinyshakespeare with input.txt: 1,115,394 characters of Shakespeare's plays, the text of
# char-rnn and nanoGPT. Source: https://github.com/karpathy/char-rnn. Licence: public domain.
set -euo pipefail

url=https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt
sum=86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed
out="$(cd "$(dirname "$0")/../.." && pwd)/data/tinyshakespeare"
mkdir -p "$out"
part="$out/input.txt.part"
trap 'rm -f "$part"' EXIT

command -v curl > /dev/null || { echo "curl is needed" >&2; exit 1; }
curl --fail --location --silent --show-error --retry 5 --retry-delay 2 --output "$part" "$url"
echo "$sum  $part" | sha256sum --check --quiet || {
    echo "the file that came is another than expected" >&2
    exit 1
}
mv "$part" "$out/input.txt"
