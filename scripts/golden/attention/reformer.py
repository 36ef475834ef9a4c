"""Makes reformer.safetensors: attention by locality-sensitive hashing, by LSHSelfAttention of transformers' Reformer.

Cases `causal` and `both`: one sentence, three rounds, chunks of eight tokens that look one chunk back, without a
projection of the result. `rotations` (heads, head, rounds, buckets / 2) are those that the library draws.

Before the file is written, results and gradients are compared with each query's own softmax over the keys that it
meets, round by round; and no token is so near to the border of its bucket that rounding would move it.
"""

import argparse
from pathlib import Path

import torch
import transformers
from torch import Tensor
from transformers.models.reformer.modeling_reformer import LSHSelfAttention, ReformerConfig

from ..common import HEADS, MODEL_DIM, default_folder, random, relative_error, save, setup

HEAD = MODEL_DIM // HEADS
ROUNDS, BUCKETS, CHUNK, LENGTH, SEED = 3, 4, 8, 40, 11
TOLERANCE, MARGIN = 1e-12, 1e-4


def module(causal: bool) -> LSHSelfAttention:
    config = ReformerConfig(
        hidden_size=MODEL_DIM, num_attention_heads=HEADS, attention_head_size=HEAD, num_hashes=ROUNDS,
        num_buckets=BUCKETS, lsh_attn_chunk_length=CHUNK, lsh_num_chunks_before=1, lsh_num_chunks_after=0,
        lsh_attention_probs_dropout_prob=0.0, is_decoder=causal, hash_seed=SEED, attn_layers=["lsh"],
        axial_pos_embds=False,
    )
    return LSHSelfAttention(config, 0).double().eval()


def by_query(qk: Tensor, value: Tensor, rotations: Tensor, causal: bool) -> Tensor:
    """(T, Dh) of one head; rotations (Dh, rounds, buckets / 2)."""
    length = qk.shape[0]
    key = qk * torch.rsqrt(qk.square().mean(-1, keepdim=True) + 1e-6) / HEAD**0.5
    rotated = torch.einsum("td,drb->rtb", qk.detach(), rotations)
    scores = torch.cat((rotated, -rotated), dim=-1)
    largest = scores.topk(2, dim=-1).values
    assert (largest[..., 0] - largest[..., 1]).min() > MARGIN, "a token is at the border of its bucket"
    order = []
    for round_, buckets in enumerate(scores.argmax(-1)):
        order += [(round_, t) for t in sorted(range(length), key=lambda t: (int(buckets[t]), t))]
    chunks = [order[i : i + CHUNK] for i in range(0, len(order), CHUNK)]
    found: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(length)]
    for number, chunk in enumerate(chunks):
        seen = [t for _, t in chunks[number - 1] + chunk]
        for _, t in chunk:
            dots = []
            for other in seen:
                dot = qk[t] @ key[other]
                if causal and other > t:
                    dot = dot * 0 - 1e9
                dots.append(dot * 0 - 1e5 if other == t else dot)
            logits = torch.stack(dots)
            total = logits.logsumexp(0)
            found[t].append((total, (logits - total).exp() @ value[seen]))
    rows = []
    for of_token in found:
        share = torch.stack([total for total, _ in of_token]).softmax(0)
        rows.append(sum(weight * row for weight, (_, row) in zip(share, of_token)))
    return torch.stack(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=default_folder(__file__))
    arguments = parser.parse_args()
    setup()
    generator = torch.Generator().manual_seed(20200118)
    torch.manual_seed(SEED)
    rotations = torch.randn(HEADS, HEAD, ROUNDS, BUCKETS // 2, dtype=torch.float64)
    tensors = {"rotations": rotations}
    for case, causal in (("causal", True), ("both", False)):
        attention = module(causal)
        weight = random(generator, 2 * MODEL_DIM, MODEL_DIM, scale=1.5 * MODEL_DIM**-0.5)
        attention.query_key.weight.data, attention.value.weight.data = (part.clone() for part in weight.chunk(2))
        x = random(generator, LENGTH, MODEL_DIM).requires_grad_()
        output_gradient = random(generator, LENGTH, MODEL_DIM)
        output = attention(x[None]).hidden_states[0]
        output.backward(output_gradient)
        grad = torch.cat((attention.query_key.weight.grad, attention.value.weight.grad))
        again, leaf = x.detach().clone().requires_grad_(), weight.clone().requires_grad_()
        qk, value = (part.reshape(LENGTH, HEADS, HEAD) for part in (again @ leaf.T).chunk(2, dim=1))
        heads = [by_query(qk[:, h], value[:, h], rotations[h], causal) for h in range(HEADS)]
        expected = torch.cat(heads, dim=1)
        expected.backward(output_gradient)
        pairs = ((output.detach(), expected.detach()), (x.grad, again.grad), (grad, leaf.grad))
        errors = [relative_error(ours, theirs) for ours, theirs in pairs]
        print(f"{case}: transformers is within {max(errors):.1e} relative of each query by itself")
        assert max(errors) < TOLERANCE, case
        stored = {"weight": weight, "input": x.detach(), "output_gradient": output_gradient}
        stored |= {"output": output.detach(), "grad.input": x.grad, "grad.weight": grad}
        tensors |= {f"{case}.{name}": tensor.contiguous() for name, tensor in stored.items()}
    save(
        arguments.out / "reformer.safetensors", __file__, tensors, model_dim=MODEL_DIM, heads=HEADS, rounds=ROUNDS,
        buckets=BUCKETS, chunk=CHUNK, transformers=transformers.__version__,
    )


if __name__ == "__main__":
    main()
