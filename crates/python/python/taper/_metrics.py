"""BLEU, chrF and TER, with sacreBLEU's results and signatures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Union, cast

from . import _native


@dataclass(frozen=True)
class Score:
    """A score of a corpus."""

    name: str
    """Name of the metric."""
    score: float
    """The score: in per cent; of TER, where less is better, edits per 100 words."""
    signature: str
    """Settings and data that the score depends on."""
    details: dict[str, Any] = field(repr=False)
    """Numbers that it was made from, such as ``precisions`` of BLEU."""

    def __str__(self) -> str:
        return f"{self.name}|{self.signature} = {self.score:.2f}"

    def __float__(self) -> float:
        return self.score


References = Union[Sequence[str], Sequence[Sequence[str]]]
"""One reference for each hypothesis, or several streams of them, as sacreBLEU takes them."""


def _scored(
    metric: str,
    name: str,
    options: dict[str, Any],
    hypotheses: Sequence[str],
    references: References,
) -> Score:
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise TypeError("hypotheses and references are lists of lines, not a text")
    is_one = all(isinstance(line, str) for line in references)
    streams = [list(references)] if is_one else [list(stream) for stream in references]
    lines = cast("list[list[str]]", streams)
    record = json.loads(_native.metric(metric, json.dumps(options), list(hypotheses), lines))
    score, signature = record.pop("score"), record.pop("signature")
    return Score(record.pop("name", name), score, signature, record)


def bleu(
    hypotheses: Sequence[str],
    references: References,
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    smooth_method: str = "exp",
    smooth_value: float | None = None,
    effective_order: bool = False,
    max_ngram_order: int = 4,
) -> Score:
    """Corpus BLEU (Papineni et al. 2002), from 0 to 100, equal to sacreBLEU's.

    Args:
        hypotheses: Translations, one a line.
        references: One reference for each, or several lists of them.
        tokenize: ``13a``, ``zh``, ``char``, ``intl`` or ``none``.
        lowercase: Ignores case.
        smooth_method: ``exp``, ``floor``, ``add-k`` or ``none``.
        smooth_value: Value of ``floor`` (``None``: 0.1) and ``add-k`` (``None``: 1).
        effective_order: Leaves out orders that are longer than the text.
        max_ngram_order: Longest n-gram counted.

    Raises:
        TaperError: There is nothing to score, numbers of lines differ, or an option is wrong.
    """
    usual = {"floor": 0.1, "add-k": 1.0}.get(smooth_method)
    value = usual if smooth_value is None else smooth_value
    options = {
        "tokenizer": tokenize,
        "lowercase": lowercase,
        "smoothing": smooth_method if usual is None else {smooth_method: value},
        "effective_order": effective_order,
        "max_order": max_ngram_order,
    }
    return _scored("bleu", "BLEU", options, hypotheses, references)


def chrf(
    hypotheses: Sequence[str],
    references: References,
    *,
    char_order: int = 6,
    word_order: int = 0,
    beta: int = 2,
    lowercase: bool = False,
    whitespace: bool = False,
    eps_smoothing: bool = False,
) -> Score:
    """Corpus chrF (Popovic 2015), from 0 to 100, equal to sacreBLEU's; chrF++ by ``word_order=2``.

    Args:
        hypotheses: Translations, one a line.
        references: One reference for each, or several lists of them.
        char_order: Longest n-gram of characters.
        word_order: Longest n-gram of words.
        beta: Weight of recall against precision.
        lowercase: Ignores case.
        whitespace: Counts white space as characters.
        eps_smoothing: Smooths as the original program.

    Raises:
        TaperError: There is nothing to score, numbers of lines differ, or an option is wrong.
    """
    options = {
        "char_order": char_order,
        "word_order": word_order,
        "beta": beta,
        "lowercase": lowercase,
        "whitespace": whitespace,
        "eps_smoothing": eps_smoothing,
    }
    return _scored("chrf", "chrF", options, hypotheses, references)


def ter(
    hypotheses: Sequence[str],
    references: References,
    *,
    normalized: bool = False,
    no_punct: bool = False,
    asian_support: bool = False,
    case_sensitive: bool = False,
) -> Score:
    """Corpus TER (Snover et al. 2006), edits per 100 words of references, equal to sacreBLEU's.

    Args:
        hypotheses: Translations, one a line.
        references: One reference for each, or several lists of them.
        normalized: Separates punctuation.
        no_punct: Removes punctuation.
        asian_support: Makes Chinese characters words.
        case_sensitive: Distinguishes case.

    Raises:
        TaperError: There is nothing to score, or numbers of lines differ.
    """
    options = {
        "normalized": normalized,
        "no_punct": no_punct,
        "asian_support": asian_support,
        "case_sensitive": case_sensitive,
    }
    return _scored("ter", "TER", options, hypotheses, references)
