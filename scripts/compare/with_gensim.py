#!/usr/bin/env python3
"""Trains the same word vectors with Taper and with gensim, in turn, and compares them.

Time is that of the whole: counting words, training, and for Taper writing the vectors. gensim reads
the file itself (`corpus_file`), which is its fastest way. Agreement with judgements is reckoned by
gensim for both, on the two sets that its own tests come with.

    python scripts/compare/with_gensim.py TEXT [--taper target/release/taper] [--threads 2] [--rounds 3]
"""

import argparse
import os
import pathlib
import subprocess
import tempfile
import time

import gensim
from gensim.models import KeyedVectors, Word2Vec

SETS = pathlib.Path(gensim.__file__).parent / "test" / "test_data"


def agreement(vectors):
    files = [SETS / "wordsim353.tsv", SETS / "simlex999.txt"]
    return [vectors.evaluate_word_pairs(file)[1][0] for file in files]


def with_gensim(arguments, skip_gram, seed):
    began = time.perf_counter()
    model = Word2Vec(
        corpus_file=arguments.text, sg=int(skip_gram), seed=seed, workers=arguments.threads, epochs=arguments.epochs
    )
    return time.perf_counter() - began, agreement(model.wv)


def with_taper(arguments, skip_gram, seed):
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "words")
        command = [arguments.taper, "--threads", str(arguments.threads), "embeddings", "train"]
        command += [arguments.text, "--output", output, "--seed", str(seed), "--epochs", str(arguments.epochs)]
        command += ["--architecture", "skip-gram" if skip_gram else "cbow"]
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - began
        return seconds, agreement(KeyedVectors.load_word2vec_format(os.path.join(output, "vectors.bin"), binary=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--taper", default="target/release/taper")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    for skip_gram in [True, False]:
        for seed in range(1, arguments.rounds + 1):
            for name, train in [("taper", with_taper), ("gensim", with_gensim)]:
                seconds, (wordsim, simlex) = train(arguments, skip_gram, seed)
                kind = "skip-gram" if skip_gram else "cbow"
                print(f"{kind:9} seed {seed} {name:6} {seconds:7.2f} s  WordSim-353 {wordsim:.4f}  SimLex-999 {simlex:.4f}", flush=True)


if __name__ == "__main__":
    main()
