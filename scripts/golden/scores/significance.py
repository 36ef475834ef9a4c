#!/usr/bin/env python3
"""Confidence intervals and paired tests of made-up systems by sacreBLEU, for the tests of
taper-metrics to compare with. The output depends only on the versions that it records:

    python scripts/golden/scores/significance.py crates/metrics/tests/golden/significance.json.gz
"""

import os
import random
import sys

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

from metrics import ENGLISH, GERMAN, SEED, perturb, western, write

METRICS = {
    "bleu": (BLEU, {}, {}),
    "bleu floor": (
        BLEU,
        {"tokenize": "none", "smooth_method": "floor", "smooth_value": 0.3, "lowercase": True},
        {"tokenizer": "none", "smoothing": {"floor": 0.3}, "lowercase": True},
    ),
    "bleu add-k": (
        BLEU,
        {"smooth_method": "add-k", "smooth_value": 1.0, "max_ngram_order": 3},
        {"smoothing": {"add-k": 1.0}, "max_order": 3},
    ),
    "bleu add-k 1.6": (
        BLEU,
        {"smooth_method": "add-k", "smooth_value": 1.6},
        {"smoothing": {"add-k": 1.6}},
    ),
    "chrf": (CHRF, {}, {}),
    "chrf++": (CHRF, {"word_order": 2, "beta": 3}, {"word_order": 2, "beta": 3}),
    "chrf eps": (CHRF, {"eps_smoothing": True}, {"eps_smoothing": True}),
    "ter": (TER, {}, {}),
    "ter normalized": (TER, {"normalized": True}, {"normalized": True}),
}


def sets(rng):
    """Systems and references: name, systems (the baseline first), references."""
    for size, count, strengths in (
        (1, 1, (0.3, 0.5)),
        (2, 1, (0.2, 0.2, 0.95)),
        (5, 2, (0.9, 0.95)),
        (40, 4, (0.2, 0.25, 0.2)),
        (150, 1, (0.3, 0.3, 0.32, 0.5)),
        (300, 3, (0.2, 0.21)),
        (700, 1, (0.15, 0.16)),
    ):
        originals = [western(rng, rng.choice([ENGLISH, GERMAN])) for _ in range(size)]
        references = [[perturb(rng, line, 0.2 if k else 0.0) for line in originals] for k in range(count)]
        systems = [[perturb(rng, line, strength) for line in originals] for strength in strengths]
        systems.append(systems[0])
        yield f"{size} lines, {count} references", systems, references
    yield "nothing in common", [["a b", "c d e"], ["x", "y z"]], [["p q r", "s t"]]
    yield "empty references", [["", ""], ["x", "y z"]], [["", ""]]


def interval(make, systems, references, resamples):
    """The confidence interval of the first system alone."""
    metric = make()
    try:
        score = metric.corpus_score(systems[0], references, n_bootstrap=resamples)
    except TypeError:
        # Python refuses the mean of numbers of two types.
        return None
    return {
        "resamples": resamples,
        "line": score.format(width=9, signature=metric.get_signature().format()),
        "mean": float(score._mean),
        "half_width": float(score._ci),
    }


def paired(make, systems, references, kind, trials):
    """The results of a paired test of all systems."""
    named = [(str(index), system) for index, system in enumerate(systems)]
    signatures, scores = PairedTest(named, {"m": make()}, references, test_type=kind, n_samples=trials)()
    (name,) = signatures
    results = [
        {
            "score": float(result.score),
            "p_value": result.p_value,
            "mean": None if result.mean is None else float(result.mean),
            "half_width": None if result.ci is None else float(result.ci),
        }
        for result in scores[name]
    ]
    return {"trials": trials, "results": results}


def main():
    """Writes the golden file."""
    rng = random.Random(SEED + 2)
    cases = []
    for name, systems, references in sets(rng):
        size = len(systems[0])
        for index, (label, (metric, arguments, options)) in enumerate(METRICS.items()):
            seed = 12345 if index % 3 else 7 + index
            os.environ["SACREBLEU_SEED"] = str(seed)
            resamples = 1000 if size < 200 or index in (0, 5, 7) else 137

            def make(metric=metric, arguments=arguments):
                return metric(**arguments)

            cases.append(
                {
                    "set": name,
                    "metric": label,
                    "options": options,
                    "seed": seed,
                    "single": interval(make, systems, references, resamples),
                    "bootstrap": paired(make, systems, references, "bs", resamples),
                    "randomization": paired(make, systems, references, "ar", 500 if size < 200 else 150),
                }
            )
    texts = {name: {"systems": systems, "references": references} for name, systems, references in sets(random.Random(SEED + 2))}
    write(sys.argv[1], {"sets": texts, "cases": cases})


if __name__ == "__main__":
    main()
