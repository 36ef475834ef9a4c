"""Makes the folders marian and marian-two: small MarianMTs with random weights as Transformers saves them, and what they give.

The pieces of both languages are those of SentencePiece, trained here on a few lines; one piece in nine has no id. The first
folder has one vocabulary for both languages, the second one for each, of different sizes. `expected.safetensors` has token ids of sources and targets, one after another, and from them the logits and
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


def learn(out: Path, normal: str) -> list[list[str]]:
    """Trains the models of both languages; gives the pieces of each that have ids."""
    out.mkdir(parents=True, exist_ok=True)
    sides = [pieces(out / "source.spm", TEXTS[:6], 60, normal), pieces(out / "target.spm", GOALS, 56, "identity")]
    both = [name for at, name in enumerate(sum(sides, [])) if at < 4 or at % 9]
    return [both[: sum(at < 4 or at % 9 > 0 for at in range(len(sides[0])))], both]


def write(path: Path, tokens: list[str]) -> dict[str, int]:
    numbers = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    path.write_text(json.dumps(numbers, ensure_ascii=False, indent=1))
    return numbers


def make(out: Path, numbers: dict[str, int], tokenizer: MarianTokenizer, **more) -> None:
    """Writes the folder of a model whose sources have these ids, and what it gives."""
    pad = numbers["<pad>"]
    special = dict(pad_token_id=pad, eos_token_id=0, decoder_start_token_id=pad, forced_eos_token_id=0)
    model = MarianMTModel(MarianConfig(
        vocab_size=len(numbers), d_model=16, encoder_layers=2, decoder_layers=1, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=LENGTH, dropout=0.0,
        activation_function="silu", scale_embedding=True, **special, **more,
    )).eval()
    draw(model, 37)
    model.generation_config = GenerationConfig(num_beams=4, max_length=20, bad_words_ids=[[pad]], **special)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)

    sources = [tokenizer(text).input_ids for text in TEXTS]
    goals = [tokenizer(text_target=text).input_ids for text in GOALS]
    learn_padding(model)
    expect(out, __file__, model, tokenizer.decode, {"texts": TEXTS}, sources, dict(zip(GOALS, goals)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "crates" / "run" / "tests" / "golden")
    golden = parser.parse_args().out
    setup()
    out = golden / "marian"
    _, both = learn(out, "nmt_nfkc")
    numbers = write(out / "vocab.json", ["</s>", "<unk>", *both, ">>deu<<", "<pad>"])
    files = [str(out / name) for name in ("source.spm", "target.spm", "vocab.json")]
    make(out, numbers, MarianTokenizer(*files))

    out = golden / "marian-two"
    source, both = learn(out, "identity")
    numbers = write(out / "vocab.json", ["</s>", "<unk>", "<pad>", *source, ">>deu<<"])
    targets = write(out / "target_vocab.json", ["</s>", "<unk>", "<pad>", *both[len(source):]])
    files = [str(out / name) for name in ("source.spm", "target.spm", "vocab.json", "target_vocab.json")]
    tokenizer = MarianTokenizer(*files, separate_vocabs=True)
    make(out, numbers, tokenizer, share_encoder_decoder_embeddings=False, decoder_vocab_size=len(targets))


if __name__ == "__main__":
    main()
