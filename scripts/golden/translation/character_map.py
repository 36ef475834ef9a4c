#!/usr/bin/env python3
"""Normal forms of characters by the package sentencepiece, and the compiled map that it has of them.

    scripts/golden/translation/character_map.py

Writes crates/data/tests/golden/character_map.json: the map of a few rules in Base64, and texts with
their normal forms. The rules have what is hard: strings that begin others, forms that are empty or
longer than what they replace, and bases whose marks follow. Needs sentencepiece 0.2 and protobuf.
"""

import base64
import itertools
import json
import random
import tempfile
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

TARGET = Path(__file__).resolve().parents[3] / "crates/data/tests/golden/character_map.json"
RULES = {
    "Ａ": "A", "Ｂ": "B", "A\u0301": "Á", "e\u0301": "é", "e\u0302": "ê", "e\u0302\u0301": "ế",
    "ﬁ": "fi", "№": "No", "\u200b": "", "\t": " ", "\u3000": " ", "…": "...", "㍿": "株式会社",
    "\u0627\u0654": "\u0623", "\u0648\u0654": "\u0624", "ﷺ": "صلى الله عليه وسلم", "か\u3099": "が",
    "ｶ": "カ", "ｶﾞ": "ガ", "a": "b", "abc": "x", "😀": ":)",
}
ALPHABET = [*RULES, "A", "B", "e", "c", "ab", "\u0301", "\u0302", "\u0654", "\u3099", "ﾞ", "é",
            "Ａ\u0301",
            "か", "0", "-", "好", "👍🏽", "\u0627", "Ｚ"]


def main():
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder) / "rules.tsv"
        code = lambda text: " ".join(f"{ord(one):X}" for one in text)
        rules.write_text("".join(f"{code(one)}\t{code(form)}\n" for one, form in RULES.items()))
        normalizer = sentencepiece.SentencePieceNormalizer(
            rule_tsv=str(rules), add_dummy_prefix=False, escape_whitespaces=False,
            remove_extra_whitespaces=False)
        model = sentencepiece_model_pb2.ModelProto()
        model.ParseFromString(normalizer.serialized_model_proto())
    draws = random.Random(1)
    texts = [f"{one}{other}" for one, other in itertools.product(ALPHABET, ALPHABET)]
    texts += ["".join(draws.choices(ALPHABET, k=draws.randint(0, 12))) for _ in range(300)]
    cases = [[text, normalizer.normalize(text)] for text in texts]
    charsmap = model.normalizer_spec.precompiled_charsmap
    golden = {"map": base64.b64encode(charsmap).decode(), "cases": cases}
    TARGET.write_text(json.dumps(golden, ensure_ascii=False) + "\n")
    print(f"{len(charsmap)} bytes, {len(cases)} texts")


if __name__ == "__main__":
    main()
