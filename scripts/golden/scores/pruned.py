#!/usr/bin/env python3
"""Choices by the library mbrs with confidence-based pruning, for the tests of taper-metrics to compare with.

The random numbers are given: `below` replaces torch.randint in mbrs. Its chrF is that of sacreBLEU.
mbrs needs large packages for neural metrics, which are not loaded here:

    pip install torch==2.15.0 sacrebleu==2.6.0 tabulate simple-parsing fastchrf tqdm
    pip install --no-deps mbrs==0.1.8
    python scripts/golden/scores/pruned.py crates/metrics/tests/golden/pruned.json.gz
"""

import random
import sys
from importlib.metadata import version
from types import SimpleNamespace

import torch

from metrics import CHINESE, ENGLISH, SEED, perturb, write


NEURAL = {"bertscore": "BERTScore", "bleurt": "BLEURT", "comet": "COMET", "cometkiwi": "COMETkiwi",
          "metricx": "MetricX", "xcomet": "XCOMET"}  # fmt: skip
for module, metric in NEURAL.items():
    sys.modules[f"mbrs.metrics.{module}"] = SimpleNamespace(**{f"Metric{metric}": object})
from mbrs.decoders.pruning_mbr import DecoderPruningMBR  # noqa: E402
from mbrs.metrics.chrf import MetricChrF  # noqa: E402

RESAMPLES = 97
FIRST = 4
MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def below(key, index, bound):
    """A random number below `bound`: element `index` of SplitMix64 with `key`, scaled."""
    z = (key + index * GOLDEN) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return ((z ^ (z >> 31)) * bound) >> 64


class Recorder(MetricChrF):
    """chrF that records what is compared."""

    def pairwise_scores(self, hypotheses, references, *rest, **more):
        self.calls.append((list(hypotheses), list(references)))
        return super().pairwise_scores(hypotheses, references, *rest, **more)


def chosen(key, hypotheses, samples, confidence):
    """Hypotheses that mbrs compares with all samples, their scores, and its choice."""
    place = 0

    def randint(high, size, **_):
        nonlocal place
        count = size[0] * size[1]
        numbers = [below(key, place + index, high) for index in range(count)]
        place += count
        return torch.tensor(numbers).reshape(size)

    metric = Recorder(Recorder.Config(num_workers=1))
    metric.calls = []
    scheduler = [FIRST * 2**step for step in range(8)]
    config = DecoderPruningMBR.Config(
        alpha=confidence, sampling_scheduler=scheduler, num_bootstrap_samples=RESAMPLES
    )
    original, torch.randint = torch.randint, randint
    try:
        scores, indices = DecoderPruningMBR(config, metric).decode_pruning(hypotheses, samples)
    finally:
        torch.randint = original
    seen, comparisons = set(), 0
    for compared, references in metric.calls:
        comparisons += len(compared) * len(set(references) - seen)
        seen |= set(references)
    return {
        "confidence": confidence,
        "left": [hypotheses.index(text) for text in metric.calls[-1][0]],
        "comparisons": comparisons,
        "choice": indices[0],
        "score": scores[0],
    }


def main():
    torch.set_default_dtype(torch.float64)
    rng = random.Random(SEED)
    cases = []
    for key in range(12):
        words = [rng.choice(ENGLISH) for _ in range(rng.randint(3, 20))]
        line = " ".join(words) if key % 3 else "".join(rng.choice(CHINESE) for _ in words)
        texts = [perturb(rng, line, rng.choice((0.1, 0.3, 0.5, 0.9))) for _ in range(rng.randint(10, 30))]
        samples = [rng.choice(texts) for _ in range(rng.choice((6, 20, 32, 40)))]
        hypotheses = list(dict.fromkeys(samples))
        trials = [chosen(key, hypotheses, samples, confidence) for confidence in (0.7, 0.9, 0.99)]
        cases.append({"key": key, "samples": samples, "trials": trials})
    content = {"seed": SEED, "mbrs": version("mbrs"), "references": FIRST, "resamples": RESAMPLES, "cases": cases}
    write(sys.argv[1], content)


if __name__ == "__main__":
    main()
