"""Makes in-context-*.safetensors: predictions, squared error and every gradient of small in-context regressors.

Layers, random parameters and names are those of translation/transformer.py; self-attention is causal and nothing else
is attended to. A point x is read in as the vector (0, x) and a value y as (y, 0), by one linear layer (Akyürek et al.
2023). The file holds the numbers x1, y1, x2 ... up to the last x of each function, and all y as answers. PyTorch sees
padded tensors and masks. The reference runs in float64 from parameters and numbers that float32 holds exactly and is
rounded once, on saving. Before a file is written, the script checks it against torch.nn.TransformerEncoder with a
causal mask, and against PyTorch's own float32.
"""

import argparse
from dataclasses import asdict
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..common import causal_mask, default_folder, relative_error, save, setup
from ..translation.transformer import (
    FEED_FORWARD_DIM, HEADS, MODEL_DIM, NORM_EPSILON, TOLERANCE, Case, Stack, fill, our_names, sinusoids,
)
from .language_model import MOST_POSITIONS, encoder_of

DIMENSIONS = 3
# Points of each function: 2 P - 1 tokens, at most MOST_POSITIONS.
POINTS = [4, 1, 8, 6]
NOISE = 0.5

CASES = [
    (Case("in-context-learned", seed=17, activation="gelu"), "learned"),
    (Case("in-context-sinusoidal", seed=18, activation="swish", norm="post"), "sinusoidal"),
]


class Regressor(nn.Module):
    def __init__(self, case: Case, positions: str):
        super().__init__()
        self.read_in = nn.Linear(DIMENSIONS + 1, MODEL_DIM)
        self.decoder = Stack(case, case.decoder_layers, cross=False)
        if positions == "learned":
            self.decoder.positions = nn.Embedding(MOST_POSITIONS, MODEL_DIM)
        self.read_out = nn.Linear(MODEL_DIM, 1)

    def embed(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        if hasattr(self.decoder, "positions"):
            return self.read_in(tokens) + self.decoder.positions.weight[:length]
        return self.read_in(tokens) + sinusoids(length).to(tokens.dtype)

    def answer(self, states: Tensor) -> Tensor:
        """What y is at each x, which are the tokens of even number."""
        return self.read_out(states[:, ::2]).squeeze(-1)

    def forward(self, tokens: Tensor, padding: Tensor) -> Tensor:
        return self.answer(self.decoder(self.embed(tokens), padding, causal_mask(tokens.shape[1])))


def draw(seed: int) -> list[tuple[Tensor, Tensor]]:
    """Points and noisy values of random linear functions, exact in float32."""
    generator = torch.Generator().manual_seed(100 + seed)
    functions = []
    for count in POINTS:
        x = torch.randn(count, DIMENSIONS, generator=generator)
        y = x @ torch.randn(DIMENSIONS, generator=generator) + NOISE * torch.randn(count, generator=generator)
        functions.append((x, y))
    return functions


def batch(functions: list[tuple[Tensor, Tensor]], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Tokens (0, x) and (y, 0), one after the other and padded with zeros, and which are padding."""
    most = 2 * max(POINTS) - 1
    tokens, padding = torch.zeros(len(functions), most, DIMENSIONS + 1, dtype=dtype), torch.ones(len(functions), most)
    for row, (x, y) in enumerate(functions):
        end = 2 * len(y) - 1
        tokens[row, 0:end:2, 1:] = x.to(dtype)
        tokens[row, 1:end:2, 0] = y[:-1].to(dtype)
        padding[row, :end] = 0
    return tokens, padding.bool()


def real(predictions: Tensor) -> Tensor:
    """Those of points that there are, one function after the other."""
    return torch.cat([row[:count] for row, count in zip(predictions, POINTS)])


def run(case: Case, positions: str, functions: list[tuple[Tensor, Tensor]], dtype: torch.dtype):
    """Forward and backward; the outputs and every gradient."""
    model = Regressor(case, positions).to(dtype)
    fill(model, case.seed)
    predictions = real(model(*batch(functions, dtype)))
    loss = F.mse_loss(predictions, torch.cat([y for _, y in functions]).to(dtype))
    loss.backward()
    results = {"predictions": predictions, "loss": loss}
    for name, parameter in model.named_parameters():
        results |= {f"grad.{key}": gradient for key, gradient in our_names(name, parameter.grad).items()}
    return model, {name: tensor.detach() for name, tensor in results.items()}


def check_stack(case: Case, model: Regressor, functions: list[tuple[Tensor, Tensor]], predictions: Tensor) -> None:
    """The same by torch.nn.TransformerEncoder, from the same parameters."""
    tokens, padding = batch(functions, torch.float64)
    states = encoder_of(case, model.decoder)(
        model.embed(tokens), mask=causal_mask(tokens.shape[1]), src_key_padding_mask=padding
    )
    assert relative_error(real(model.answer(states)), predictions) < 1e-12, case.name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=default_folder(__file__))
    arguments = parser.parse_args()
    setup()
    for case, positions in CASES:
        functions = draw(case.seed)
        model, results = run(case, positions, functions, torch.float64)
        check_stack(case, model, functions, results["predictions"])
        _, single = run(case, positions, functions, torch.float32)
        errors = {name: relative_error(single[name], results[name]) for name in results}
        worst = max(errors, key=errors.get)
        print(f"{case.name}: PyTorch in float32 is within {errors[worst]:.1e} relative of float64 ({worst})")
        assert errors[worst] < TOLERANCE
        tensors: dict[str, Tensor] = {}
        for name, parameter in model.named_parameters():
            tensors |= our_names(name, parameter)
        rows = [torch.cat([x, y[:, None]], 1).flatten()[:-1] for x, y in functions]
        tensors["numbers"] = torch.cat(rows)
        tensors["lengths"] = torch.tensor([len(row) for row in rows])
        tensors["answers"] = torch.cat([y for _, y in functions])
        settings = asdict(case) | {
            "positions": positions, "model_dim": MODEL_DIM, "heads": HEADS, "feed_forward_dim": FEED_FORWARD_DIM,
            "norm_epsilon": NORM_EPSILON, "dimensions": DIMENSIONS,
        }
        save(arguments.out / f"{case.name}.safetensors", __file__, tensors | results, **settings)


if __name__ == "__main__":
    main()
