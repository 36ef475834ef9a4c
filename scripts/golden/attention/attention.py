"""Makes attention.safetensors: multi-head attention by torch.nn.MultiheadAttention.

Three cases, each a batch of sentences of different lengths (one of a single token): `self`, `self_causal`
and `cross`. PyTorch sees padded tensors and masks; the file holds only the real rows, one sentence after
another. The reference runs in float64 from values that float32 holds exactly and is rounded once, on saving.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn

from ..common import (
    HEADS, MODEL_DIM, causal_mask, default_folder, pack, pad, padding_mask, random, relative_error, save, setup,
)

# Bounds ‖Δ‖ of an output, and ‖Δ‖ / ‖reference‖ of everything (gradients are larger than outputs).
TOLERANCE = 3e-6


def attend(
    weights: dict[str, Tensor], query: Tensor, key: Tensor, query_lengths: list[int], key_lengths: list[int],
    causal: bool, output_gradient: Tensor, dtype: torch.dtype,
) -> dict[str, Tensor]:
    """Runs nn.MultiheadAttention forward and backward in `dtype`; every result is packed.

    `key` is `query` itself (the same object) in self-attention.
    """
    module = nn.MultiheadAttention(MODEL_DIM, HEADS, batch_first=True, dtype=dtype)
    module.load_state_dict(
        {
            "in_proj_weight": weights["qkv.weight"],
            "in_proj_bias": weights["qkv.bias"],
            "out_proj.weight": weights["out.weight"],
            "out_proj.bias": weights["out.bias"],
        }
    )
    packed_query = query.to(dtype, copy=True).requires_grad_()
    packed_key = packed_query if key is query else key.to(dtype, copy=True).requires_grad_()
    padded_query = pad(packed_query, query_lengths)
    padded_key = pad(packed_key, key_lengths)
    padded_output, probabilities = module(
        padded_query, padded_key, padded_key,
        key_padding_mask=padding_mask(key_lengths),
        attn_mask=causal_mask(max(query_lengths)) if causal else None,
        average_attn_weights=False,
    )
    output = pack(padded_output, query_lengths)
    output.backward(output_gradient.to(dtype))
    # Probabilities stay padded, (B, H, Lq, Lk); rows of padding queries mean nothing and are zeroed.
    probabilities = probabilities.masked_fill(padding_mask(query_lengths)[:, None, :, None], 0.0)
    results = {
        "output": output,
        "probabilities": probabilities,
        "grad.query": packed_query.grad,
        "grad.qkv.weight": module.in_proj_weight.grad,
        "grad.qkv.bias": module.in_proj_bias.grad,
        "grad.out.weight": module.out_proj.weight.grad,
        "grad.out.bias": module.out_proj.bias.grad,
    }
    if packed_key is not packed_query:
        results["grad.key"] = packed_key.grad
    return {name: tensor.detach() for name, tensor in results.items()}


def rename(case: str, name: str) -> str:
    """In self-attention the query is simply the input."""
    if case == "cross":
        return f"{case}.{name}"
    return f"{case}.{name.replace('query', 'input')}"


def split_projection(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Cross-attention keeps its query projection apart from the stacked key and value ones."""
    split = {}
    for name, tensor in tensors.items():
        if "qkv" in name:
            split[name.replace("qkv", "q")] = tensor[:MODEL_DIM]
            split[name.replace("qkv", "kv")] = tensor[MODEL_DIM:]
        else:
            split[name] = tensor
    return split


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=default_folder(__file__))
    arguments = parser.parse_args()
    setup()
    generator = torch.Generator().manual_seed(20170612)
    tensors: dict[str, Tensor] = {}
    for case in ["self", "self_causal", "cross"]:
        query_lengths = [5, 1, 3]
        key_lengths = [4, 6, 1] if case == "cross" else query_lengths
        weights = {
            "qkv.weight": random(generator, 3 * MODEL_DIM, MODEL_DIM, scale=MODEL_DIM**-0.5),
            "qkv.bias": random(generator, 3 * MODEL_DIM, scale=0.1),
            "out.weight": random(generator, MODEL_DIM, MODEL_DIM, scale=MODEL_DIM**-0.5),
            "out.bias": random(generator, MODEL_DIM, scale=0.1),
        }
        query = random(generator, sum(query_lengths), MODEL_DIM)
        key = random(generator, sum(key_lengths), MODEL_DIM) if case == "cross" else query
        output_gradient = random(generator, sum(query_lengths), MODEL_DIM)
        inputs = (weights, query, key, query_lengths, key_lengths, case == "self_causal", output_gradient)
        results = attend(*inputs, torch.float64)

        # PyTorch's own float32 must keep the bounds, or they would ask for too much.
        single = attend(*inputs, torch.float32)
        distance = float((single["output"].double() - results["output"]).norm())
        errors = {name: relative_error(single[name], results[name]) for name in results}
        worst = max(errors, key=errors.get)
        print(f"{case}: float32 is off by {distance:.1e} in the output, {errors[worst]:.1e} relative at most ({worst})")
        assert distance < TOLERANCE and errors[worst] < TOLERANCE

        stored = weights | {"query": query, "output_gradient": output_gradient} | results
        if case == "cross":
            stored = split_projection(stored | {"key": key})
            stored["query_lengths"] = torch.tensor(query_lengths)
            stored["key_lengths"] = torch.tensor(key_lengths)
        else:
            stored["lengths"] = torch.tensor(query_lengths)
        tensors |= {rename(case, name): tensor for name, tensor in stored.items()}
    save(arguments.out / "attention.safetensors", __file__, tensors, model_dim=MODEL_DIM, heads=HEADS)


if __name__ == "__main__":
    main()
