"""Makes entities.json.gz: precision, recall and F1 of entities by seqeval, on sequences of tags as good and bad as models give.

Tags are drawn with and without mistakes: beginnings that are missing, insides of another type, single ones of IOBES. Of
each pair of sequences the entities that seqeval finds are kept too.
"""

import argparse
import gzip
import json
import random
import sys
import warnings
from importlib.metadata import version

from seqeval.metrics import classification_report, f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities

TYPES = ["PER", "LOC", "ORG", "B-52"]


def sentence(draw: random.Random, schemes: str) -> list[str]:
    tags: list[str] = []
    while len(tags) < draw.randrange(0, 14):
        kind, length = draw.choice(TYPES), draw.randrange(1, 4)
        choice = draw.random()
        if choice < 0.4:
            tags.append("O")
        elif choice < 0.8:
            tags += [f"B-{kind}"] + [f"I-{kind}"] * (length - 1)
        elif schemes == "IOBES" and choice < 0.9:
            tags += [f"S-{kind}"] if length == 1 else [f"B-{kind}", *[f"I-{kind}"] * (length - 2), f"E-{kind}"]
        else:
            tags.append(draw.choice(["I", "B"]) + "-" + kind)
    return tags


def damaged(draw: random.Random, tags: list[str], rate: float, schemes: str) -> list[str]:
    prefixes = "BI" if schemes == "IOB2" else "BIES"
    def other() -> str:
        return draw.choice(["O", f"{draw.choice(prefixes)}-{draw.choice(TYPES)}"])
    return [other() if draw.random() < rate else tag for tag in tags]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    out = parser.parse_args().out
    warnings.simplefilter("ignore")
    draw = random.Random(17)
    cases = []
    for number in range(60):
        schemes = draw.choice(["IOB2", "IOBES"])
        right = [sentence(draw, schemes) for _ in range(draw.randrange(1, 9))]
        given = [damaged(draw, tags, draw.choice([0.0, 0.1, 0.5, 1.0]), schemes) for tags in right]
        report = classification_report(right, given, output_dict=True, zero_division=0)
        of_types = {
            kind: [scores["precision"], scores["recall"], scores["f1-score"], int(scores["support"])]
            for kind, scores in report.items() if kind in TYPES
        }
        cases.append({
            "right": right, "given": given,
            "entities": [[list(entity) for entity in get_entities(tags)] for tags in given],
            "micro": [score(right, given, zero_division=0) for score in (precision_score, recall_score, f1_score)],
            # Of no entities at all it is no number.
            "macro": f1_score(right, given, average="macro", zero_division=0) if of_types else 0.0,
            "types": of_types,
        })
    content = {"seqeval": version("seqeval"), "script": "scripts/golden/scores/entities.py", "cases": cases}
    with open(out, "wb") as file, gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
        packed.write(json.dumps(content, separators=(",", ":")).encode())
    print(f"{len(cases)} cases", file=sys.stderr)


if __name__ == "__main__":
    main()
