"""Makes the folders nllb, bart and mbart: small models with random weights as Transformers saves them, and what they give.

BART's descendants have tensors of the same names: NLLB (an M2M100) has sinusoids from position 2 on and norms before
sublayers, BART learned positions and norms behind, mBART of 50 languages learned positions and norms before. The tokenizers
are trained here on a few lines. `expected.safetensors` has token ids of sources and targets, one after another, and from
them the logits and the gradient of every parameter under the name that Transformers gives it, in float64. `expected.json`
has ids of texts, and what `generate` writes, greedily and with a beam of 4.
"""

import argparse
import json
from pathlib import Path

import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import GenerationConfig

from ..common import ROOT, setup
from .folders import draw, expect, learn_padding

TEXTS = [
    "The seagulls sail on.", "Nothing is lost!", "Sailing, sailing; 7 ships", "The ships are lost", "Is it the ship?",
    "The ships are lost in the seas, and nothing sails on.",
]
GOALS = ["Die Möwen segeln.", "Nichts ist verloren!", "Segeln, segeln; 7 Schiffe", "Die Schiffe sind auf See verloren."]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
SHAPE = dict(
    d_model=16, encoder_layers=2, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
    encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=40, dropout=0.0, attention_dropout=0.0,
    pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2,
)


def spaced() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")


def pairs(cut: pre_tokenizers.PreTokenizer, size: int, alphabet: list[str], special: list[str]) -> dict:
    """Vocabulary and merges of BPE."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = cut
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS + GOALS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return {"vocab": model["vocab"], "merges": [tuple(pair) for pair in model["merges"]]}


def nllb():
    languages = ["eng_Latn", "deu_Latn", "fra_Latn"]
    tokenizer = transformers.NllbTokenizer(
        **pairs(spaced(), 150, [], SPECIAL), src_lang="eng_Latn", tgt_lang="deu_Latn", extra_special_tokens=languages,
    )
    config = transformers.M2M100Config(**SHAPE, vocab_size=len(tokenizer) + 2, activation_function="gelu")
    return tokenizer, transformers.M2M100ForConditionalGeneration(config), "deu_Latn"


def bart():
    cut = pre_tokenizers.ByteLevel(add_prefix_space=False)
    own = pairs(cut, 300, pre_tokenizers.ByteLevel.alphabet(), [*SPECIAL, "<mask>"])
    tokenizer = transformers.BartTokenizer(**own)
    config = transformers.BartConfig(**SHAPE, vocab_size=len(tokenizer), activation_function="gelu")
    return tokenizer, transformers.BartForConditionalGeneration(config), "<s>"


def mbart():
    trained = Tokenizer(models.Unigram())
    trained.pre_tokenizer = spaced()
    trainer = trainers.UnigramTrainer(vocab_size=120, unk_token="<unk>", special_tokens=SPECIAL, show_progress=False)
    trained.train_from_iterator((TEXTS + GOALS) * 5, trainer)
    vocabulary = [tuple(piece) for piece in json.loads(trained.to_str())["model"]["vocab"]]
    tokenizer = transformers.MBart50Tokenizer(vocab=vocabulary, src_lang="en_XX", tgt_lang="de_DE")
    config = transformers.MBartConfig(
        **SHAPE, vocab_size=len(tokenizer), activation_function="gelu", scale_embedding=True,
    )
    return tokenizer, transformers.MBartForConditionalGeneration(config), "de_DE"


def make(out: Path, seed: int, tokenizer, model, begin: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    model.eval()
    draw(model, seed)
    begins = {"forced_bos_token_id": tokenizer.convert_tokens_to_ids(begin)} if begin else {}
    config = model.config
    model.generation_config = GenerationConfig(
        num_beams=4, max_length=20, bos_token_id=config.bos_token_id, pad_token_id=config.pad_token_id,
        eos_token_id=config.eos_token_id, decoder_start_token_id=config.decoder_start_token_id,
        forced_eos_token_id=config.eos_token_id, **begins)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)

    sources = [tokenizer(text).input_ids for text in TEXTS]
    goals = [tokenizer(text_target=text).input_ids for text in GOALS]
    learn_padding(model)
    expect(out, __file__, model, tokenizer.decode, {"texts": TEXTS}, sources, dict(zip(GOALS, goals)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "crates" / "run" / "tests" / "golden")
    out = parser.parse_args().out
    setup()
    for seed, family in [(41, nllb), (42, bart), (43, mbart)]:
        make(out / family.__name__, seed, *family())


if __name__ == "__main__":
    main()
