"""Makes the folder marian: a small MarianMT with random weights as Transformers saves it, and what it gives.

The pieces of both languages are those of SentencePiece, trained here on a few lines; one piece in nine has no id in
`vocab.json`. `expected.safetensors` has token ids of sources and targets, one after another, and from them the logits and
the gradient of every parameter under the name that Transformers gives it, in float64. `expected.json` has ids of texts, and
what `generate` writes, greedily and with a beam of 4. Needs `pip install sentencepiece`, beside the other packages.
"""

import argparse
import json
from pathlib import Path

import sentencepiece
from transformers import GenerationConfig, MarianConfig, MarianMTModel, MarianTokenizer

from ..common import ROOT, setup
from .folders import draw, expect, learn_padding

TEXTS = [
    "The seagulls sail on.", "Nothing is lost!", "Sailing, sailing; 7 ships", "Café  unlost ", ">>deu<< The ships sail.",
    "The ships are lost in the seas, and nothing sails on.", "ﬁne ①", "Is it the ship?",
]
GOALS = ["Die Möwen segeln.", "Nichts ist verloren!", "Segeln, segeln; 7 Schiffe", "Die Schiffe sind auf See verloren."]
LENGTH = 32


def pieces(path: Path, texts: list[str], size: int, normal: str) -> list[str]:
    # The model keeps its prefix, so that of a file in the current folder.
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts * 20), model_prefix=path.stem, vocab_size=size,
        num_threads=1, pad_id=-1, bos_id=-1, eos_id=0, unk_id=1, minloglevel=2, hard_vocab_limit=False,
        normalization_rule_name=normal,
    )
    Path(f"{path.stem}.model").rename(path)
    Path(f"{path.stem}.vocab").unlink()
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [model.id_to_piece(at) for at in range(model.get_piece_size())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "crates" / "run" / "tests" / "golden")
    out = parser.parse_args().out / "marian"
    out.mkdir(parents=True, exist_ok=True)
    setup()
    names = pieces(out / "source.spm", TEXTS[:6], 60, "nmt_nfkc") + pieces(out / "target.spm", GOALS, 56, "identity")
    names = [name for at, name in enumerate(names) if at < 4 or at % 9]
    tokens = list(dict.fromkeys(["</s>", "<unk>", *names, ">>deu<<", "<pad>"]))
    numbers = {token: number for number, token in enumerate(tokens)}
    (out / "vocab.json").write_text(json.dumps(numbers, ensure_ascii=False, indent=1))
    tokenizer = MarianTokenizer(str(out / "source.spm"), str(out / "target.spm"), str(out / "vocab.json"))
    pad = numbers["<pad>"]
    special = dict(pad_token_id=pad, eos_token_id=0, decoder_start_token_id=pad, forced_eos_token_id=0)
    model = MarianMTModel(MarianConfig(
        vocab_size=len(tokens), d_model=16, encoder_layers=2, decoder_layers=1, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=LENGTH, dropout=0.0,
        activation_function="silu", scale_embedding=True, **special,
    )).eval()
    draw(model, 37)
    model.generation_config = GenerationConfig(num_beams=4, max_length=20, bad_words_ids=[[pad]], **special)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)

    sources = [tokenizer(text).input_ids for text in TEXTS]
    goals = [tokenizer(text_target=text).input_ids for text in GOALS]
    learn_padding(model)
    expect(out, __file__, model, tokenizer.decode, {"texts": TEXTS}, sources, dict(zip(GOALS, goals)))


if __name__ == "__main__":
    main()
