#!/usr/bin/env bash
# Fills data/wmt14-en-de with English-German text: train (Europarl v7, Common Crawl, News Commentary v9,
# about 4.5 million pairs), newstest2013 and newstest2014 (the full 3,003 sentences).
# Source: https://www.statmt.org/wmt14/translation-task.html
# Licence: free for research; Europarl and News Commentary as their pages state, Common Crawl as found.
# About 1.7 GB are downloaded and 5 GB of disk used at the peak; a rerun keeps what arrived whole.
set -euo pipefail

out="$(cd "$(dirname "$0")/../.." && pwd)/data/wmt14-en-de"
downloads="$out/downloads"
mkdir -p "$downloads"
work="$(mktemp -d -p "$out")"
trap 'rm -rf "$work"' EXIT
# Apart from what the archives hold, some of which has the same names.
ready="$work/ready"
mkdir "$ready"

for tool in curl tar python3; do
    command -v "$tool" > /dev/null || { echo "$tool is needed" >&2; exit 1; }
done

fetch() {
    local file="$downloads/${1##*/}"
    [ -s "$file" ] && return
    curl --fail --location --show-error --retry 5 --retry-delay 5 --continue-at - \
        --output "$file.part" "$1"
    gzip --test "$file.part" || { rm -f "$file.part"; echo "$1 arrived damaged; run this again" >&2; exit 1; }
    mv "$file.part" "$file"
}

for url in \
    https://www.statmt.org/europarl/v7/de-en.tgz \
    https://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz \
    https://www.statmt.org/wmt14/training-parallel-nc-v9.tgz \
    https://www.statmt.org/wmt14/dev.tgz \
    https://www.statmt.org/wmt14/test-full.tgz; do
    fetch "$url"
    tar --extract --gzip --file "$downloads/${url##*/}" --directory "$work"
done

locate() {
    local found
    found="$(find "$work" -type f -name "$1" -print -quit)"
    [ -n "$found" ] || { echo "no $1 in the archives; has the layout of statmt.org changed?" >&2; exit 1; }
    printf '%s\n' "$found"
}

for language in en de; do
    europarl="$(locate "europarl-v7.de-en.$language")"
    crawl="$(locate "commoncrawl.de-en.$language")"
    news="$(locate "news-commentary-v9.de-en.$language")"
    cat "$europarl" "$crawl" "$news" > "$ready/train.$language"
    cp "$(locate "newstest2013.$language")" "$ready/newstest2013.$language"
done

# The 2014 test set comes as SGML: English as source, German as reference.
python3 - "$(locate newstest2014-deen-src.en.sgm)" "$(locate newstest2014-deen-ref.de.sgm)" "$ready" <<'PYTHON'
import html
import re
import sys

english, german, out = sys.argv[1:]
for path, suffix in ((english, "en"), (german, "de")):
    with open(path, encoding="utf-8") as file:
        segments = re.findall(r"<seg[^>]*>(.*?)</seg>", file.read(), re.DOTALL)
    if len(segments) != 3003:
        sys.exit(f"{path} has {len(segments)} segments, 3003 were expected")
    with open(f"{out}/newstest2014.{suffix}", "w", encoding="utf-8") as file:
        file.writelines(f"{html.unescape(segment).strip()}\n" for segment in segments)
PYTHON

for part in train newstest2013 newstest2014; do
    en="$(wc -l < "$ready/$part.en")" de="$(wc -l < "$ready/$part.de")"
    [ "$en" -eq "$de" ] || { echo "$part: $en English lines but $de German lines" >&2; exit 1; }
done
mv "$ready"/*.en "$ready"/*.de "$out/"
echo "$out is ready; $downloads may be deleted"
