"""Makes the folders nllb, bart and mbart: small models with random weights as Transformers saves them, and what they give.

BART's descendants have tensors of the same names: NLLB (an M2M100) has sinusoids from position 2 on and norms before
sublayers, BART learned positions and norms behind, mBART of 50 languages learned positions and norms before. The tokenizers
are trained here on a few lines. `expected.safetensors` has token ids of sources and targets, one after another, and from
them the logits and the gradient of every parameter under the name that Transformers gives it, in float64. `expected.json`
has ids of texts, and what `generate` writes, greedily and with a beam of 4.
"""

import argparse
import copy
import json
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import GenerationConfig

from ..common import ROOT, relative_error, save, setup

TEXTS = [
    "The seagulls sail on.", "Nothing is lost!", "Sailing, sailing; 7 ships", "The ships are lost", "Is it the ship?",
    "The ships are lost in the seas, and nothing sails on.",
]
GOALS = ["Die Möwen segeln.", "Nichts ist verloren!", "Segeln, segeln; 7 Schiffe", "Die Schiffe sind auf See verloren."]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
TOLERANCE = 3e-6
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


def outputs(model, sources: list[list[int]], goals: list[list[int]]) -> dict[str, Tensor]:
    logits, loss = [], 0.0
    trained = list(model.named_parameters())
    if hasattr(model, "final_logits_bias"):
        # A bias that Transformers does not train, and Taper does.
        model.final_logits_bias = model.final_logits_bias.detach().requires_grad_()
        trained.append(("final_logits_bias", model.final_logits_bias))
    for source, goal in zip(sources, goals):
        output = model(input_ids=torch.tensor([source]), labels=torch.tensor([goal]))
        logits.append(output.logits[0])
        loss = loss + output.loss * len(goal)
    loss = loss / sum(map(len, goals))
    model.zero_grad()
    loss.backward()
    gradients = {f"grad.{name}": parameter.grad for name, parameter in trained if parameter.grad is not None}
    return {"logits": torch.cat(logits), "loss": loss} | gradients


def make(out: Path, seed: int, tokenizer, model, begin: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    model.eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:  # sinusoids
                continue
            is_norm = "norm" in name and name.endswith("weight")
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3 + (1.0 if is_norm else 0.0))
        if hasattr(model, "final_logits_bias"):
            bias = model.final_logits_bias
            bias += torch.randn(bias.shape, generator=generator) * 0.5
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
    rows = sources[: len(goals)]
    # The row of padding learns nothing in Transformers, where a Pegasus begins with it, and here it does.
    model.model.shared.padding_idx = None
    for part in (model.model.encoder, model.model.decoder):
        part.embed_tokens.padding_idx = None
    results, single = outputs(copy.deepcopy(model).double(), rows, goals), outputs(model, rows, goals)
    errors = {name: relative_error(single[name], value) for name, value in results.items() if value.norm() > 1e-9}
    worst = max(errors, key=errors.get)
    print(f"{out.name}: float32 is within {errors[worst]:.1e} relative of float64 ({worst})")
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "crates" / "run" / "tests" / "golden")
    out = parser.parse_args().out
    setup()
    for seed, family in [(41, nllb), (42, bart), (43, mbart)]:
        make(out / family.__name__, seed, *family())


if __name__ == "__main__":
    main()
