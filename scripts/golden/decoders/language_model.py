"""Makes language-model-*.safetensors: loss, logits and every gradient of small decoder-only Transformers.

Layers, random parameters and names are those of translation/transformer.py; self-attention is causal and nothing else
is attended to. PyTorch sees padded tensors and masks, the files hold only real positions, one sequence after another.
The reference runs in float64 from parameters that float32 holds exactly and is rounded once, on saving. Before a file
is written, the script checks it against torch.nn.TransformerEncoder with a causal mask, and against PyTorch's own
float32.
"""

import argparse
import math
from dataclasses import asdict
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..common import causal_mask, default_folder, pack, relative_error, save, setup
from ..translation.transformer import (
    FEED_FORWARD_DIM, HEADS, MODEL_DIM, NORM_EPSILON, PAD, TOLERANCE, Case, Stack, fill, our_names, padded, sinusoids,
)

VOCABULARY = 37
MOST_POSITIONS = 16
LABEL_SMOOTHING = 0.1

# Case(tied="all") ties the output projection to the embedding. Learned positions and no scale are GPT-2's.
CASES = [
    (Case("language-model-learned", seed=7, activation="gelu"), "learned"),
    (Case("language-model-sinusoidal", seed=8, activation="swish", norm="post", tied="none"), "sinusoidal"),
]


class LanguageModel(nn.Module):
    def __init__(self, case: Case, positions: str):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, MODEL_DIM)
        if case.tied == "none":
            self.output = nn.Linear(MODEL_DIM, VOCABULARY, bias=False)
        self.decoder = Stack(case, case.decoder_layers, cross=False)
        if positions == "learned":
            self.decoder.positions = nn.Embedding(MOST_POSITIONS, MODEL_DIM)

    def embed(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        if hasattr(self.decoder, "positions"):
            return x + self.decoder.positions.weight[: ids.shape[1]]
        return x * math.sqrt(MODEL_DIM) + sinusoids(ids.shape[1]).to(x.dtype)

    def forward(self, ids: Tensor) -> Tensor:
        states = self.decoder(self.embed(ids), ids == PAD, causal_mask(ids.shape[1]))
        return F.linear(states, self.output.weight if hasattr(self, "output") else self.embedding.weight)


def run(case: Case, positions: str, rows: list[list[int]], dtype: torch.dtype):
    """Forward and backward; the outputs and every gradient."""
    model = LanguageModel(case, positions).to(dtype)
    fill(model, case.seed)
    text, answers = padded([row[:-1] for row in rows]), padded([row[1:] for row in rows])
    logits = model(text)
    losses = [
        F.cross_entropy(logits.flatten(0, 1), answers.flatten(), label_smoothing=smoothing, ignore_index=PAD)
        for smoothing in (LABEL_SMOOTHING, 0.0)
    ]
    losses[0].backward()
    results = {"logits": pack(logits, [len(row) - 1 for row in rows]), "loss": losses[0], "nll": losses[1]}
    for name, parameter in model.named_parameters():
        results |= {f"grad.{key}": gradient for key, gradient in our_names(name, parameter.grad).items()}
    return model, {name: tensor.detach() for name, tensor in results.items()}


def encoder_of(case: Case, decoder: Stack) -> nn.TransformerEncoder:
    """A torch.nn.TransformerEncoder in double with the parameters of `decoder`."""
    layer = nn.TransformerEncoderLayer(
        MODEL_DIM, HEADS, FEED_FORWARD_DIM, dropout=0.0, batch_first=True, norm_first=case.norm == "pre",
        activation={"gelu": F.gelu, "swish": F.silu}[case.activation], layer_norm_eps=NORM_EPSILON,
    )
    norm = nn.LayerNorm(MODEL_DIM, eps=NORM_EPSILON) if case.norm == "pre" else None
    stack = nn.TransformerEncoder(layer, case.decoder_layers, norm, enable_nested_tensor=False).double()
    state = {}
    for name, tensor in decoder.state_dict().items():
        for old, new in [
            ("self_attention_norm", "norm1"), ("feed_forward_norm", "norm2"), ("final_norm", "norm"),
            ("self_attention", "self_attn"), ("feed_forward.up", "linear1"), ("feed_forward.down", "linear2"),
        ]:
            name = name.replace(old, new)
        state[name] = tensor
    state.pop("positions.weight", None)
    stack.load_state_dict(state)
    return stack


def check_stack(case: Case, model: LanguageModel, rows: list[list[int]], logits: Tensor) -> None:
    """The same by torch.nn.TransformerEncoder, from the same parameters."""
    text = padded([row[:-1] for row in rows])
    stack = encoder_of(case, model.decoder)
    states = stack(model.embed(text), mask=causal_mask(text.shape[1]), src_key_padding_mask=text == PAD)
    theirs = F.linear(states, model.output.weight if hasattr(model, "output") else model.embedding.weight)
    assert relative_error(pack(theirs, [len(row) - 1 for row in rows]), logits) < 1e-12, case.name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=default_folder(__file__))
    arguments = parser.parse_args()
    setup()
    for case, positions in CASES:
        generator = torch.Generator().manual_seed(100 + case.seed)
        rows = [torch.randint(1, VOCABULARY, (count,), generator=generator).tolist() for count in (6, 2, 13, 9)]
        model, results = run(case, positions, rows, torch.float64)
        check_stack(case, model, rows, results["logits"])
        _, single = run(case, positions, rows, torch.float32)
        errors = {name: relative_error(single[name], results[name]) for name in results}
        worst = max(errors, key=errors.get)
        print(f"{case.name}: PyTorch in float32 is within {errors[worst]:.1e} relative of float64 ({worst})")
        assert errors[worst] < TOLERANCE
        tensors: dict[str, Tensor] = {}
        for name, parameter in model.named_parameters():
            tensors |= our_names(name, parameter)
        tensors["text_ids"] = torch.tensor([token for row in rows for token in row[:-1]])
        tensors["answers"] = torch.tensor([token for row in rows for token in row[1:]])
        tensors["lengths"] = torch.tensor([len(row) - 1 for row in rows])
        settings = asdict(case) | {
            "positions": positions, "model_dim": MODEL_DIM, "heads": HEADS, "feed_forward_dim": FEED_FORWARD_DIM,
            "norm_epsilon": NORM_EPSILON, "label_smoothing": LABEL_SMOOTHING,
        }
        save(arguments.out / f"{case.name}.safetensors", __file__, tensors | results, **settings)


if __name__ == "__main__":
    main()
