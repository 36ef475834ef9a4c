"""Makes sparse-attention.safetensors: sparse self-attention by the Longformer and BigBird of transformers.

Three cases, each one sentence: `window` (Longformer's sliding window), `global` (the same with global tokens at the
beginning) and `random` (BigBird's blocks). Longformer projects global tokens once more; here both projections are one.
BigBird draws its random blocks from NumPy; here they are those that Taper draws, whose rule `drawn` repeats. Before the
file is written, each result is compared with dense attention under the mask that the rule describes.

Longformer's softmax is in float32 whatever its inputs are; all else is in float64.
"""

import argparse
from pathlib import Path

import torch
import transformers
from torch import Tensor
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention, BigBirdConfig, BigBirdModel
from transformers.models.longformer.modeling_longformer import LongformerConfig, LongformerSelfAttention

from ..common import HEADS, MODEL_DIM, default_folder, random, relative_error, save, setup

TOLERANCE = 1e-6
WORD = 2**64
GOLDEN = 0x9E3779B97F4A7C15
NAMES = ["query", "key", "value"]


def finalise(z: int) -> int:
    """SplitMix64's finaliser."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


def mix(seed: int, words: list[int]) -> int:
    key = finalise((seed + GOLDEN) % WORD)
    for word in words:
        key = finalise(((key + GOLDEN) % WORD) ^ finalise((word + GOLDEN) % WORD))
    return key


def drawn(seed: int, head: int, block: int, blocks: int, count: int) -> list[int]:
    """The random blocks of a block that is not global: neither its neighbours nor the first or the last."""
    key = mix(seed, [head, block])
    found: list[int] = []
    attempt = 0
    while len(found) < count:
        other = finalise((key + attempt * GOLDEN) % WORD) % blocks
        attempt += 1
        if abs(block - other) > 1 and other not in (0, blocks - 1) and other not in found:
            found.append(other)
    return sorted(found)


def dense(weights: dict[str, Tensor], x: Tensor, sees: Tensor) -> Tensor:
    """Attention with all scores, of which those that are not seen are −∞; `sees` is (H or 1, T, T)."""
    length = x.shape[0]
    query, key, value = (
        (x @ part.T + bias).reshape(length, HEADS, -1).transpose(0, 1)
        for part, bias in zip(weights["qkv.weight"].chunk(3), weights["qkv.bias"].chunk(3))
    )
    scores = query @ key.transpose(1, 2) * query.shape[-1] ** -0.5
    return (scores.masked_fill(~sees, -torch.inf).softmax(-1) @ value).transpose(0, 1).reshape(length, MODEL_DIM)


def longformer(window: int, first: int, length: int):
    """A window of `window` tokens to each side, the token's own among them; and the rule as a mask."""
    config = LongformerConfig(
        hidden_size=MODEL_DIM, num_attention_heads=HEADS, attention_window=[2 * (window - 1)],
        attention_probs_dropout_prob=0.0,
    )
    module = LongformerSelfAttention(config, 0)
    for name in NAMES:
        setattr(module, f"{name}_global", getattr(module, name))
    is_global = torch.arange(length) < first

    def run(x: Tensor) -> Tensor:
        return module(
            x[None], attention_mask=torch.where(is_global, 10000.0, 0.0)[None],
            is_index_masked=torch.zeros(1, length, dtype=torch.bool), is_index_global_attn=is_global[None],
            is_global_attn=first > 0,
        )[0][0]

    distance = (torch.arange(length)[:, None] - torch.arange(length)).abs()
    return module, run, ((distance < window) | is_global[:, None] | is_global)[None]


def big_bird(block: int, count: int, seed: int, length: int):
    """Windows of three blocks, the first and the last block global, and `count` blocks that are drawn."""
    config = BigBirdConfig(
        hidden_size=MODEL_DIM, num_attention_heads=HEADS, block_size=block, num_random_blocks=count,
        attention_probs_dropout_prob=0.0,
    )
    module = BigBirdBlockSparseAttention(config)
    blocks = length // block
    table = [[drawn(seed, head, i, blocks, count) for i in range(1, blocks - 1)] for head in range(HEADS)]
    module._bigbird_block_rand_mask_with_head = lambda **_: table
    blocked, band, rows, columns = BigBirdModel.create_masks_for_block_sparse_attn(
        torch.ones(1, length, dtype=torch.float64), block
    )

    def run(x: Tensor) -> Tensor:
        return module(x[None], band, rows, columns, blocked, blocked)[0][0]

    number = torch.arange(length) // block
    is_global = (number == 0) | (number == blocks - 1)
    sees = ((number[:, None] - number).abs() < 2) | is_global[:, None] | is_global
    sees = sees.repeat(HEADS, 1, 1)
    for head, of_blocks in enumerate(table):
        for i, others in enumerate(of_blocks, start=1):
            for other in others:
                sees[head, i * block : (i + 1) * block, other * block : (other + 1) * block] = True
    return module, run, sees


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=default_folder(__file__))
    arguments = parser.parse_args()
    setup()
    generator = torch.Generator().manual_seed(20200410)
    cases = {
        "window": (longformer(window=5, first=0, length=48), 48),
        "global": (longformer(window=4, first=3, length=36), 36),
        "random": (big_bird(block=4, count=2, seed=7, length=52), 52),
    }
    tensors: dict[str, Tensor] = {}
    for case, ((module, run, sees), length) in cases.items():
        weights = {
            "qkv.weight": random(generator, 3 * MODEL_DIM, MODEL_DIM, scale=MODEL_DIM**-0.5),
            "qkv.bias": random(generator, 3 * MODEL_DIM, scale=0.1),
        }
        module.double()
        for index, name in enumerate(NAMES):
            part = slice(index * MODEL_DIM, (index + 1) * MODEL_DIM)
            getattr(module, name).weight.data = weights["qkv.weight"][part].clone()
            getattr(module, name).bias.data = weights["qkv.bias"][part].clone()
        x = random(generator, length, MODEL_DIM).requires_grad_()
        output_gradient = random(generator, length, MODEL_DIM)
        output = run(x)
        output.backward(output_gradient)
        theirs = {"output": output.detach(), "grad.input": x.grad}
        for kind in ["weight", "bias"]:
            parts = [getattr(getattr(module, name), kind).grad for name in NAMES]
            theirs[f"grad.qkv.{kind}"] = torch.cat(parts)

        ours = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
        again = x.detach().clone().requires_grad_()
        expected = dense(ours, again, sees)
        expected.backward(output_gradient)
        reference = {"output": expected.detach(), "grad.input": again.grad}
        reference |= {f"grad.{name}": tensor.grad for name, tensor in ours.items()}
        errors = {name: relative_error(theirs[name], reference[name]) for name in reference}
        worst = max(errors, key=errors.get)
        print(f"{case}: transformers is within {errors[worst]:.1e} relative of dense attention ({worst})")
        assert errors[worst] < TOLERANCE, case
        assert relative_error(dense(weights, x.detach(), torch.ones_like(sees)), theirs["output"]) > 0.05, case
        stored = weights | {"input": x.detach(), "output_gradient": output_gradient} | theirs
        tensors |= {f"{case}.{name}": tensor for name, tensor in stored.items()}
    save(
        arguments.out / "sparse-attention.safetensors", __file__, tensors, model_dim=MODEL_DIM,
        heads=HEADS, transformers=transformers.__version__,
    )


if __name__ == "__main__":
    main()
