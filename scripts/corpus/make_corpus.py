#!/usr/bin/env python3
"""Writes the everyday English-Chinese corpus, or checks that the committed files are current.

    scripts/corpus/make_corpus.py             write data/everyday-en-zh
    scripts/corpus/make_corpus.py --check     regenerate in memory and compare with the files; exit 1 if they differ
    scripts/corpus/make_corpus.py --show 60   print random pairs, to be read by a person

Sentences are drawn from the grammar in scripts/corpus/everyday. Some combinations of words (an action with
an object, an adjective or a number with a noun) are withheld: every sentence that holds one goes to
the held-out sets. The split is by Chinese sentence, so two English sentences with one translation
never fall on both sides.
"""

import argparse
import hashlib
import random
import re
import sys
from collections import Counter
from pathlib import Path

from everyday import modes, people, tenses, things
from everyday.words import Source

FOLDER = Path(__file__).resolve().parents[2] / "data" / "everyday-en-zh"
SEED = 20240601
TRAIN, HELD_OUT = 16_000, 500
# Of each held-out set, the lines that hold a withheld combination; they come first in the file.
NOVEL = 200
# Percent of the combinations that are withheld.
WITHHELD_PERCENT = 5
# A held-out word must occur in at least this many training sentences.
MINIMUM_COUNT = 10
SHORTEST, LONGEST = 3, 16
# Sentences that the training set always has.
FIXED = ("I love you.",)
# Little more than the split needs: more draws would only thin out the small patterns (dates, weather).
DRAWS = 18_400


class CorpusError(Exception):
    """A promise of the corpus does not hold; the message says which and where."""


def withheld(combination):
    """Chooses withheld combinations by hash, so adding a word moves none of the others."""
    digest = hashlib.sha256("|".join((str(SEED), *combination)).encode()).digest()
    return int.from_bytes(digest[:4], "big") % 100 < WITHHELD_PERCENT


def is_novel(sentence):
    """True when the sentence holds a withheld combination."""
    return any(withheld(combination) for combination in sentence.combinations)


def words(english):
    """The words of an English sentence, lower-cased."""
    return re.findall(r"[a-z0-9']+", english.lower())


def draw(source):
    """Draws distinct sentences; two translations of one English sentence are an error."""
    table = [
        (pattern, weight) for module in (tenses, modes, people, things) for pattern, weight in module.PATTERNS.items()
    ]
    urn = [pattern for pattern, weight in table for _ in range(weight)]
    found = {}
    for _ in range(DRAWS):
        pattern = source.pick(urn)
        sentence = pattern(source)
        if not SHORTEST <= len(sentence.english.split()) <= LONGEST:
            continue
        earlier = found.setdefault(sentence.english, sentence)
        if earlier.chinese != sentence.chinese:
            raise CorpusError(
                f"{pattern.__name__}: {sentence.english!r} has two translations: "
                f"{earlier.chinese} and {sentence.chinese}"
            )
    return list(found.values())


def tokens(sentence):
    """The English words and Chinese characters of a pair."""
    return set(words(sentence.english)) | set(sentence.chinese)


def frequent_tokens(sentences, minimum):
    """Words and characters that occur in at least `minimum` of the sentences."""
    counts = Counter(token for sentence in sentences for token in tokens(sentence))
    return {token for token, count in counts.items() if count >= minimum}


def split(sentences, source):
    """Deals the sentences into train, val and test, whole groups of equal Chinese at a time."""
    groups = {}
    for sentence in sentences:
        groups.setdefault(sentence.chinese, []).append(sentence)
    pinned = [group for group in groups.values() if any(item.english in FIXED for item in group)]
    rest = source.shuffled(group for group in groups.values() if not any(item.english in FIXED for item in group))
    novel = [group[0] for group in rest if any(map(is_novel, group))]
    known = [group for group in rest if not any(map(is_novel, group))]
    # Words are counted once before the split; the margin covers the few sentences that leave training.
    common = frequent_tokens([item for group in known for item in group], MINIMUM_COUNT + 5)
    novel = [item for item in novel if tokens(item) <= common]
    plain, held, kept = HELD_OUT - NOVEL, [], []
    for group in known:
        if len(held) < 2 * plain and tokens(group[0]) <= common:
            held.append(group[0])
        else:
            kept.append(group)
    train = [item for group in pinned + kept for item in group][:TRAIN]
    return {
        "train": source.shuffled(train),
        "val": novel[:NOVEL] + held[:plain],
        "test": novel[NOVEL : 2 * NOVEL] + held[plain:],
    }


def require(condition, message):
    """Raises a CorpusError unless the condition holds."""
    if not condition:
        raise CorpusError(message)


def verify(parts):
    """Checks every promise that data/README.md makes."""
    for part, size in (("train", TRAIN), ("val", HELD_OUT), ("test", HELD_OUT)):
        require(
            len(parts[part]) == size,
            f"{part} has {len(parts[part])} pairs instead of {size}; raise DRAWS or add words",
        )
    everything = [sentence for sentences in parts.values() for sentence in sentences]
    for sentence in everything:
        require(SHORTEST <= len(sentence.english.split()) <= LONGEST, f"bad length: {sentence.english!r}")
        require(
            "  " not in sentence.english and "_" not in sentence.english + sentence.chinese,
            f"stray characters: {sentence}",
        )
        require(not re.search(r"[A-Za-z |\s]", sentence.chinese), f"not Chinese: {sentence.chinese!r}")
    english = [sentence.english for sentence in everything]
    require(len(set(english)) == len(english), "an English sentence occurs twice")
    for one, other in (("train", "val"), ("train", "test"), ("val", "test")):
        shared = {item.chinese for item in parts[one]} & {item.chinese for item in parts[other]}
        require(not shared, f"{one} and {other} share {sorted(shared)[:3]}")
    verify_coverage(parts)


def verify_coverage(parts):
    """Held-out words are frequent in training; withheld combinations are absent from it."""
    common = frequent_tokens(parts["train"], MINIMUM_COUNT)
    combinations = {combination for item in parts["train"] for combination in item.combinations}
    require(not any(map(withheld, combinations)), "a withheld combination is in training")
    for part in ("val", "test"):
        novel = sum(map(is_novel, parts[part]))
        require(4 * novel >= len(parts[part]), f"only {novel} novel sentences in {part}")
        require(all(map(is_novel, parts[part][:NOVEL])), f"the first {NOVEL} lines of {part} are not all novel")
        for item in parts[part]:
            rare = tokens(item) - common
            require(
                not rare, f"{sorted(rare)} in {item.english!r} occur fewer than {MINIMUM_COUNT} times in training"
            )


def render(parts):
    """The files by name, as bytes."""
    return {
        f"{part}.{suffix}": "".join(f"{getattr(item, side)}\n" for item in sentences).encode()
        for part, sentences in parts.items()
        for suffix, side in (("en", "english"), ("zh", "chinese"))
    }


def check(files):
    """Compares the files on disk with the generated ones; returns the names that differ."""

    def digest(data):
        return hashlib.sha256(data).hexdigest()

    return [
        name
        for name, data in files.items()
        if not (FOLDER / name).is_file() or digest((FOLDER / name).read_bytes()) != digest(data)
    ]


def report(parts, files):
    """One line for each count that the README quotes."""
    vocabulary = {word for item in parts["train"] for word in words(item.english)}
    characters = {character for item in parts["train"] for character in item.chinese}
    for part, sentences in parts.items():
        print(f"{part}: {len(sentences)} pairs, {sum(map(is_novel, sentences))} with a withheld combination")
    print(
        f"{len(vocabulary)} English words, {len(characters)} Chinese characters, "
        f"{sum(map(len, files.values()))} bytes"
    )


def main():
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the committed files, write nothing")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="print N random pairs, write nothing")
    options = parser.parse_args()
    source = Source(random.Random(SEED))
    parts = split(draw(source), source)
    verify(parts)
    files = render(parts)
    if options.show:
        for item in Source(random.Random()).shuffled(parts["train"] + parts["test"])[: options.show]:
            print(f"{item.english}\t{item.chinese}")
        return 0
    if options.check:
        different = check(files)
        for name in different:
            print(f"{FOLDER / name} is not what this script generates; run scripts/corpus/make_corpus.py", file=sys.stderr)
        return 1 if different else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (FOLDER / name).write_bytes(data)
    report(parts, files)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CorpusError as error:
        sys.exit(f"make_corpus.py: {error}")
