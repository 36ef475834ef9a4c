"""The model of `taper bench train` in plain PyTorch: one JSON line with its speed on the same batches.

    python pytorch_peer.py --batches FILE --preset tiny|small|base|big --dtype f32|bf16 [--device cpu|cuda]

Pre-LN encoder-decoder Transformer, fused query-key-value projections, `scaled_dot_product_attention`, one shared embedding matrix, Adam
(the fused implementation), gradients clipped to norm 1, label smoothing 0.1. bf16 is `torch.autocast`.
"""
import argparse
import json
import math
import time

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

# layers on each side, width, heads, feed-forward width, dropout
SHAPES = {"tiny": (4, 128, 4, 256, 0.3), "small": (4, 256, 4, 1024, 0.3), "base": (6, 512, 8, 2048, 0.1), "big": (6, 1024, 16, 4096, 0.3)}
PADDING = 0


class Heads(nn.Module):
    """Multi-head attention of `x` to `keys`, which is `x` itself unless the layer looks at the encoder."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query, self.key_value, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, T, Dh)

    def attend(self, query, key, value, mask, causal):
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(self.split(query), self.split(key), self.split(value), mask, dropout, causal)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def forward(self, x, keys, mask):
        return self.attend(self.query(x), *self.key_value(keys).chunk(2, -1), mask, False)


class SelfHeads(Heads):
    def __init__(self, width, heads, dropout, causal):
        super().__init__(width, heads, dropout)
        del self.query, self.key_value
        self.projection, self.causal = nn.Linear(width, 3 * width), causal

    def forward(self, x, mask):
        return self.attend(*self.projection(x).chunk(3, -1), None if self.causal else mask, self.causal)


class Block(nn.Module):
    def __init__(self, width, heads, inner, dropout, decoder):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.self_norm, self.self_attention = nn.LayerNorm(width), SelfHeads(width, heads, dropout, decoder)
        if decoder:
            self.cross_norm, self.cross_attention = nn.LayerNorm(width), Heads(width, heads, dropout)
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x, mask, memory=None):
        x = x + self.dropout(self.self_attention(self.self_norm(x), mask))
        if memory is not None:
            x = x + self.dropout(self.cross_attention(self.cross_norm(x), memory, mask))
        return x + self.dropout(self.down(self.dropout(F.relu(self.up(self.norm(x))))))


class Translator(nn.Module):
    def __init__(self, vocabulary, layers, width, heads, inner, dropout):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=PADDING)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.scale, self.dropout = math.sqrt(width), nn.Dropout(dropout)
        angle = torch.arange(1024.0)[:, None] * 10000.0 ** (-torch.arange(0.0, width, 2) / width)
        self.register_buffer("positions", torch.stack([angle.sin(), angle.cos()], -1).flatten(1))
        self.encoder = nn.ModuleList(Block(width, heads, inner, dropout, False) for _ in range(layers))
        self.decoder = nn.ModuleList(Block(width, heads, inner, dropout, True) for _ in range(layers))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(width), nn.LayerNorm(width)

    def embed(self, ids):
        return self.dropout(self.embedding(ids) * self.scale + self.positions[: ids.shape[1]])

    def forward(self, source, target):
        mask = (source != PADDING)[:, None, None]
        x = self.embed(source)
        for block in self.encoder:
            x = block(x, mask)
        memory, x = self.encoder_norm(x), self.embed(target)
        for block in self.decoder:
            x = block(x, mask, memory)
        return F.linear(self.decoder_norm(x), self.embedding.weight)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", required=True)
    parser.add_argument("--preset", choices=SHAPES, default="base")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--vocab", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    arguments = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(arguments.threads)
    tensors = load_file(arguments.batches)
    count = sum(name.startswith("src.") for name in tensors)
    device = arguments.device
    batches = [(tensors[f"src.{i}"].long().to(device), tensors[f"tgt.{i}"].long().to(device)) for i in range(count)]
    model = Translator(arguments.vocab, *SHAPES[arguments.preset]).train().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def step(index):
        source, target = batches[index % count]
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=arguments.dtype == "bf16"):
            logits = model(source, target[:, :-1])
        wanted = target[:, 1:].flatten()
        loss = F.cross_entropy(logits.float().flatten(0, 1), wanted, ignore_index=PADDING, label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return float(loss.detach()), int((wanted != PADDING).sum())

    for index in range(arguments.warmup):
        step(index)
    start = time.perf_counter()
    results = [step(arguments.warmup + index) for index in range(arguments.steps)]
    seconds = time.perf_counter() - start
    print(json.dumps({
        "program": f"PyTorch {torch.__version__}", "preset": arguments.preset, "dtype": arguments.dtype,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "target_tokens_per_s": round(sum(tokens for _, tokens in results) / seconds, 1),
        "s_per_step": round(seconds / arguments.steps, 4), "last_loss": round(results[-1][0], 4),
    }))


if __name__ == "__main__":
    main()
