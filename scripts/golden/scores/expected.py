#!/usr/bin/env python3
"""Expected scores of made-up translations with sacreBLEU, for the tests of taper-metrics to compare with.

The mean of sentence scores with each text that stands in for a reference, and chrF with the mean of
their n-gram counts. The output depends only on the versions that it records:

    python scripts/golden/scores/expected.py crates/metrics/tests/golden/expected.json.gz
"""

import random
import sys
from collections import Counter

from sacrebleu.metrics import BLEU, CHRF

from metrics import CHINESE, ENGLISH, SEED, perturb, write


def lines(rng):
    """Lists of alternatives as samples of a model are: near each other, some equal, some empty."""
    for index in range(30):
        words = [rng.choice(ENGLISH) for _ in range(rng.randint(1, 25))]
        line = " ".join(words) if index % 3 else "".join(rng.choice(CHINESE) for _ in words)
        alternatives = [line, *(perturb(rng, line, rng.choice((0.1, 0.3, 0.9))) for _ in range(rng.randint(1, 7)))]
        if index % 5 == 0:
            alternatives.append("")
        if index % 7 == 0:
            alternatives.append("a")
        yield alternatives


def exact(metric, hypotheses, references):
    total = sum(weight for _, weight in references)
    return [
        sum(weight * metric.sentence_score(hypothesis, [text]).score for text, weight in references) / total
        for hypothesis in hypotheses
    ]


def aggregated(metric, hypotheses, references):
    """chrF with the mean counts, by the functions of sacreBLEU that count and score."""
    total = sum(weight for _, weight in references)
    means = [Counter() for _ in range(metric.order)]
    for text, weight in references:
        for mean, counts in zip(means, metric._extract_reference_info([text])["ref_ngrams"][0], strict=True):
            for ngram, count in counts.items():
                mean[ngram] += count * weight / total
    scores = []
    for hypothesis in hypotheses:
        of_hypothesis = metric._extract_reference_info([hypothesis])["ref_ngrams"][0]
        statistics = []
        for counts, mean in zip(of_hypothesis, means, strict=True):
            statistics += metric._get_match_statistics(counts, mean)
        scores.append(metric._compute_f_score(statistics))
    return scores


def main():
    rng = random.Random(SEED)
    cases = []
    for alternatives in lines(rng):
        references = [(text, rng.choice((1, 1, 2, 5))) for text in alternatives]
        weights = [weight for _, weight in references]
        case = {"hypotheses": alternatives, "weights": weights, "chrf": []}
        for options in ({}, {"word_order": 2}, {"char_order": 3, "whitespace": True}, {"eps_smoothing": True}):
            metric = CHRF(**options)
            case["chrf"].append({
                "options": options,
                "exact": exact(metric, alternatives, references),
                "aggregated": aggregated(metric, alternatives, references),
            })  # fmt: skip
        metric = BLEU(effective_order=True)
        case["bleu"] = exact(metric, alternatives, references)
        cases.append(case)
    write(sys.argv[1], {"seed": SEED, "cases": cases})


if __name__ == "__main__":
    main()
