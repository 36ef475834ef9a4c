"""Makes attention-flops.safetensors: the products of reference implementations, as torch's FlopCounterMode counts them.

For each kind and number of tokens the multiplications and additions of one sequence, forward, between the projections:

- full: `scaled_dot_product_attention`, without a mask, which it would count whole as well.
- performer, linformer: the packages performer-pytorch and linformer.
- reformer: LSHSelfAttention of transformers.
- transformer_xl: RelPartialLearnableMultiHeadAttn of transformers 4.35, segment after segment, each with its memory,
  which begins as rows of zeros; the distances of a segment are projected once, as those of all others are the same.
- hierarchical: scores and sums of whole chunks, and of all summaries, by einsum.

The library Transformers removed the Transformer-XL after version 4.35, which needs an environment of its own (README.md).
"""

import argparse
import warnings
from pathlib import Path

import torch
import transformers
from linformer.linformer import LinformerSelfAttention
from performer_pytorch.performer_pytorch import linear_attention, softmax_kernel
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from transformers import ReformerConfig
from transformers.models.reformer.modeling_reformer import LSHSelfAttention
from transformers.models.transfo_xl.modeling_transfo_xl import RelPartialLearnableMultiHeadAttn

from ..common import default_folder, save

WIDTH, HEADS = 64, 4
HEAD = WIDTH // HEADS
FEATURES, RANK, CHUNK = 48, 40, 32
ROUNDS, BUCKETS = 3, 8
SEGMENT, MEMORY = 32, 96
LENGTHS = (256, 1024, 4096)


def counted(work, projections: tuple[str, ...] = ()) -> int:
    """All products but those of the modules of these names."""
    counter = FlopCounterMode(display=False, depth=8)
    with counter, torch.no_grad():
        work()
    modules = counter.get_flop_counts()
    of = lambda name: sum(modules[name].values()) if name in modules else 0
    within = [name for name in modules if name.split(".")[-1] in projections]
    assert len(within) == len(projections), (projections, sorted(modules))
    return counter.get_total_flops() - sum(of(name) for name in within)


def heads(length: int) -> Tensor:
    return torch.randn(1, HEADS, length, HEAD)


def full(length: int) -> int:
    query, key, value = (heads(length) for _ in range(3))
    return counted(lambda: torch.nn.functional.scaled_dot_product_attention(query, key, value))


def performer(length: int) -> int:
    query, key, value = (heads(length) for _ in range(3))
    omega = torch.randn(FEATURES, HEAD)

    def work() -> None:
        mapped = (softmax_kernel(x, projection_matrix=omega, is_query=first) for x, first in ((query, True), (key, False)))
        linear_attention(*mapped, value)

    return counted(work)


def linformer(length: int) -> int:
    layer = LinformerSelfAttention(WIDTH, length, k=RANK, heads=HEADS)
    x = torch.randn(1, length, WIDTH)
    return counted(lambda: layer(x), ("to_q", "to_k", "to_v", "to_out"))


def reformer(length: int) -> int:
    config = ReformerConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, attention_head_size=HEAD, num_hashes=ROUNDS, num_buckets=BUCKETS,
        lsh_attn_chunk_length=CHUNK, lsh_num_chunks_before=1, lsh_num_chunks_after=0, attn_layers=["lsh"],
        axial_pos_embds=False, hash_seed=1,
    )
    layer, x = LSHSelfAttention(config).eval(), torch.randn(1, length, WIDTH)
    return counted(lambda: layer(x), ("query_key", "value"))


def transformer_xl(length: int) -> int:
    layer = RelPartialLearnableMultiHeadAttn(HEADS, WIDTH, HEAD, 0.0)
    for bias in (layer.r_w_bias, layer.r_r_bias):
        torch.nn.init.zeros_(bias)
    segment, memory, distances = (torch.randn(rows, 1, WIDTH) for rows in (SEGMENT, MEMORY, SEGMENT + MEMORY))
    mask = torch.zeros(SEGMENT, SEGMENT + MEMORY, 1, dtype=torch.bool)
    of_segment = lambda: layer(segment, distances[:, 0], attn_mask=mask, mems=memory)
    without = counted(of_segment, ("qkv_net", "o_net", "r_net"))
    return length // SEGMENT * without + counted(of_segment, ("qkv_net", "o_net")) - without


def hierarchical(length: int) -> int:
    query, key, value = (heads(length).unflatten(2, (-1, CHUNK)) for _ in range(3))

    def work() -> None:
        own = torch.einsum("bhncd,bhnmd->bhncm", query, key)
        others = torch.einsum("bhncd,bhkd->bhnck", query, key.mean(3))
        torch.einsum("bhncm,bhnmd->bhncd", own, value) + torch.einsum("bhnck,bhkd->bhncd", others, value.mean(3))

    return counted(work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=default_folder(__file__))
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.manual_seed(1)
    kinds = (full, performer, linformer, reformer, transformer_xl, hierarchical)
    found = {f"{kind.__name__}.{length}": kind(length) for kind in kinds for length in LENGTHS}
    for name, flops in found.items():
        print(f"{name:24} {flops:14,}")
    tensors = {name: torch.tensor([flops], dtype=torch.float64) for name, flops in found.items()}
    save(
        arguments.out / "attention-flops.safetensors", __file__, tensors, width=WIDTH, heads=HEADS,
        features=FEATURES, rank=RANK, chunk=CHUNK, rounds=ROUNDS, buckets=BUCKETS, segment=SEGMENT, memory=MEMORY,
        transformers=transformers.__version__,
    )


if __name__ == "__main__":
    main()
