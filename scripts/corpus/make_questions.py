#!/usr/bin/env python3
"""Writes questions about texts in SQuAD's format to data/numbers: which number does a thing have?

    scripts/corpus/make_questions.py [FOLDER]

A text says of two to six things, such as "the red lamp", which number they have; in the split `long`
of twelve to sixteen, so that it is read in several windows. The same files each time.
"""

import json
import random
import sys
from pathlib import Path

COLOURS = (
    "amber azure black blue brown coral green grey ivory olive orange pink purple red silver teal white yellow"
).split()
THINGS = "boat bridge clock door flag garden house lamp mill road ship tower".split()
NAMES = [f"{colour} {thing}" for colour in COLOURS for thing in THINGS]
ASKED = 3
# Of each split: its seed, its texts, and fewest and most things of a text.
SPLITS = {"train": (1, 4000, 2, 6), "val": (2, 100, 2, 6), "test": (3, 300, 2, 6), "long": (4, 60, 12, 16)}


def paragraph(draw: random.Random, number: int, things: int) -> dict:
    names = draw.sample(NAMES, things)
    values = [draw.randrange(100, 1000) for _ in names]
    context, starts = "", []
    for name, value in zip(names, values):
        before = f"The {name} has the number "
        starts.append(len(context) + len(before))
        context += f"{before}{value}. "
    asked = [
        {
            "id": f"{number}-{at}", "question": f"What is the number of the {names[at]}?",
            "answers": [{"text": str(values[at]), "answer_start": starts[at]}],
        }
        for at in draw.sample(range(things), min(ASKED, things))
    ]
    return {"context": context.rstrip(), "qas": asked}


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2] / "data" / "numbers"
    folder.mkdir(parents=True, exist_ok=True)
    for name, (seed, texts, fewest, most) in SPLITS.items():
        draw = random.Random(seed)
        paragraphs = [paragraph(draw, number, draw.randrange(fewest, most + 1)) for number in range(texts)]
        content = {"version": "1.1", "data": [{"title": "numbers", "paragraphs": paragraphs}]}
        (folder / f"{name}.json").write_text(json.dumps(content))
    print(folder)


if __name__ == "__main__":
    main()
