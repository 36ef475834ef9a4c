"""BLEU, chrF and TER against sacreBLEU, digit for digit."""

import random

import pytest
import sacrebleu

import taper


def text(seed, lines):
    draws = random.Random(seed)
    known = "The the cat cats sat, on a mat. mats 我 爱 你 ü 3.14 don't (so) &amp; U.S. I'm".split()
    return [
        " ".join(draws.choice(known) for _ in range(draws.randint(1, 15))) for _ in range(lines)
    ]


HYPOTHESES = text(1, 60)
REFERENCES = [
    [line if number % 3 else other for number, (line, other) in enumerate(zip(HYPOTHESES, more))]
    for more in (text(2, 60), text(3, 60))
]


@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lowercase": True},
        {"tokenize": "zh"},
        {"tokenize": "char", "smooth_method": "add-k", "smooth_value": 2.0},
        {"tokenize": "intl", "smooth_method": "floor"},
        {"tokenize": "none", "max_ngram_order": 6},
    ],
)
def test_bleu(options, streams):
    references = REFERENCES[:streams]
    expected = sacrebleu.BLEU(**options).corpus_score(HYPOTHESES, references)
    found = taper.bleu(HYPOTHESES, references, **options)
    assert found.score == expected.score
    assert found.details["precisions"] == expected.precisions
    assert found.details["brevity_penalty"] == expected.bp


@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize(
    "options", [{}, {"word_order": 2}, {"lowercase": True, "beta": 3}, {"whitespace": True}]
)
def test_chrf(options, streams):
    expected = sacrebleu.CHRF(**options).corpus_score(HYPOTHESES, REFERENCES[:streams])
    found = taper.chrf(HYPOTHESES, REFERENCES[:streams], **options)
    assert (found.score, found.name) == (expected.score, expected.name)


@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize(
    "options",
    [{}, {"normalized": True, "asian_support": True}, {"no_punct": True, "case_sensitive": True}],
)
def test_ter(options, streams):
    expected = sacrebleu.TER(**options).corpus_score(HYPOTHESES, REFERENCES[:streams])
    found = taper.ter(HYPOTHESES, REFERENCES[:streams], **options)
    assert found.score == expected.score
    assert found.details["edits"] == expected.num_edits


def test_scores_say_how_they_were_made():
    score = taper.bleu(["a b c d"], ["a b c d"])
    assert float(score) == pytest.approx(100)
    assert score.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|")
    assert str(score).startswith("BLEU|nrefs:1") and str(score).endswith("= 100.00")


def test_what_cannot_be_scored_is_said():
    with pytest.raises(taper.TaperError, match="2"):
        taper.bleu(["a"], ["a", "b"])
    with pytest.raises(taper.TaperError, match="tokenizer|variant"):
        taper.bleu(["a"], ["a"], tokenize="latin")
    with pytest.raises(taper.TaperError):
        taper.ter([], [])
    with pytest.raises(TypeError, match="not a text"):
        taper.chrf("a", "a")
