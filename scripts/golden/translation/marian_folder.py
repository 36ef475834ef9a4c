"""Makes the folder marian: a small MarianMT with random weights as Transformers saves it, and what it gives.

The pieces of both languages are those of SentencePiece, trained here on a few lines; one piece in nine has no id in
`vocab.json`. `expected.safetensors` has token ids of sources and targets, one after another, and from them the logits and
the gradient of every parameter under the name that Transformers gives it, in float64. `expected.json` has ids of texts, and
what `generate` writes, greedily and with a beam of 4. Needs `pip install sentencepiece`, beside the other packages.
"""

import argparse
import copy
import json
from pathlib import Path

import sentencepiece
import torch
import transformers
from torch import Tensor
from transformers import GenerationConfig, MarianConfig, MarianMTModel, MarianTokenizer

from ..common import ROOT, relative_error, save, setup

TEXTS = [
    "The seagulls sail on.", "Nothing is lost!", "Sailing, sailing; 7 ships", "Café  unlost ", ">>deu<< The ships sail.",
    "The ships are lost in the seas, and nothing sails on.", "ﬁne ①", "Is it the ship?",
]
GOALS = ["Die Möwen segeln.", "Nichts ist verloren!", "Segeln, segeln; 7 Schiffe", "Die Schiffe sind auf See verloren."]
TOLERANCE = 3e-6
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


def outputs(model: MarianMTModel, sources: list[list[int]], goals: list[list[int]]) -> dict[str, Tensor]:
    logits, loss = [], 0.0
    # A bias that Transformers does not train, and Taper does.
    model.final_logits_bias = model.final_logits_bias.detach().requires_grad_()
    for source, goal in zip(sources, goals):
        output = model(input_ids=torch.tensor([source]), labels=torch.tensor([goal]))
        logits.append(output.logits[0])
        loss = loss + output.loss * len(goal)
    loss = loss / sum(map(len, goals))
    model.zero_grad()
    loss.backward()
    trained = [*model.named_parameters(), ("final_logits_bias", model.final_logits_bias)]
    gradients = {f"grad.{name}": parameter.grad for name, parameter in trained if parameter.grad is not None}
    return {"logits": torch.cat(logits), "loss": loss} | gradients


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
    generator = torch.Generator().manual_seed(37)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" in name:
                continue
            is_norm = "norm" in name and name.endswith("weight")
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3 + (1.0 if is_norm else 0.0))
        model.final_logits_bias += torch.randn(1, len(tokens), generator=generator) * 0.5
    model.generation_config = GenerationConfig(num_beams=4, max_length=20, bad_words_ids=[[pad]], **special)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)

    sources = [tokenizer(text).input_ids for text in TEXTS]
    goals = [tokenizer(text_target=text).input_ids for text in GOALS]
    rows = sources[: len(goals)]
    # The row of padding, with which a target begins, learns nothing in Transformers, and here it does.
    model.model.shared.padding_idx = None
    for part in (model.model.encoder, model.model.decoder):
        part.embed_tokens.padding_idx = None
    results, single = outputs(copy.deepcopy(model).double(), rows, goals), outputs(model, rows, goals)
    errors = {name: relative_error(single[name], value) for name, value in results.items() if value.norm() > 1e-9}
    worst = max(errors, key=errors.get)
    print(f"marian: float32 is within {errors[worst]:.1e} relative of float64 ({worst})")
    assert errors[worst] < TOLERANCE
    flat = lambda lists: torch.tensor([item for one in lists for item in one])
    lengths = lambda lists: torch.tensor([len(one) for one in lists])
    data = {"sources": flat(rows), "source_lengths": lengths(rows), "targets": flat(goals), "target_lengths": lengths(goals)}
    results = {name: value.detach().clone() for name, value in results.items()}
    save(out / "expected.safetensors", __file__, data | results, transformers=transformers.__version__)

    model.requires_grad_(False)

    def written(beams: int) -> list[str]:
        found = [model.generate(torch.tensor([row]), num_beams=beams)[0] for row in sources]
        return [tokenizer.decode(row, skip_special_tokens=True) for row in found]

    expected = {"texts": TEXTS, "sources": sources, "goals": dict(zip(GOALS, goals)), "greedy": written(1), "beam": written(4)}
    (out / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
