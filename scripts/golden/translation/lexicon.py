"""Translation probabilities of IBM model 1, computed by NLTK, for the tests of shortlists.

The pairs are drawn at random: each source token has one or two translations, and some are left out.
NLTK counts a target token that a sentence has twice only once, so no sentence has one twice.
"""

import json
import random
from pathlib import Path

import nltk
from nltk.translate import AlignedSent, IBMModel1

FILE = Path(__file__).resolve().parents[3] / "crates/run/tests/golden/lexicon.json"
SOURCES, TARGETS, PAIRS, ITERATIONS = 12, 15, 60, 5


def pair(draws: random.Random) -> tuple[list[int], list[int]]:
    """Draws a sentence and its translation, in which some tokens have another order."""
    source = [draws.randrange(SOURCES) for _ in range(draws.randint(1, 7))]
    target = [token + draws.choice([0, 0, 3]) for token in source if draws.random() < 0.9]
    target = list(dict.fromkeys(target))
    if len(target) > 2 and draws.random() < 0.5:
        target[0], target[1] = target[1], target[0]
    return source, target or [TARGETS - 1]


def main() -> None:
    """Writes the pairs and the probabilities."""
    draws = random.Random(7)
    pairs = [pair(draws) for _ in range(PAIRS)]
    model = IBMModel1([AlignedSent(target, source) for source, target in pairs], ITERATIONS)
    together = {(one, other) for source, target in pairs for one in [None, *source] for other in target}
    # The empty word is the source after the last.
    table = sorted((SOURCES if source is None else source, target,
                    model.translation_table[target][source]) for source, target in together)
    golden = {"script": "scripts/golden/translation/lexicon.py", "nltk": nltk.__version__,
              "pairs": pairs, "sizes": [SOURCES, TARGETS], "iterations": ITERATIONS, "table": table}
    FILE.write_text(json.dumps(golden) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
