"""Makes hierarchical-attention.safetensors and transformer-xl-*.safetensors: attention in chunks and in segments.

Both are computed from their equations, one query at a time, in float64.

- hierarchical-attention: cases `causal` and `both`; `input` are query, key and value side by side, of one sentence of
  23 tokens with chunks of 5. A query sees the tokens of its chunk, and of each other chunk the mean key and value, whose
  exponential counts as often as the chunk has tokens (Zhu and Soricut 2021, section 4, with two levels).
- transformer-xl-*: a language model of two layers (Dai et al. 2019, sections 3.2 and 3.3), whose texts are read segment
  after segment, as the paper has it: of each layer the states before a segment are kept for the next one, without a
  gradient. Names are those of decoders/language_model.py; `post` is the paper's order of norms. In `pre` it is what the
  layer norm gives that is kept.
"""

import argparse
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from ..common import default_folder, relative_error, save, setup

HEADS, WIDTH, INNER, LAYERS, VOCABULARY, EPSILON = 4, 32, 64, 2, 37, 1e-5
SEGMENT, MEMORY, LABEL_SMOOTHING = 4, 6, 0.1
CHUNK, LENGTH = 5, 23


def drawn(generator: torch.Generator, *shape: int, scale: float = 1.0) -> Tensor:
    """Values that float32 holds exactly."""
    return (torch.randn(*shape, generator=generator, dtype=torch.float64) * scale).float().double()


def hierarchical(qkv: Tensor, causal: bool) -> Tensor:
    query, key, value = (part.unflatten(-1, (HEADS, -1)) for part in qkv.chunk(3, dim=-1))
    rows = []
    for i in range(LENGTH):
        own = i // CHUNK
        logits, values = [], []
        for j in range(own * CHUNK, min((own + 1) * CHUNK, LENGTH)):
            if j <= i or not causal:
                logits.append((query[i] * key[j]).sum(-1))
                values.append(value[j])
        for first in range(0, LENGTH, CHUNK):
            tokens = range(first, min(first + CHUNK, LENGTH))
            if first // CHUNK < own or (first // CHUNK > own and not causal):
                mean = key[list(tokens)].mean(0)
                logits.append((query[i] * mean).sum(-1) + math.log(len(tokens)) * math.sqrt(query.shape[-1]))
                values.append(value[list(tokens)].mean(0))
        weights = (torch.stack(logits) / math.sqrt(query.shape[-1])).softmax(0)  # (keys, H)
        rows.append((weights.unsqueeze(-1) * torch.stack(values)).sum(0).flatten())
    return torch.stack(rows)


def make_hierarchical(folder: Path) -> None:
    generator = torch.Generator().manual_seed(31)
    qkv, gradient = drawn(generator, LENGTH, 3 * WIDTH), drawn(generator, LENGTH, WIDTH)
    tensors = {"input": qkv, "output_gradient": gradient}
    for case, causal in (("causal", True), ("both", False)):
        given = qkv.clone().requires_grad_()
        out = hierarchical(given, causal)
        out.backward(gradient)
        tensors |= {f"{case}.output": out.detach(), f"{case}.grad.input": given.grad}
    save(folder / "hierarchical-attention.safetensors", __file__, tensors, heads=HEADS, chunk=CHUNK)


def parameters(seed: int, norm: str) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    found = {"embedding.weight": drawn(generator, VOCABULARY, WIDTH, scale=0.3)}
    for layer in range(LAYERS):
        name = f"decoder.layers.{layer}"
        for part, outputs, inputs in (
            ("self_attention.qkv", 3 * WIDTH, WIDTH), ("self_attention.out", WIDTH, WIDTH),
            ("feed_forward.up", INNER, WIDTH), ("feed_forward.down", WIDTH, INNER),
        ):
            found[f"{name}.{part}.weight"] = drawn(generator, outputs, inputs, scale=inputs**-0.5)
            found[f"{name}.{part}.bias"] = drawn(generator, outputs, scale=0.1)
        found[f"{name}.self_attention.distance.weight"] = drawn(generator, WIDTH, WIDTH, scale=WIDTH**-0.5)
        for bias in ("content", "distance"):
            found[f"{name}.self_attention.{bias}_bias"] = drawn(generator, HEADS, WIDTH // HEADS, scale=0.5)
        for part in ("self_attention_norm", "feed_forward_norm"):
            found[f"{name}.{part}.weight"] = 1 + drawn(generator, WIDTH, scale=0.1)
            found[f"{name}.{part}.bias"] = drawn(generator, WIDTH, scale=0.1)
    if norm == "pre":
        found["decoder.final_norm.weight"] = 1 + drawn(generator, WIDTH, scale=0.1)
        found["decoder.final_norm.bias"] = drawn(generator, WIDTH, scale=0.1)
    return {key: tensor.float().double().requires_grad_() for key, tensor in found.items()}


def distance_code(distance: int) -> Tensor:
    angles = distance / 10_000.0 ** (torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH)
    return torch.cat((angles.sin(), angles.cos()))


def attention(x: Tensor, memory: Tensor, p: dict[str, Tensor], name: str) -> Tensor:
    """A segment `x (C, D)` and what is remembered, `(M, D)`, the last tokens before it."""
    linear = lambda part, rows: F.linear(rows, p[f"{name}.{part}.weight"], p[f"{name}.{part}.bias"])
    heads = lambda rows: rows.unflatten(-1, (HEADS, -1))
    seen = torch.cat((memory, x))
    query = heads(linear("qkv", x)[:, :WIDTH])
    key, value = (heads(part) for part in linear("qkv", seen)[:, WIDTH:].chunk(2, dim=-1))
    u, v = p[f"{name}.content_bias"], p[f"{name}.distance_bias"]
    rows = []
    for i in range(len(x)):
        scores = []
        for j in range(len(memory) + i + 1):
            code = heads(p[f"{name}.distance.weight"] @ distance_code(len(memory) + i - j))
            scores.append(((query[i] + u) * key[j]).sum(-1) + ((query[i] + v) * code).sum(-1))
        weights = (torch.stack(scores) / math.sqrt(WIDTH // HEADS)).softmax(0)
        rows.append((weights.unsqueeze(-1) * value[: len(scores)]).sum(0).flatten())
    return linear("out", torch.stack(rows))


def read(text: Tensor, p: dict[str, Tensor], norm: str, memory: int = MEMORY) -> Tensor:
    """The logits of a text, segment after segment."""
    normed = lambda part, rows: F.layer_norm(rows, (WIDTH,), p[f"{part}.weight"], p[f"{part}.bias"], EPSILON)
    memories = [torch.zeros(0, WIDTH, dtype=torch.float64) for _ in range(LAYERS)]
    found = []
    for first in range(0, len(text), SEGMENT):
        x = p["embedding.weight"][text[first : first + SEGMENT]] * math.sqrt(WIDTH)
        for layer in range(LAYERS):
            name = f"decoder.layers.{layer}"
            given = normed(f"{name}.self_attention_norm", x) if norm == "pre" else x
            attended = x + attention(given, memories[layer], p, f"{name}.self_attention")
            memories[layer] = torch.cat((memories[layer], given)).detach()[-memory:]
            x = attended if norm == "pre" else normed(f"{name}.self_attention_norm", attended)
            given = normed(f"{name}.feed_forward_norm", x) if norm == "pre" else x
            up = F.linear(given, p[f"{name}.feed_forward.up.weight"], p[f"{name}.feed_forward.up.bias"])
            down = p[f"{name}.feed_forward.down.weight"], p[f"{name}.feed_forward.down.bias"]
            x = x + F.linear(F.gelu(up), *down)
            x = x if norm == "pre" else normed(f"{name}.feed_forward_norm", x)
        found.append(normed("decoder.final_norm", x) if norm == "pre" else x)
    return F.linear(torch.cat(found), p["embedding.weight"])


def make_transformer_xl(folder: Path, norm: str, seed: int) -> None:
    p = parameters(seed, norm)
    generator = torch.Generator().manual_seed(100 + seed)
    rows = [torch.randint(1, VOCABULARY, (count,), generator=generator) for count in (18, 4, 10, 2)]
    logits = torch.cat([read(row[:-1], p, norm) for row in rows])
    answers = torch.cat([row[1:] for row in rows])
    loss, nll = (F.cross_entropy(logits, answers, label_smoothing=smoothing) for smoothing in (LABEL_SMOOTHING, 0.0))
    loss.backward()
    tensors = {name: tensor.detach() for name, tensor in p.items()}
    tensors |= {f"grad.{name}": tensor.grad for name, tensor in p.items()}
    tensors |= {"logits": logits.detach(), "loss": loss.detach(), "nll": nll.detach(), "answers": answers}
    tensors["text_ids"] = torch.cat([row[:-1] for row in rows])
    tensors["lengths"] = torch.tensor([len(row) - 1 for row in rows])
    shorter = torch.cat([read(row[:-1], p, norm, MEMORY - 2) for row in rows])
    assert relative_error(shorter, logits) > 1e-3, "the memory changes nothing"
    settings = {"segment": SEGMENT, "memory": MEMORY, "norm": norm, "heads": HEADS}
    save(folder / f"transformer-xl-{norm}.safetensors", __file__, tensors, **settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=default_folder(__file__))
    arguments = parser.parse_args()
    setup()
    make_hierarchical(arguments.out)
    make_transformer_xl(arguments.out, "post", 3)
    make_transformer_xl(arguments.out, "pre", 4)


if __name__ == "__main__":
    main()
