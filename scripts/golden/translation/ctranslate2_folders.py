#!/usr/bin/env python3
"""Makes the golden folders of CTranslate2, and what the engine computes with them.

    python3 scripts/golden/translation/ctranslate2_folders.py

The engine's own converter reads the golden folders of Transformers; their tokenizers are not
copied again. Scores and translations are computed in f32 with the values of the stored type.

Needs Python 3.11 and the packages of scripts/golden/requirements.txt.
"""

import json
import os
import shutil
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import ctranslate2
import torch
from ctranslate2.converters import TransformersConverter
from transformers import LlamaConfig, LlamaForCausalLM

GOLDEN = Path(__file__).resolve().parents[3] / "crates/run/tests/golden"
# Folders with the types of their values.
FOLDERS = {
    "marian": "int8", "t5": "float16", "mt5": "int8_bfloat16", "llama": "float32", "gpt2": "bfloat16", "gptj": "float32"
}
LONGEST = 20


def tokens_of(folder):
    name = "vocabulary.json" if (folder / "vocabulary.json").exists() else "shared_vocabulary.json"
    return json.loads((folder / name).read_text())


def translations(folder, expected):
    """Log-probabilities of each token of goals, and translations with beams of 1 and 2."""
    tokens = tokens_of(folder)
    model = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    named = lambda rows: [[tokens[id] for id in row] for row in rows]
    ids = {token: id for id, token in enumerate(tokens)}
    sources, goals = expected["sources"], list(expected["goals"].values())
    # The engine adds the end of a target.
    scored = model.score_batch(named(sources[:len(goals)]), named(goal[:-1] for goal in goals))
    found = {"goals": goals, "log_probabilities": [one.log_probs for one in scored]}
    for beam in (1, 2):
        results = model.translate_batch(named(sources), beam_size=beam, max_decoding_length=LONGEST)
        rows = [[ids[token] for token in one.hypotheses[0]] for one in results]
        found[f"beam_{beam}"] = rows
    return {"sources": sources, **found}


def texts(folder, expected):
    """Log-probabilities of each token of texts after the first."""
    tokens = tokens_of(folder)
    model = ctranslate2.Generator(str(folder), compute_type="float32", intra_threads=1)
    rows = [row for row in expected if len(row) > 1]
    scored = model.score_batch([[tokens[id] for id in row] for row in rows])
    return {"rows": rows, "log_probabilities": [one.log_probs for one in scored]}


def usual_heads(folder, made):
    """A Llama with the tokenizer of the golden one, whose heads have a width that the engine's
    converter does not write."""
    shutil.copytree(folder, made)
    config = LlamaConfig.from_pretrained(folder)
    config.head_dim = config.hidden_size // config.num_attention_heads
    torch.manual_seed(1)
    LlamaForCausalLM(config).save_pretrained(made)
    return made


def with_beginning(folder, made):
    """A folder whose tokenizer names the token before a text, which the engine cannot do without."""
    shutil.copytree(folder, made)
    path = made / "tokenizer_config.json"
    names = {"bos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
    path.write_text(json.dumps(json.loads(path.read_text()) | names))
    return made


def main():
    for name, kind in FOLDERS.items():
        source, target = GOLDEN / name, GOLDEN / "ctranslate2" / name
        with tempfile.TemporaryDirectory() as made:
            converted = Path(made) / name
            if name == "llama":
                source = usual_heads(source, Path(made) / "usual")
            if name == "gptj":
                source = with_beginning(source, Path(made) / "begun")
            TransformersConverter(str(source)).convert(str(converted), quantization=kind)
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(converted, target)
        if not (target / "vocabulary.json").exists():
            found = translations(target, json.loads((source / "expected.json").read_text()))
        else:
            count = len(tokens_of(target))
            rows = [[(7 * at + 3 * row + at * at) % count for at in range(9 + row)] for row in range(4)]
            found = texts(target, rows)
        (target / "expected.json").write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
