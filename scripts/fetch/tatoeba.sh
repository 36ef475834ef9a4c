#!/usr/bin/env bash
# Fills data/tatoeba-en-zh with English-Chinese sentence pairs: train, val (1,000 pairs), test (1,000 pairs).
# Source: https://www.manythings.org/anki (sentence pairs selected from https://tatoeba.org), cmn-eng.zip.
# Simplified and traditional characters both occur, as their authors wrote them.
# Licence: Creative Commons Attribution 2.0 France; the authors of each pair are kept in *.attribution.
set -euo pipefail

url=https://www.manythings.org/anki/cmn-eng.zip
out="$(cd "$(dirname "$0")/../.." && pwd)/data/tatoeba-en-zh"
mkdir -p "$out"
work="$(mktemp -d -p "$out")"
trap 'rm -rf "$work"' EXIT

for tool in curl unzip python3; do
    command -v "$tool" > /dev/null || { echo "$tool is needed" >&2; exit 1; }
done
# The site refuses curl's own user agent.
curl --fail --location --silent --show-error --retry 5 --retry-delay 2 \
    --user-agent "Mozilla/5.0" --output "$work/pairs.zip" "$url"
unzip -q "$work/pairs.zip" -d "$work"
[ -s "$work/cmn.txt" ] || { echo "the archive holds no cmn.txt" >&2; exit 1; }

# Pairs that share a sentence, on either side, stay together, so that no test sentence is trained on.
# A hash orders them: the split does not depend on the order of the download.
python3 - "$work/cmn.txt" "$work" <<'PYTHON'
import hashlib
import sys

source, out = sys.argv[1:]
parent = {}


def root(node):
    while parent.setdefault(node, node) != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


pairs = []
with open(source, encoding="utf-8") as lines:
    for number, line in enumerate(lines, 1):
        columns = line.rstrip("\n").split("\t")
        if len(columns) < 2:
            sys.exit(f"cmn.txt:{number}: expected English, a tab and Chinese")
        english, chinese = columns[0].strip(), columns[1].strip()
        pairs.append((english, chinese, columns[2] if len(columns) > 2 else ""))
        parent[root(("en", english))] = root(("zh", chinese))
if len(pairs) < 20000:
    sys.exit(f"cmn.txt has only {len(pairs)} pairs; the download is incomplete")
groups = {}
for pair in dict.fromkeys(pairs):
    groups.setdefault(root(("en", pair[0])), []).append(pair)
ordered = sorted(groups.values(), key=lambda group: hashlib.sha256(min(group)[0].encode()).digest())
parts = {"test": [], "val": [], "train": []}
for group in ordered:
    small = len(group) == 1
    name = next((part for part in ("test", "val") if small and len(parts[part]) < 1000), "train")
    parts[name].extend(group)
for name, items in parts.items():
    for column, suffix in enumerate(("en", "zh", "attribution")):
        with open(f"{out}/{name}.{suffix}", "w", encoding="utf-8") as file:
            file.writelines(f"{item[column]}\n" for item in items)
PYTHON
mv "$work"/{train,val,test}.{en,zh,attribution} "$out/"
echo "$out is ready"
