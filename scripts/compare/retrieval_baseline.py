#!/usr/bin/env python3
"""Translate by lookup: what a score is worth that a model gets on small data.

For each source line, the target of the nearest training source: cosine of TF-IDF vectors over words and word pairs.
A model that has learned to translate must be well above it. `--copy` prints the source itself, the other floor.

    python3 scripts/compare/retrieval_baseline.py data/tatoeba-en-zh/train.en data/tatoeba-en-zh/train.zh < test.en > hypothesis.zh
    taper bleu hypothesis.zh test.zh --tokenize zh
"""
import argparse
import gzip
import math
import re
import sys
from collections import Counter, defaultdict


def read(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8", newline="\n") as lines:
        return [line.rstrip("\r\n") for line in lines]


def features(line):
    words = re.findall(r"\w+|[^\w\s]", line.lower())
    return Counter(words + [f"{a} {b}" for a, b in zip(words, words[1:])])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", help="training source, one sentence a line")
    parser.add_argument("target", help="its translations")
    parser.add_argument("--copy", action="store_true", help="print the input instead")
    arguments = parser.parse_args()

    source, target = read(arguments.source), read(arguments.target)
    if len(source) != len(target):
        sys.exit(f"{arguments.source} has {len(source)} lines, {arguments.target} has {len(target)}")
    frequency = Counter(feature for line in source for feature in features(line))
    weight = {feature: math.log(len(source) / count) + 1 for feature, count in frequency.items()}
    index, norms = defaultdict(list), []
    for number, line in enumerate(source):
        vector = {feature: count * weight[feature] for feature, count in features(line).items()}
        norms.append(math.sqrt(sum(value * value for value in vector.values())) or 1.0)
        for feature, value in vector.items():
            index[feature].append((number, value))

    for line in sys.stdin:
        line = line.rstrip("\r\n")
        if arguments.copy:
            print(line)
            continue
        scores = defaultdict(float)
        for feature, count in features(line).items():
            for number, value in index.get(feature, ()):
                scores[number] += count * weight[feature] * value / norms[number]
        # The first of equals, so that the result is one.
        best = max(scores, key=lambda number: (scores[number], -number), default=None)
        print(target[best] if best is not None else "")


if __name__ == "__main__":
    main()
