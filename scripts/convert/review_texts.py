#!/usr/bin/env python3
"""Writes the texts of labelled reviews, without their labels, for a model that learns from text.

    python scripts/convert/review_texts.py data/movie-reviews

Reads imdb.{train,val}.tsv.gz and rt.train.tsv.gz of the folder (a label, a tab and a text on each
line) and writes texts/{train,val}.txt there, a review or a sentence a line. Marks of HTML go, and
punctuation stands by itself, as it does in the sentences of rt.*.tsv.gz, so that both are made of
the same tokens. The sentences that a classifier will be trained on are among the texts, as in
task-adaptive pretraining (Gururangan et al. 2020, "Don't Stop Pretraining"); those that it is
tested on are not.

Needs Python 3, and nothing else.
"""

import argparse
import gzip
import re
from pathlib import Path


def spaced(text):
    text = re.sub(r"<br\s*/?>", " ", text)
    return " ".join(re.sub(r'([.,!?;:()"*]|--+)', r" \1 ", text).split())


def texts(folder, name):
    with gzip.open(folder / f"{name}.tsv.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            yield line.rstrip("\n").split("\t", 1)[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    (folder / "texts").mkdir(exist_ok=True)
    for split in ("train", "val"):
        with open(folder / "texts" / f"{split}.txt", "w", encoding="utf-8") as out:
            out.writelines(spaced(text) + "\n" for text in texts(folder, f"imdb.{split}"))
            if split == "train":
                out.writelines(text + "\n" for text in texts(folder, "rt.train"))


main()
