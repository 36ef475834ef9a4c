#!/usr/bin/env python3
"""Writes the texts of labelled reviews, without their labels, for a model that learns from text.

    python scripts/convert/review_texts.py data/movie-reviews

Reads imdb.{train,val}.tsv.gz of the folder (a label, a tab and a text on each line) and writes
texts/{train,val}.txt there, a review a line. Marks of HTML go, and punctuation stands by itself, as
it does in the sentences of rt.*.tsv.gz, so that both are made of the same tokens.

Needs Python 3, and nothing else.
"""

import argparse
import gzip
import re
from pathlib import Path


def spaced(text):
    text = re.sub(r"<br\s*/?>", " ", text)
    return " ".join(re.sub(r'([.,!?;:()"*]|--+)', r" \1 ", text).split())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    (folder / "texts").mkdir(exist_ok=True)
    for split in ("train", "val"):
        source, target = folder / f"imdb.{split}.tsv.gz", folder / "texts" / f"{split}.txt"
        with gzip.open(source, "rt", encoding="utf-8") as lines, open(target, "w") as out:
            for line in lines:
                out.write(spaced(line.rstrip("\n").split("\t", 1)[1]) + "\n")


main()
