"""Makes grouped-attention.safetensors: heads that share keys and values, by PyTorch's scaled_dot_product_attention.

Each case has heads whose widths do not sum to the width of the inputs: `grouped` (causal, with the rotary positions
of the library Transformers' Llama), `multi_query` (a single head of keys and values, scores without a factor, as T5's)
and `cross` (to another sequence, with a factor of its own). In `norm_per_head` and `cross_norm` queries and keys have
RMS norms, as in Qwen3, and in `norm_of_all_heads` layer norms, all before they are rotated. Queries, keys and values
have biases, and the projection of the result has none, as in Qwen2. PyTorch sees padded tensors and masks; the file
holds only the real rows, one sentence after another. The reference runs in float64 from values that float32 holds
exactly and is rounded once, on saving.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from torch import Tensor
from torch.nn.functional import layer_norm, linear, rms_norm, scaled_dot_product_attention
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from ..common import causal_mask, default_folder, pack, pad, padding_mask, random, relative_error, save, setup

# Width of the inputs and of the output.
MODEL_DIM = 10
# Number added to the variance in norms.
EPSILON = 1e-5
# Bound ‖Δ‖ / ‖reference‖ of PyTorch's own float32.
TOLERANCE = 3e-6


@dataclass
class Case:
    name: str
    heads: int
    key_value_heads: int
    head_width: int
    # None: 1 / √head_width.
    scale: float | None
    query_lengths: list[int]
    key_lengths: list[int] | None = None
    causal: bool = False
    rotary: bool = False
    # Norm of queries and keys: RMS or layer norms, of each head or of all heads together.
    norm: str | None = None
    all_heads: bool = False


CASES = [
    Case("grouped", 4, 2, 6, None, [5, 1, 3], causal=True, rotary=True),
    Case("multi_query", 3, 1, 4, 1.0, [4, 6]),
    Case("cross", 6, 3, 4, 0.3, [2, 5, 1], key_lengths=[4, 1, 6]),
    Case("norm_per_head", 4, 2, 6, None, [5, 1, 3], causal=True, rotary=True, norm="rms"),
    Case("norm_of_all_heads", 4, 2, 6, None, [4, 3], causal=True, rotary=True, norm="layer", all_heads=True),
    Case("cross_norm", 6, 3, 4, None, [2, 5], key_lengths=[4, 6], norm="rms"),
]


def rotated(query: Tensor, key: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Llama's rotation: element i of a head with element i + width / 2."""
    positions = torch.arange(query.shape[2], dtype=torch.float64)
    frequencies = 10_000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.outer(positions, frequencies).repeat(1, 2)[None]
    return apply_rotary_pos_emb(query, key, angles.cos().to(query.dtype), angles.sin().to(query.dtype))


def attend(case: Case, inputs: dict[str, Tensor], output_gradient: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
    """Runs the attention forward and backward in `dtype`; every result is packed."""
    leaves = {name: value.to(dtype, copy=True).requires_grad_() for name, value in inputs.items()}
    key_lengths = case.key_lengths or case.query_lengths
    source = leaves.get("key", leaves["query"])
    widths = [case.heads * case.head_width, *[case.key_value_heads * case.head_width] * 2]
    weights, biases = leaves["qkv.weight"].split(widths), leaves["qkv.bias"].split(widths)

    def heads(x: Tensor, lengths: list[int], part: int) -> Tensor:
        projected = linear(x, weights[part], biases[part])
        if case.norm and part < 2:
            weight = leaves[f"{'query' if part == 0 else 'key'}_norm.weight"]
            groups = projected.unflatten(1, (-1, len(weight)))
            if case.norm == "rms":
                normal = rms_norm(groups, weight.shape, weight, EPSILON)
            else:
                bias = leaves[f"{'query' if part == 0 else 'key'}_norm.bias"]
                normal = layer_norm(groups, weight.shape, weight, bias, EPSILON)
            projected = normal.flatten(1)
        projected = pad(projected, lengths)
        return projected.unflatten(2, (-1, case.head_width)).transpose(1, 2)

    query = heads(leaves["query"], case.query_lengths, 0)
    key, value = heads(source, key_lengths, 1), heads(source, key_lengths, 2)
    if case.rotary:
        query, key = rotated(query, key, case.head_width)
    hidden = padding_mask(key_lengths)[:, None, None, :].expand(-1, 1, query.shape[2], -1)
    if case.causal:
        hidden = hidden | causal_mask(query.shape[2])
    mixed = scaled_dot_product_attention(query, key, value, attn_mask=~hidden, scale=case.scale, enable_gqa=True)
    output = linear(pack(mixed.transpose(1, 2).flatten(2), case.query_lengths), leaves["out.weight"])
    output.backward(output_gradient.to(dtype))
    return {"output": output.detach()} | {f"grad.{name}": leaf.grad for name, leaf in leaves.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=default_folder(__file__))
    arguments = parser.parse_args()
    setup()
    generator = torch.Generator().manual_seed(20230522)
    tensors: dict[str, Tensor] = {}
    for case in CASES:
        width = case.heads * case.head_width
        projected = width + 2 * case.key_value_heads * case.head_width
        inputs = {
            "query": random(generator, sum(case.query_lengths), MODEL_DIM),
            "qkv.weight": random(generator, projected, MODEL_DIM, scale=MODEL_DIM**-0.5),
            "qkv.bias": random(generator, projected, scale=0.1),
            "out.weight": random(generator, MODEL_DIM, width, scale=width**-0.5),
        }
        for part, columns in [("query", width), ("key", (projected - width) // 2)] if case.norm else []:
            group = columns if case.all_heads else case.head_width
            inputs[f"{part}_norm.weight"] = random(generator, group, scale=0.2, mean=1.0)
            if case.norm == "layer":
                inputs[f"{part}_norm.bias"] = random(generator, group, scale=0.2)
        stored = {"query_lengths": torch.tensor(case.query_lengths)}
        if case.key_lengths:
            inputs["key"] = random(generator, sum(case.key_lengths), MODEL_DIM)
            stored["key_lengths"] = torch.tensor(case.key_lengths)
        output_gradient = random(generator, sum(case.query_lengths), MODEL_DIM)
        results = attend(case, inputs, output_gradient, torch.float64)

        # PyTorch's own float32 must keep the bound, or it would ask for too much.
        single = attend(case, inputs, output_gradient, torch.float32)
        errors = {name: relative_error(single[name], results[name]) for name in results}
        worst = max(errors, key=errors.get)
        print(f"{case.name}: float32 is off by {errors[worst]:.1e} relative at most ({worst})")
        assert errors[worst] < TOLERANCE

        stored |= inputs | {"output_gradient": output_gradient} | results
        tensors |= {f"{case.name}.{name}": tensor for name, tensor in stored.items()}
    save(
        arguments.out / "grouped-attention.safetensors", __file__, tensors,
        model_dim=MODEL_DIM, transformers=transformers.__version__,
    )


if __name__ == "__main__":
    main()
