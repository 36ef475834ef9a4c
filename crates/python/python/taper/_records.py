"""Results of runs: translations, scores, texts, labels, tags and answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Union

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class Alignment:
    """Alignment of a translation's tokens with those of its source."""

    pairs: list[tuple[int, int]]
    """Linked positions (source, target), from 0."""
    source_tokens: list[str]
    """S tokens of the source, ``</s>`` last."""
    target_tokens: list[str]
    """T tokens of the translation."""
    weights: npt.NDArray[np.float32] = field(repr=False)
    """Weight of each source token for each target token, ``(T, S)``; without rows for very long
    lines."""


@dataclass(frozen=True)
class Translation:
    """One translation of a line."""

    text: str
    """The text."""
    score: float
    """Log-probability in nats, normalised by length, by which translations are ordered."""
    log_probability: float
    """Log-probability, in nats."""
    truncated: bool = False
    """Whether it ends only because it reached the maximum length."""
    alignment: Alignment | None = None
    """Alignment, if it was asked for."""


@dataclass(frozen=True)
class LineTranslations:
    """Translations of one line, the best first."""

    source: str
    """The line."""
    translations: list[Translation]
    """At least one, unless there is an ``error``."""
    overlong: dict[str, Any] | None = None
    """Treatment of a line with too many tokens: ``tokens``, ``limit``, ``rule``, ``parts``."""
    error: str | None = None
    """Reason why it is not translated."""

    @property
    def text(self) -> str:
        """Text of the best translation; empty if there is none."""
        return self.translations[0].text if self.translations else ""

    @property
    def score(self) -> float:
        """Score of the best translation; not a number if there is none."""
        return self.translations[0].score if self.translations else float("nan")

    @property
    def alignment(self) -> Alignment | None:
        """Alignment of the best translation."""
        return self.translations[0].alignment if self.translations else None


@dataclass(frozen=True)
class TextScore:
    """Probability of a given text, or of a given translation."""

    log_probability: float
    """Log-probability, in nats."""
    token_log_probabilities: list[float] = field(repr=False)
    """Log-probability of each token after those before it, in nats."""
    score: float | None = None
    """Of a translation: the log-probability, normalised by length as in a search."""
    perplexity: float | None = None
    """Of a language model: the perplexity of a token."""
    tokens: list[str] | None = field(default=None, repr=False)
    """Of a language model: the tokens."""
    error: str | None = None
    """Why there is no score."""


@dataclass(frozen=True)
class GeneratedText:
    """Continuation of a prompt."""

    text: str
    """The text, without its prompt."""
    tokens: int
    """Number of its tokens."""
    log_probability: float
    """Log-probability of its tokens and of its end, in nats."""
    truncated: bool
    """Whether it ends because it reached the maximum number of tokens."""
    finish_reason: Literal["stop", "length"]
    """Why it ends."""
    stop_reason: str | None = None
    """Text that stopped it."""


@dataclass(frozen=True)
class Prediction:
    """Label of a text or an image, or its caption."""

    label: str
    """The likeliest label, or the caption."""
    probability: float
    """Its probability; of a caption ``exp`` of its log-probability."""
    probabilities: list[float] = field(default_factory=list, repr=False)
    """Probability of each label, in the order of the recipe's or of the prompts."""
    error: str | None = None
    """Why there is none."""


@dataclass(frozen=True)
class TaggedText:
    """Words of a text, with a tag for each."""

    words: list[str]
    """Words, divided by spaces and tabs."""
    tags: list[str]
    """Likeliest tag of each word."""
    entities: list[tuple[str, int, int]]
    """Entities by the tags: type, first word and last word, counted from 0."""
    error: str | None = None
    """Why there are none."""


@dataclass(frozen=True)
class SpanAnswer:
    """Answer to a question, a span of its context."""

    answer: str
    """The span; empty if the text has no answer."""
    start: int | None
    """Its first character, counted from 0."""
    end: int | None
    """The character after it."""
    probability: float
    """Probability among all possible spans."""
    id: str | None = None
    """Id of the question, if it has one."""
    error: str | None = None
    """Why there is none."""


Answer = Union[Prediction, TaggedText, SpanAnswer]
