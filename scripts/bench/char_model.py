"""The recipe of configs/shakespeare-char.toml in plain PyTorch: training speed, and loss on the rest of the text.

    python scripts/bench/char_model.py TEXT [--updates 2000] [--threads 2] [--seed 1337]

TEXT is the file, or its .gz. A GPT as nanoGPT's recipe for a CPU has it (github.com/karpathy/nanoGPT,
config/train_shakespeare_char.py, "I only have a macbook"): 4 layers, 4 heads, width 128, blocks of 64 characters, 12 a
batch, dropout 0, no biases; AdamW with betas 0.9 and 0.99, weight decay 0.1 of matrices, norm clipped to 1, rate
1e-3 after 100 updates of warm-up, then a cosine down to 1e-4. Prints one JSON line. The time is that of the updates
alone. The loss is of every character of the validation text but the first, in blocks that follow one another, as Taper
takes it.
"""
import argparse
import gzip
import json
import math
import time
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

BLOCK, BATCH = 64, 12
PEAK, LEAST, WARMUP = 1e-3, 1e-4, 100


class Shape(NamedTuple):
    """The sizes of a GPT as nanoGPT has it, and whether its layers have biases."""

    layers: int = 4
    heads: int = 4
    width: int = 128
    block: int = BLOCK
    biases: bool = False


class Layer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.heads, width, biases = shape.heads, shape.width, shape.biases
        self.attention_norm, self.norm = (nn.LayerNorm(width, bias=biases) for _ in range(2))
        self.projection, self.out = nn.Linear(width, 3 * width, bias=biases), nn.Linear(width, width, bias=biases)
        self.up, self.down = nn.Linear(width, 4 * width, bias=biases), nn.Linear(4 * width, width, bias=biases)

    def forward(self, x):
        parts = self.projection(self.attention_norm(x)).chunk(3, -1)  # each (B, T, D)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)  # (B, H, T, Dh)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, vocabulary, shape=Shape()):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, shape.width), nn.Embedding(shape.block, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width, bias=shape.biases)
        for name, weights in self.named_parameters():
            if weights.dim() == 2:
                # The projections onto the residual stream are smaller, since they add up (GPT-2, section 2.3).
                scale = (2 * shape.layers) ** -0.5 if name.endswith(("out.weight", "down.weight")) else 1.0
                nn.init.normal_(weights, std=0.02 * scale)

    def forward(self, text, answers):
        x = self.tokens(text) + self.positions.weight[: text.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), answers.flatten(), reduction="none")


def rate(update, updates):
    """The learning rate of an update, counted from 0."""
    if update < WARMUP:
        return PEAK * (update + 1) / (WARMUP + 1)
    return LEAST + (PEAK - LEAST) * (1 + math.cos(math.pi * (update - WARMUP) / (updates - WARMUP))) / 2


def optimizer_of(model):
    """AdamW that decays matrices alone."""
    matrices = [weights for weights in model.parameters() if weights.dim() == 2]
    others = [weights for weights in model.parameters() if weights.dim() != 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.99), fused=True)


def step(model, optimizer, rows, answers):
    """An update on texts `(B, T)` whose next tokens are `answers`."""
    model(rows, answers).mean().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


@torch.no_grad()
def loss_of(model, text):
    """The mean loss of every character but the first."""
    total = 0.0
    for start in range(0, len(text) - 1, 64 * BLOCK):
        piece = text[start : start + 64 * BLOCK + 1]
        whole = (len(piece) - 1) // BLOCK * BLOCK
        for count, length in ((whole // BLOCK, BLOCK), (1, len(piece) - 1 - whole)):
            first = 0 if length == BLOCK else whole
            if count * length:
                rows, answers = (piece[first + shift :][: count * length].view(count, length) for shift in (0, 1))
                total += model(rows, answers).sum().item()
    return total / (len(text) - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seed", type=int, default=1337)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    opened = gzip.open if arguments.text.suffix == ".gz" else open
    with opened(arguments.text, "rt", encoding="utf-8") as file:
        characters = file.read()
    number = {character: index for index, character in enumerate(sorted(set(characters)))}
    text = torch.tensor([number[character] for character in characters])
    split = int(0.9 * len(text))
    train, rest = text[:split], text[split:]
    model = Model(len(number))
    optimizer = optimizer_of(model)
    began = time.perf_counter()
    for update in range(arguments.updates):
        starts = torch.randint(len(train) - BLOCK, (BATCH,)).tolist()
        rows, answers = (torch.stack([train[at + shift :][:BLOCK] for at in starts]) for shift in (0, 1))
        for group in optimizer.param_groups:
            group["lr"] = rate(update, arguments.updates)
        step(model, optimizer, rows, answers)
    seconds = time.perf_counter() - began
    print(json.dumps({
        "tokens_per_second": arguments.updates * BATCH * BLOCK / seconds,
        "seconds": seconds,
        "validation_loss": loss_of(model, rest),
        "parameters": sum(weights.numel() for weights in model.parameters()),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }))


if __name__ == "__main__":
    main()
