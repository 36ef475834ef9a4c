"""Makes the folders t5, mt5 and umt5: small models with random weights as Transformers saves them, and what they give.

`t5` is a T5 of version 1.0, whose output is its embedding times 1/√d_model, with the `tokenizer.json` that Transformers
makes of pieces of SentencePiece. `mt5` has gated layers and an output of its own, and the pieces alone, `spiece.model`, as
most folders of the hub have; so has `umt5`, whose layers have biases of distances of their own. `expected.safetensors` has token ids of sources and targets, one after another, and from them
the logits and the gradient of every parameter under the name that Transformers gives it, in float64. `expected.json` has
ids of texts, and what `generate` writes, greedily and with a beam of 4. Needs `pip install sentencepiece`, beside the other
packages.
"""

import argparse
import json
import shutil
from pathlib import Path

import sentencepiece
import torch
from transformers import (
    GenerationConfig, MT5Config, MT5ForConditionalGeneration, PreTrainedModel, T5Config, T5ForConditionalGeneration, T5Tokenizer,
    UMT5Config, UMT5ForConditionalGeneration)

from ..common import ROOT, setup
from .folders import expect

PREFIX = "translate English to German: "
TEXTS = [
    "The seagulls sail on.", "Nothing is lost!", "Sailing, sailing; 7 ships", "Café  unlost ",
    "The ships are lost in the seas, and nothing sails on and on and on.", "Is it the ship?", "a ▁ b <x>",
]
GOALS = ["Die Möwen segeln.", "Nichts ist verloren!", "Segeln, segeln; 7 Schiffe", "Die Schiffe sind auf See verloren."]
EXTRA = 5
SHAPE = dict(
    d_model=16, d_kv=6, d_ff=24, num_layers=2, num_decoder_layers=1, num_heads=3, dropout_rate=0.0,
    relative_attention_num_buckets=8, relative_attention_max_distance=11, decoder_start_token_id=0,
)
MODELS = {"mt5": MT5ForConditionalGeneration, "umt5": UMT5ForConditionalGeneration}
CONFIGS = {"mt5": MT5Config, "umt5": UMT5Config}


def pieces(path: Path, normal: str) -> None:
    # The model keeps its prefix, so that of a file in the current folder.
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([PREFIX, *TEXTS, *GOALS] * 20), model_prefix=path.stem, vocab_size=90, num_threads=1, pad_id=0,
        eos_id=1, unk_id=2, bos_id=-1, minloglevel=2, hard_vocab_limit=False, normalization_rule_name=normal,
    )
    shutil.move(f"{path.stem}.model", path)
    Path(f"{path.stem}.vocab").unlink()


def make(out: Path, model: PreTrainedModel, tokenizer: T5Tokenizer, seed: int) -> None:
    model = model.eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = "norm" in name
            # Scores are not divided, and would be large.
            size = 0.1 if name.endswith((".q.weight", ".k.weight")) else 0.4
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * size + (1.0 if is_norm else 0.0))
    special = dict(pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, forced_eos_token_id=1)
    model.generation_config = GenerationConfig(num_beams=4, max_length=20, **special)
    model.save_pretrained(out)

    sources = [tokenizer(PREFIX + text).input_ids for text in TEXTS]
    goals = [tokenizer(text).input_ids for text in GOALS]
    texts = {"prefix": PREFIX, "texts": TEXTS}
    expect(out, __file__, model, tokenizer.decode, texts, sources, dict(zip(GOALS, goals)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "crates" / "run" / "tests" / "golden")
    out = parser.parse_args().out
    setup()
    for name, normal, seed in [("t5", "identity", 44), ("mt5", "nmt_nfkc", 47), ("umt5", "nmt_nfkc", 51)]:
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        pieces(folder / "spiece.model", normal)
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "T5Tokenizer", "extra_ids": EXTRA}) + "\n")
        tokenizer = T5Tokenizer.from_pretrained(folder)
        # Rows beyond the tokens, as in models of the hub.
        rows = len(tokenizer) + 3
        if name == "t5":
            tokenizer.save_pretrained(folder)
            (folder / "spiece.model").unlink()
            tasks = {"translation_source_to_target": {"prefix": PREFIX}}
            model = T5ForConditionalGeneration(T5Config(vocab_size=rows, **SHAPE, task_specific_params=tasks))
        else:
            own = dict(num_decoder_layers=2) if name == "umt5" else {}
            model = MODELS[name](CONFIGS[name](vocab_size=rows, tie_word_embeddings=False, **SHAPE | own))
            model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
        make(folder, model, tokenizer, seed)
        if name != "t5":
            # As on the hub: version 5 of Transformers writes otherwise, and reads both alike.
            path = folder / "config.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | {"tie_word_embeddings": False}, indent=2) + "\n")


if __name__ == "__main__":
    main()
