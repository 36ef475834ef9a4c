#!/usr/bin/env bash
# Fills data/multi30k with English-German image captions: train, val, test_2016_flickr, test_2017_flickr.
# Source: https://github.com/multi30k/dataset (task 1, raw text).
# Licence: that of Flickr30k, from which the captions derive: non-commercial research and education.
set -euo pipefail

base=https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw
out="$(cd "$(dirname "$0")/.." && pwd)/data/multi30k"
mkdir -p "$out"
work="$(mktemp -d -p "$out")"
trap 'rm -rf "$work"' EXIT

for part in train:29000 val:1014 test_2016_flickr:1000 test_2017_flickr:1000; do
    name="${part%%:*}" lines="${part##*:}"
    for language in en de; do
        file="$work/$name.$language"
        curl --fail --location --silent --show-error --retry 5 --retry-delay 2 \
            --output "$file.gz" "$base/$name.$language.gz"
        gzip --decompress "$file.gz"
        found="$(wc -l < "$file")"
        if [ "$found" -ne "$lines" ]; then
            echo "$name.$language has $found lines, $lines were expected; the download is incomplete" >&2
            exit 1
        fi
    done
done
mv "$work"/*.en "$work"/*.de "$out/"
echo "$out is ready"
