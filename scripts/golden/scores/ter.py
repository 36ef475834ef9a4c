#!/usr/bin/env python3
"""Scores made-up corpora with sacreBLEU's TER, for the tests of taper-metrics to compare with.

The corpora are those of metrics.py, and others at the limits of Tercom's search: its beam,
the size, distance and number of shifts. The output depends only on the versions that it records:

    python scripts/golden/scores/ter.py crates/metrics/tests/golden/ter.json.gz
"""

import random
import sys

from sacrebleu.metrics import TER

from metrics import ENGLISH, SEED, expected, perturb, random_corpora, special_corpora, write


def words(rng, count, kinds):
    """A line of words drawn from few or many kinds."""
    return " ".join(rng.choice(ENGLISH[:kinds]) for _ in range(count))


def moved(rng, line, blocks, size):
    """The line with some blocks of words moved elsewhere."""
    units = line.split()
    for _ in range(blocks):
        start = rng.randrange(max(1, len(units) - size))
        block = units[start : start + size]
        del units[start : start + size]
        place = rng.randrange(len(units) + 1)
        units[place:place] = block
    return " ".join(units)


def rotations(rng):
    """Lines that differ from their reference by moves alone."""
    for size in (1, 2, 5, 9, 10, 11, 15):
        for length in (4, 12, 30, 60):
            line = words(rng, length, 60)
            yield f"moved blocks of {size} in {length}", [moved(rng, line, rng.randint(1, 4), size)], [[line]]
    for length in (40, 49, 50, 51, 52, 80, 130):
        line = words(rng, length, 60)
        first, *rest = line.split()
        yield f"first word last in {length}", [" ".join([*rest, first])], [[line]]
        yield f"last word first in {length}", [line], [[" ".join([*rest, first])]]
        half = length // 2
        swapped = " ".join(line.split()[half:] + line.split()[:half])
        yield f"halves swapped in {length}", [swapped], [[line]]


def lengths(rng):
    """Pairs of very different lengths, which widen the beam or leave it at the diagonal."""
    for hypothesis, reference in (
        (1, 40), (40, 1), (1, 200), (2, 150), (3, 160), (7, 400), (200, 1), (150, 3), (90, 61),
        (61, 90), (120, 119), (25, 77), (26, 52), (300, 280), (0, 60), (60, 0),
    ):  # fmt: skip
        for kinds in (3, 60):
            line = words(rng, reference, kinds)
            cut = perturb(rng, words(rng, hypothesis, kinds), 0.2) if hypothesis else ""
            yield f"{hypothesis} words against {reference} of {kinds} kinds", [cut], [[line]]


def repetitions(rng):
    """Few kinds of words, so that many shifts are possible and the search gives up."""
    for kinds in (1, 2, 3, 5, 8):
        for length in (5, 10, 20, 40, 70, 110):
            line = words(rng, length, kinds)
            yield f"{length} words of {kinds} kinds", [moved(rng, perturb(rng, line, 0.3), 3, 4)], [[line]]
    for length in (12, 30, 45):
        line = words(rng, length, 4)
        references = [[moved(rng, line, 2, 3)], [perturb(rng, line, 0.4)], [words(rng, length, 4)]]
        yield f"{length} words against three references", [line], references


def options(rng, index):
    """Options of TER for a case; all combinations come round."""
    flags = index % 16 if rng.random() < 0.7 else 0
    names = ["normalized", "no_punct", "asian_support", "case_sensitive"]
    return {name: bool(flags >> bit & 1) for bit, name in enumerate(names)}


def main():
    """Writes the golden file."""
    rng = random.Random(SEED + 1)
    everything = list(special_corpora()) + list(random_corpora(random.Random(SEED)))
    limits = [*rotations(rng), *lengths(rng), *repetitions(rng)]
    corpora = []
    for index, (name, hypotheses, references) in enumerate(everything + limits):
        cases = []
        for turn in range(4 if index < len(everything) else 1):
            case = options(rng, index + turn * 5)
            cases.append(expected(TER(**case), hypotheses, references, case))
        corpora.append({"name": name, "hypotheses": hypotheses, "references": references, "ter": cases})
    write(sys.argv[1], {"seed": SEED, "corpora": corpora})


if __name__ == "__main__":
    main()
