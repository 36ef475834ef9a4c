"""Makes the folder gpt2: a small GPT-2 with random weights as Transformers saves it, and what it gives.

`config.json`, `model.safetensors` and `tokenizer.json` are those of `GPT2LMHeadModel.save_pretrained` and of a
byte-level BPE tokenizer whose last token is `<|endoftext|>`, as GPT-2's is. `expected.safetensors` has token ids of
several texts, one after another, and from them logits, the mean loss of each next token, and the gradient of every
parameter under the name that Transformers gives it. The reference runs in float64 from the saved weights and is rounded
once, on saving; Transformers' own float32 has to agree with it.
"""

import argparse
import copy
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from ..common import ROOT, relative_error, save, setup

TEXTS = ["The sea, the sea!", "!", "Nothing is lost, and 7 ships sail on\nto the sea.", "café"]
TOLERANCE = 3e-6


def tokenizer() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=271, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(TEXTS * 3, trainer)
    made.add_special_tokens(["<|endoftext|>"])
    return made


def run(model: GPT2LMHeadModel, rows: list[list[int]]) -> dict[str, Tensor]:
    """Forward and backward over padded rows, which the causal mask keeps from mattering."""
    model.zero_grad()
    longest = max(len(row) for row in rows)
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    labels = torch.tensor([row + [-100] * (longest - len(row)) for row in rows])
    output = model(ids, labels=labels)
    output.loss.backward()
    # The last token of a text is asked for nothing.
    logits = torch.cat([output.logits[i, : len(row) - 1] for i, row in enumerate(rows)])
    results = {"logits": logits, "loss": output.loss}
    results |= {f"grad.{name}": parameter.grad for name, parameter in model.named_parameters()}
    return {name: tensor.detach().clone() for name, tensor in results.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = ROOT / "crates" / "run" / "tests" / "golden" / "gpt2"
    parser.add_argument("--out", type=Path, default=default)
    out = parser.parse_args().out
    setup()
    words = tokenizer()
    end = words.token_to_id("<|endoftext|>")
    config = GPT2Config(
        vocab_size=words.get_vocab_size(), n_positions=40, n_embd=16, n_layer=2, n_head=4, bos_token_id=end,
        eos_token_id=end, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )
    model = GPT2LMHeadModel(config).eval()
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = ".ln_" in name and name.endswith("weight")
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2 + (1.0 if is_norm else 0.0))
    model.save_pretrained(out)
    (out / "generation_config.json").unlink(missing_ok=True)
    words.save(str(out / "tokenizer.json"))
    rows = [[end] + words.encode(text).ids for text in TEXTS]
    results = run(copy.deepcopy(model).double(), rows)
    single = run(model, rows)
    errors = {name: relative_error(single[name], results[name]) for name in results}
    worst = max(errors, key=errors.get)
    print(f"Transformers in float32 is within {errors[worst]:.1e} relative of float64 ({worst})")
    assert errors[worst] < TOLERANCE
    tensors = {
        "ids": torch.tensor([token for row in rows for token in row]),
        "lengths": torch.tensor([len(row) for row in rows]),
    }
    save(out / "expected.safetensors", __file__, tensors | results, transformers=transformers.__version__)


if __name__ == "__main__":
    main()
