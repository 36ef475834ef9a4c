#!/usr/bin/env bash
# Fills data/multi30k with English-German image captions: train, val, test_2016_flickr, test_2017_flickr; and data/multi30k-lc-tok with the
# same in lower case, with normalised punctuation, and tokenised by the scripts of Moses, quotes and ampersands as entities.
# Source: https://github.com/multi30k/dataset (task 1, raw and tokenised text), from the commits that brought the text that the recipes were
# measured with: later some English training sentences were corrected.
# Licence: that of Flickr30k, from which the captions derive: non-commercial research and education.
set -euo pipefail

source=https://raw.githubusercontent.com/multi30k/dataset
data="$(cd "$(dirname "$0")/../.." && pwd)/data"

# fill FOLDER URL FORMAT: FORMAT makes the name of a file there from split and language.
fill() {
    local out="$data/$1" url=$2 format=$3 work part name lines language file found
    mkdir -p "$out"
    work="$(mktemp -d -p "$out")"
    # shellcheck disable=SC2064  # the folder of now
    trap "rm -rf '$work'" EXIT
    for part in train:29000 val:1014 test_2016_flickr:1000 test_2017_flickr:1000; do
        name="${part%%:*}" lines="${part##*:}"
        for language in en de; do
            # shellcheck disable=SC2059
            file="$work/$(printf "$format" "$name" "$language")"
            curl --fail --location --silent --show-error --retry 5 --retry-delay 2 --output "$file" "$url/${file##*/}"
            case "$file" in *.gz) gzip --decompress "$file" && file="${file%.gz}" ;; esac
            found="$(wc -l < "$file")"
            if [ "$found" -ne "$lines" ]; then
                echo "$name.$language has $found lines, $lines were expected; the download is incomplete" >&2
                exit 1
            fi
            [ "$file" = "$work/$name.$language" ] || mv "$file" "$work/$name.$language"
        done
    done
    mv "$work"/*.en "$work"/*.de "$out/"
    rmdir "$work"
    echo "$out is ready"
}

fill multi30k "$source/c9be912dc05a3ebf9ae5bb5f7f58c1791cda43ab/data/task1/raw" "%s.%s.gz"
fill multi30k-lc-tok "$source/7bee46bc74186b4b6254603143610f730d40bf66/data/task1/tok" "%s.lc.norm.tok.%s"
