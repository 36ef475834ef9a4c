#!/usr/bin/env python3
"""Runs sacreBLEU's own test suite and records each score that it computes, for the tests of
taper-metrics to compare with.

Needs `pytest` and the source distribution, whose version must be the installed one:

    pip download sacrebleu==2.6.0 --no-deps --no-binary :all:
    python scripts/golden/scores/sacrebleu_suite.py sacrebleu-2.6.0.tar.gz crates/metrics/tests/golden/sacrebleu_suite.json.gz
"""

import functools
import os
import sys
import tarfile
import tempfile

import pytest
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric
from sacrebleu.tokenizers.tokenizer_ter import TercomTokenizer

from metrics import write

MODULES = ["test_bleu", "test_chrf", "test_ter", "test_sentence_bleu", "test_tokenizer_ter"]


def bleu_options(metric):
    """Options of BLEU as taper-metrics names them."""
    value = metric.smooth_value
    if value is None:
        value = BLEU.SMOOTH_DEFAULTS[metric.smooth_method]
    takes_value = metric.smooth_method in ("floor", "add-k")
    return {
        "tokenizer": metric.tokenizer_signature,
        "smoothing": {metric.smooth_method: value} if takes_value else metric.smooth_method,
        "effective_order": metric.effective_order,
        "lowercase": metric.lowercase,
        "force": metric._force,
        "max_order": metric.max_ngram_order,
    }


def options(metric):
    """Options of a metric as taper-metrics names them."""
    if isinstance(metric, BLEU):
        return bleu_options(metric)
    if isinstance(metric, CHRF):
        names = ["char_order", "word_order", "beta", "lowercase", "whitespace", "eps_smoothing"]
    else:
        names = ["normalized", "no_punct", "asian_support", "case_sensitive"]
    return {name: getattr(metric, name) for name in names}


class Recorder:
    """What the suite asked, and what it was answered."""

    def __init__(self):
        self.scores, self.sums, self.tokens = [], [], []
        self.inside = False

    def install(self):
        """Puts itself between the suite and the metrics."""
        corpus, compute, tokenize = Metric.corpus_score, BLEU.compute_bleu, TercomTokenizer.__call__

        @functools.wraps(corpus)
        def corpus_score(metric, hypotheses, references, n_bootstrap=1):
            self.inside = True
            score = corpus(metric, hypotheses, references, n_bootstrap)
            self.inside = False
            self.record(metric, hypotheses, references, score)
            return score

        def sentence_score(metric, hypothesis, references):
            return corpus_score(metric, [hypothesis], [[line] for line in references])

        def compute_bleu(*arguments, **named):
            score = compute(*arguments, **named)
            if not self.inside:
                correct, total, hypothesis, reference = arguments
                smoothing, value = named.get("smooth_method", "none"), named.get("smooth_value")
                self.sums.append(
                    {
                        "sums": [hypothesis, reference, *correct, *total],
                        "smoothing": smoothing if value is None else {smoothing: value},
                        "score": score.score,
                    }
                )
            return score

        def tokenizer(tercom, line):
            tokens = tokenize(tercom, line)
            if not self.inside:
                names = ["normalized", "no_punct", "asian_support", "case_sensitive"]
                settings = {name: getattr(tercom, f"_{name}") for name in names}
                self.tokens.append({"options": settings, "line": line, "tokens": tokens.split()})
            return tokens

        Metric.corpus_score = corpus_score
        for metric in (BLEU, CHRF, TER):
            metric.sentence_score = sentence_score
        BLEU.compute_bleu = staticmethod(compute_bleu)
        TercomTokenizer.__call__ = tokenizer

    def record(self, metric, hypotheses, references, score):
        """Notes one score; a stream may be longer than the hypotheses, which zip cuts."""
        count = min(len(hypotheses), *(len(stream) for stream in references))
        self.scores.append(
            {
                "metric": type(metric).__name__,
                "options": options(metric),
                "hypotheses": list(hypotheses[:count]),
                "references": [list(stream[:count]) for stream in references],
                "score": score.score,
                "line": score.format(width=2),
                "signature": metric.get_signature().format(),
            }
        )


def main():
    """Writes the golden file."""
    archive, output = (os.path.abspath(path) for path in sys.argv[1:])
    recorder = Recorder()
    recorder.install()
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        (root,) = os.listdir(folder)
        tests = os.path.join(folder, root, "test")
        status = pytest.main(["-q", "-p", "no:cacheprovider", *(os.path.join(tests, f"{name}.py") for name in MODULES)])
    if status != 0:
        sys.exit("the suite failed")
    print(f"{len(recorder.scores)} scores, {len(recorder.sums)} sums, {len(recorder.tokens)} lines")
    write(output, {"scores": recorder.scores, "sums": recorder.sums, "tokens": recorder.tokens})


if __name__ == "__main__":
    main()
