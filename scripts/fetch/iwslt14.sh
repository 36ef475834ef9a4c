#!/usr/bin/env bash
# Fills data/iwslt14-de-en with German-English talks: train, val, test, cleaned and split as is usual:
# every 23rd training pair goes to val; test joins dev2010, dev2012, tst2010, tst2011 and tst2012.
# Source: IWSLT 2014 evaluation (WIT3, https://wit3.fbk.eu), from the copy that fairseq keeps.
# Licence: TED talks, Creative Commons Attribution-NonCommercial-NoDerivatives.
# The text is neither tokenised nor lower-cased here: the tokenizer is trained on it as it is.
set -euo pipefail

url=https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz
out="$(cd "$(dirname "$0")/../.." && pwd)/data/iwslt14-de-en"
mkdir -p "$out"
work="$(mktemp -d -p "$out")"
trap 'rm -rf "$work"' EXIT

for tool in curl tar python3; do
    command -v "$tool" > /dev/null || { echo "$tool is needed" >&2; exit 1; }
done
curl --fail --location --silent --show-error --retry 5 --retry-delay 2 --output "$work/de-en.tgz" "$url"
tar --extract --gzip --file "$work/de-en.tgz" --directory "$work"

python3 - "$work/de-en" "$work" <<'PYTHON'
import html
import re
import sys
from pathlib import Path

folder, out = map(Path, sys.argv[1:])


def training(language):
    """Text lines, titles and descriptions included; other metadata (<url>, <speaker>...) is dropped."""
    lines = (folder / f"train.tags.de-en.{language}").read_text(encoding="utf-8").split("\n")[:-1]
    return [re.sub(r"</?(title|description)>", "", line).strip() for line in lines
            if not re.match(r"\s*<(url|talkid|keywords|speaker|reviewer|translator|/?doc|/?reviewer|/?translator)", line)]


def segments(stem, language):
    """The <seg> elements of an XML file, in order."""
    text = (folder / f"IWSLT14.{stem}.de-en.{language}.xml").read_text(encoding="utf-8")
    return [html.unescape(segment).strip() for segment in re.findall(r"<seg[^>]*>(.*?)</seg>", text, re.DOTALL)]


def acceptable(german, english):
    """Both sides of 1..175 words and neither more than 1.5 times the other."""
    one, other = len(german.split()), len(english.split())
    return 1 <= one <= 175 and 1 <= other <= 175 and max(one, other) <= 1.5 * min(one, other)


german, english = training("de"), training("en")
if len(german) != len(english):
    sys.exit(f"the training files disagree: {len(german)} German lines, {len(english)} English lines")
pairs = [pair for pair in zip(german, english) if acceptable(*pair)]
parts = {"train": [pair for i, pair in enumerate(pairs) if i % 23], "val": pairs[::23], "test": []}
for stem in ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"):
    sides = segments(stem, "de"), segments(stem, "en")
    if not sides[0] or len(sides[0]) != len(sides[1]):
        sys.exit(f"{stem}: {len(sides[0])} German and {len(sides[1])} English segments")
    parts["test"] += zip(*sides)
if len(parts["train"]) < 140000 or len(parts["test"]) < 6000:
    sys.exit(f"too few pairs: {len(parts['train'])} train, {len(parts['test'])} test; the download is incomplete")
for name, items in parts.items():
    for column, suffix in enumerate(("de", "en")):
        with open(out / f"{name}.{suffix}", "w", encoding="utf-8") as file:
            file.writelines(f"{item[column]}\n" for item in items)
PYTHON
mv "$work"/{train,val,test}.{de,en} "$out/"
echo "$out is ready"
