#!/usr/bin/env python3
"""Word vectors of gensim: files of both formats, neighbours, analogies, similarity of words.

Everything is made up from a fixed seed:

    python scripts/golden/word_vectors.py [--out FOLDER]
"""

import argparse
import json
import pathlib
import random

import gensim
import numpy
from gensim.models import KeyedVectors

SEED = 20240311
WORDS, DIMENSIONS = 60, 19
# What makes numbers long, short, tiny and exact.
SPECIAL = [0.0, -0.0, 1.0, -1e-4, 9.999999e-5, 1e-45, 3.4028235e38, 999999.5, 1e6, 1 / 3, 2**-24]


def words(rng):
    letters = "abcdefghijklmnopqrstuvwxyzäöüßéñøλжש中文,.'-"
    found = ["the", "The", "naïve", "日本語", "a_b", "…"]
    while len(found) < WORDS:
        word = "".join(rng.choice(letters) for _ in range(rng.randint(1, 9)))
        if word.upper() not in {other.upper() for other in found}:
            found.append(word)
    return found


def similarity_file(path, rng, vectors, delimiter, headings, extra):
    lines = ["# made up"] + ([delimiter.join(headings)] if headings else [])
    known = vectors.index_to_key
    for index in range(40):
        a, b = rng.sample(known, 2)
        if index % 9 == 0:
            b = f"unknown{index}"
        if index % 5 == 0:
            a = a.upper()
        # Few different values, so that some are equal.
        lines.append(delimiter.join([a, b] + extra + [f"{rng.randint(0, 12) / 4:.2f}"]))
    path.write_text("\n".join(lines) + "\n", encoding="utf8")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default="crates/embeddings/tests/golden")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    rng, draws = random.Random(SEED), numpy.random.default_rng(SEED)
    values = draws.normal(size=(WORDS, DIMENSIONS)).astype(numpy.float32)
    vectors = KeyedVectors(DIMENSIONS)
    vectors.add_vectors(words(rng), values)
    vectors.save_word2vec_format(out / "vectors.bin", binary=True)
    vectors.save_word2vec_format(out / "vectors.txt", binary=False)
    special = KeyedVectors(len(SPECIAL))
    special.add_vectors(["special", "reversed"], numpy.array([SPECIAL, SPECIAL[::-1]], numpy.float32))
    special.save_word2vec_format(out / "special.txt", binary=False)
    special.save_word2vec_format(out / "special.bin", binary=True)
    # As word2vec's own program writes them: a line end behind each vector.
    with open(out / "lines.bin", "wb") as file:
        file.write(f"{WORDS} {DIMENSIONS}\n".encode())
        for word in vectors.index_to_key:
            file.write(word.encode() + b" " + vectors[word].tobytes() + b"\n")
    assert numpy.array_equal(KeyedVectors.load_word2vec_format(out / "lines.bin", binary=True).vectors, values)
    similarity_file(out / "similarity.tsv", rng, vectors, "\t", None, [])
    similarity_file(
        out / "similarity_columns.tsv", rng, vectors, "\t", ["word1", "word2", "POS", "Score"], ["N"]
    )
    # gensim reads three columns.
    lines = (out / "similarity_columns.tsv").read_text(encoding="utf8").splitlines()
    three = out / "three.tsv"
    three.write_text("\n".join("\t".join(f for i, f in enumerate(line.split("\t")) if i != 2) for line in lines) + "\n", encoding="utf8")
    agreement = {}
    for name, file in [("similarity.tsv", out / "similarity.tsv"), ("similarity_columns.tsv", three)]:
        _, spearman, unknown = vectors.evaluate_word_pairs(file)
        agreement[name] = {"spearman": float(spearman[0]), "out_of_vocabulary": float(unknown)}
    three.unlink()
    known = vectors.index_to_key
    questions = [rng.sample(known, 2) for _ in range(5)] + [[word] for word in known[:5]]
    analogies = [rng.sample(known, 3) for _ in range(5)]
    result = {
        "script": "scripts/golden/word_vectors.py",
        "gensim": gensim.__version__,
        "numpy": numpy.__version__,
        "nearest": [[q, vectors.most_similar(positive=q, topn=5)] for q in questions],
        "analogy": [[q, vectors.most_similar(positive=[q[1], q[2]], negative=[q[0]], topn=5)] for q in analogies],
        "agreement": agreement,
    }
    (out / "gensim.json").write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n", encoding="utf8")


if __name__ == "__main__":
    main()
