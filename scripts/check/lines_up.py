#!/usr/bin/env python3
"""Checks that attention lines words up.

    taper attention RUN TEXT --json | scripts/check/lines_up.py PART TARGET=SOURCE…

PART is cross, encoder or decoder. Of its layer where alignments are read, the last but one, the
mean of all heads is taken, and weights are summed over the pieces of each word: a word begins with
`▁`. Each TARGET, letters of one token, must have the most weight on the word SOURCE.
"""

import json
import sys


def main():
    part, *pairs = sys.argv[1:]
    layers = [layer for layer in json.load(sys.stdin)["layers"] if layer["part"] == part]
    layer = layers[max(len(layers) - 2, 0)]
    words, place = [], []
    for token in layer["keys"]:
        if token.startswith("▁") or token.startswith("<") or not words:
            words.append("")
        words[-1] += token.removeprefix("▁")
        place.append(len(words) - 1)
    words = [word.rstrip(".") for word in words]
    wrong = False
    for target, source in (pair.split("=") for pair in pairs):
        row = [token.removeprefix("▁") for token in layer["queries"]].index(target)
        sums = [0.0] * len(words)
        for head in layer["heads"]:
            for key, weight in enumerate(head[row]):
                sums[place[key]] += weight / len(layer["heads"])
        best = max(range(len(words)), key=sums.__getitem__)
        print(f"{target} looks at {words[best]} ({sums[best]:.2f})")
        wrong |= words[best] != source
    return "attention does not line words up" if wrong else 0


sys.exit(main())
