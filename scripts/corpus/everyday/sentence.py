"""A finished sentence pair and how its two sides are joined."""

from dataclasses import dataclass

from .words import sentence_case


@dataclass(frozen=True)
class Sentence:
    """A translation pair and the combinations that it contains."""

    english: str
    chinese: str
    combinations: frozenset


def say(english, chinese, *parts, end="."):
    """Joins the two sides, with the final mark (none doubled), into a sentence."""
    full_stop = {".": "。", "?": "？", "!": "！"}[end]
    combinations = frozenset(item for part in parts for item in part.combinations)
    return Sentence(f"{sentence_case(english)}{end}", chinese + full_stop, combinations)
