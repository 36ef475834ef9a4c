#!/usr/bin/env python3
"""Compares two outputs of `taper translate --n-best`: the same texts, and scores within 0.002.

    scripts/check/same_translations.py EXPECTED FOUND

Different processors compute different last bits of a sum. Needs Python 3.9.
"""

import sys
from pathlib import Path


def translations(path):
    """Each line as (number, text) and score."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    columns = [line.split("\t") for line in lines]
    return [((number, text), float(score)) for number, score, text in columns]


def main():
    expected, found = map(translations, sys.argv[1:])
    if [text for text, _ in expected] != [text for text, _ in found]:
        sys.exit(f"other texts: {found}")
    apart = max(abs(one - other) for (_, one), (_, other) in zip(expected, found))
    print(f"{len(found)} translations as expected; scores within {apart:.4f}")
    sys.exit(apart > 2e-3)


if __name__ == "__main__":
    main()
