#!/usr/bin/env python3
"""Classifies texts by NB-SVM (Wang and Manning 2012), which a text encoder is to beat.

    python scripts/compare/nb_svm.py data/movie-reviews rt

Reads NAME.{train,val,test}.tsv.gz of the folder: a label, a tab and a text on each line. Uni- and
bigrams, present or not, are weighted by their log-count ratio r and given to a linear SVM, whose
weights are drawn a quarter of the way to their mean magnitude (section 2.3, beta 0.25). C is chosen
by the accuracy on NAME.val.

Needs Python 3, numpy, scipy and scikit-learn. Made with scikit-learn 1.9.1.
"""

import argparse
import gzip
from pathlib import Path

import numpy
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.svm import LinearSVC

BETA = 0.25


def read(path):
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        labels, texts = zip(*(line.rstrip("\n").split("\t", 1) for line in lines))
    return numpy.array([int(label) for label in labels]), texts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("name")
    arguments = parser.parse_args()
    sets = {split: read(arguments.folder / f"{arguments.name}.{split}.tsv.gz")
            for split in ("train", "val", "test")}
    counter = CountVectorizer(ngram_range=(1, 2), binary=True, token_pattern=r"\S+")
    features = {"train": counter.fit_transform(sets["train"][1])}
    features |= {split: counter.transform(sets[split][1]) for split in ("val", "test")}
    labels = sets["train"][0]
    ratio = 1 + numpy.asarray(
        [features["train"][labels == label].sum(0) for label in (0, 1)], dtype=float)[:, 0]
    ratio = numpy.log((ratio[1] / ratio[1].sum()) / (ratio[0] / ratio[0].sum()))
    best = None
    for penalty in (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0):
        machine = LinearSVC(C=penalty, random_state=0, max_iter=20000)
        machine.fit(features["train"].multiply(ratio).tocsr(), labels)
        weights = machine.coef_[0]
        weights = (1 - BETA) * numpy.abs(weights).mean() + BETA * weights

        def accuracy(split):
            scores = features[split].multiply(ratio) @ weights + machine.intercept_[0]
            return float(((scores > 0) == sets[split][0]).mean())

        found = (accuracy("val"), accuracy("test"), penalty)
        best = max(best or found, found)
    print(f"{arguments.name}: val {best[0]:.1%}, test {best[1]:.1%}, C = {best[2]}")


main()
