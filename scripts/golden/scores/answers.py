"""Makes answers.json.gz: answers to questions as SQuAD scores them, on texts as good and bad as models give.

Exact match and F1 of each answer, and their means over questions with and without an answer, are those of the official
evaluate-v2.0.py, whose path is given (https://rajpurkar.github.io/SQuAD-explorer). Of questions that have an answer with
a word beside its articles they have to agree with torchmetrics, which follows the script for version 1.1.
"""

import argparse
import gzip
import importlib.util
import json
import random
import sys
from importlib.metadata import version

from torchmetrics.functional.text import squad

WORDS = [
    "the", "The", "a", "an", "An", "THE", "Theatre", "cat", "Cat,", "mat.", "don't", "a.b.", "U.S.A.", "1,024", "½", "Ⅷ",
    "a-b", "–", "—", "«the»", "“an”", "the’s", "_a_", "a_b", "été", "e\u0301te\u0301", "a\u0301", "İstanbul", "ΟΔΟΣ", "ΣΑΣ.", "straße",
    "STRASSE", "北京", "在北京。", "the北京", "東京、", "🙂", "a🙂", "the🙂the", "Ⓐ", "ⓐn", "на", "а", "ﬁn", "०१", "का", "$5", "5%", "a", "", " ",
]
SPACES = [" ", "  ", "\t", "\n", "\u00a0", "\u3000", "\u2009", "\u200b", "\x1c", "\x85", ""]


def text(draw: random.Random) -> str:
    return "".join(draw.choice(WORDS) + draw.choice(SPACES) for _ in range(draw.randrange(0, 6)))


def question(draw: random.Random, number: int) -> dict:
    answers = [text(draw) for _ in range(draw.choice([0, 1, 1, 1, 2, 3]))]
    given = draw.choice([text(draw), "", *answers])
    if draw.random() < 0.4:
        # Some words of it, in another case or beside others.
        words = given.split(" ")
        draw.shuffle(words)
        given = " ".join([*words[:draw.randrange(0, 5)], draw.choice(WORDS)])
    return {"id": str(number), "answers": answers, "given": draw.choice([given, given.upper(), given.lower()])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("official", help="evaluate-v2.0.py")
    parser.add_argument("out")
    arguments = parser.parse_args()
    described = importlib.util.spec_from_file_location("official", arguments.official)
    official = importlib.util.module_from_spec(described)
    described.loader.exec_module(official)
    draw = random.Random(29)
    questions = [question(draw, number) for number in range(1500)]
    dataset = [{"paragraphs": [{"qas": [
        {"id": one["id"], "answers": [{"text": answer} for answer in one["answers"]]} for one in questions
    ]}]}]
    exact, f1 = official.get_raw_scores(dataset, {one["id"]: one["given"] for one in questions})
    for one in questions:
        one["normalized"] = official.normalize_answer(one["given"])
        one["exact_match"], one["f1"] = exact[one["id"]], f1[one["id"]]
        if one["answers"] and all(map(official.normalize_answer, one["answers"])):
            other = squad(
                {"id": one["id"], "prediction_text": one["given"]},
                {"id": one["id"], "answers": {"text": one["answers"], "answer_start": [0] * len(one["answers"])}},
            )
            assert abs(other["exact_match"].item() - 100 * one["exact_match"]) < 1e-4, one
            assert abs(other["f1"].item() - 100 * one["f1"]) < 1e-4, one
    has_answer = official.make_qid_to_has_ans(dataset)
    means = {}
    for name, wanted in (("all", (True, False)), ("with_answer", (True,)), ("without_answer", (False,))):
        ids = [number for number, has in has_answer.items() if has in wanted]
        of = official.make_eval_dict(exact, f1, ids)
        means[name] = [of["total"], of["exact"], of["f1"]]
    for one in questions:
        del one["id"]
    content = {
        "torchmetrics": version("torchmetrics"), "script": "scripts/golden/scores/answers.py", "questions": questions,
        "means": means,
    }
    with open(arguments.out, "wb") as file, gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
        packed.write(json.dumps(content, separators=(",", ":")).encode())
    print(f"{len(questions)} questions, {means}", file=sys.stderr)


if __name__ == "__main__":
    main()
