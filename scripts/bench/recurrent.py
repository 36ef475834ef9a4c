"""Training steps of recurrent translation models in Taper and in PyTorch, on the same batches, in turn.

    python scripts/bench/recurrent.py --batches FILE [--taper target/release/taper] [--rounds 3] [--threads 1]
        [--recipes configs/recurrent/multi30k-en-de-recurrent.toml configs/recurrent/multi30k-en-de-bahdanau.toml]
        [--dtype f32 bf16]

FILE is what make_batches.py writes. The PyTorch model has the shape of the recipe, whose `[model]` is read here: GRUs
or LSTMs of torch.nn over padded batches (packing them is slower on a CPU), the decoder a loop over GRUCell or LSTMCell
where attention stands between steps, `scaled_dot_product_attention` behind the last layer, one shared embedding
matrix, fused Adam, gradients clipped to norm 1, label smoothing 0.1; bf16 is `torch.autocast`. The rates are target
tokens a second of processor time, the start of each program taken off by a run of one step: on one thread of a quiet
machine that is the clock's second, and on a busy one it still means something. The table has medians, and the median,
least and largest of the ratios.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

PADDING = 0


class Translator(nn.Module):
    def __init__(self, vocabulary, shape):
        super().__init__()
        own = shape.get("recurrent", {})
        width, inner = shape["d_model"], own.get("width", 512)
        self.attention, directions = own.get("attention", "additive"), 1 + own.get("bidirectional", True)
        lstm = own.get("cell", "gru") == "lstm"
        layers, cell, self.vectors = (nn.LSTM, nn.LSTMCell, 2) if lstm else (nn.GRU, nn.GRUCell, 1)
        self.embedding, self.scale = nn.Embedding(vocabulary, width, padding_idx=PADDING), math.sqrt(width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.into, self.between = nn.Dropout(shape["embedding_dropout"]), nn.Dropout(shape["residual_dropout"])
        common = dict(batch_first=True, dropout=0.0)
        self.encoder = layers(width, inner, shape["encoder_layers"], bidirectional=directions == 2, **common)
        annotation, depth = inner * directions, shape["decoder_layers"]
        self.bridges = nn.ModuleList(nn.Linear(annotation * directions, self.vectors * inner) for _ in range(depth))
        plain = depth - (self.attention == "additive")
        self.decoder = layers(width, inner, plain, **common) if plain else None
        read = inner
        if self.attention == "additive":
            self.last = cell((inner if plain else width) + annotation, inner)
            self.query, self.key = nn.Linear(inner, inner, bias=False), nn.Linear(annotation, inner)
            self.energy, read = nn.Linear(inner, 1, bias=False), inner + annotation
        elif self.attention == "dot":
            self.key_value, read = nn.Linear(annotation, 2 * inner), 2 * inner
        self.readout = nn.Linear(read, width)

    def state(self, flat):
        return flat if self.vectors == 1 else tuple(part.contiguous() for part in flat.chunk(2, -1))

    def forward(self, source, target):
        mask = source != PADDING
        memory = self.between(self.encoder(self.into(self.embedding(source) * self.scale))[0])
        last = memory[torch.arange(len(source)), mask.sum(1) - 1]
        ends = torch.cat([memory[:, 0], last], 1) if self.encoder.bidirectional else last
        initial = [torch.tanh(bridge(ends)) for bridge in self.bridges]
        x = self.into(self.embedding(target) * self.scale)
        if self.decoder is not None:
            x = self.decoder(x, self.state(torch.stack(initial[: self.decoder.num_layers])))[0]
        if self.attention == "additive":
            keys, state, rows = self.key(memory), self.state(initial[-1]), []
            away = torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
            for step in x.unbind(1):
                hidden = state if self.vectors == 1 else state[0]
                energies = self.energy(torch.tanh(self.query(hidden)[:, None] + keys)).squeeze(2)
                context = torch.bmm((energies + away).softmax(1)[:, None].to(memory.dtype), memory).squeeze(1)
                state = self.last(torch.cat([step, context], 1), state)
                rows.append(torch.cat([state if self.vectors == 1 else state[0], context], 1))
            x = torch.stack(rows, 1)
        elif self.attention == "dot":
            key, value = self.key_value(memory).chunk(2, -1)
            x = torch.cat([x, F.scaled_dot_product_attention(x, key, value, mask[:, None])], 2)
        return F.linear(self.between(torch.tanh(self.readout(x))), self.embedding.weight)


def peer(arguments):
    """PyTorch alone: one JSON line."""
    torch.manual_seed(1)
    torch.set_num_threads(arguments.threads)
    tensors = load_file(arguments.batches)
    count = sum(name.startswith("src.") for name in tensors)
    batches = [(tensors[f"src.{i}"].long(), tensors[f"tgt.{i}"].long()) for i in range(count)]
    shape = tomllib.loads(Path(arguments.recipes[0]).read_text())["model"]
    model = Translator(arguments.vocab, shape).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def step(index):
        source, target = batches[index % count]
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.dtype[0] == "bf16"):
            logits = model(source, target[:, :-1])
        wanted = target[:, 1:].flatten()
        loss = F.cross_entropy(logits.float().flatten(0, 1), wanted, ignore_index=PADDING, label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return int((wanted != PADDING).sum())

    for index in range(arguments.warmup):
        step(index)
    start = time.perf_counter()
    tokens = sum(step(arguments.warmup + index) for index in range(arguments.steps))
    seconds = time.perf_counter() - start
    print(json.dumps({
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "target_tokens_per_s": tokens / seconds, "s_per_step": seconds / arguments.steps,
    }))


def measured(command, steps):
    """The target tokens of so many steps, and the processor time of the whole program."""
    command = [*command, "--steps", str(steps)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"failed: {' '.join(command)}")
    found = json.loads(output.strip().splitlines()[-1])
    return found["target_tokens_per_s"] * found["s_per_step"] * steps, usage.ru_utime + usage.ru_stime


def rate(command, steps):
    """Target tokens a second of processor time: what `steps` more steps take."""
    (few, least), (many, most) = measured(command, 1), measured(command, 1 + steps)
    return (many - few) / (most - least)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", required=True)
    parser.add_argument("--taper", default="target/release/taper")
    recipes = [f"configs/recurrent/multi30k-en-de-{name}.toml" for name in ("recurrent", "bahdanau")]
    parser.add_argument("--recipes", nargs="+", default=recipes)
    parser.add_argument("--dtype", nargs="+", choices=["f32", "bf16"], default=["f32", "bf16"])
    parser.add_argument("--vocab", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", action="store_true", help="run PyTorch alone, of the first recipe and type")
    arguments = parser.parse_args()
    if arguments.peer:
        return peer(arguments)
    print("| recipe | products | Taper, tokens a CPU second | PyTorch | ratio (least to largest) |")
    print("|---|---|---|---|---|")
    for recipe in arguments.recipes:
        for dtype in arguments.dtype:
            common = ["--batches", arguments.batches, "--dtype", dtype, "--vocab", str(arguments.vocab)]
            for name in ("warmup", "threads"):
                common += [f"--{name}", str(getattr(arguments, name))]
            rates = []
            for _ in range(arguments.rounds):
                ours = [arguments.taper, "bench", "train", "--json", "--recipe", recipe, *common]
                theirs = [sys.executable, __file__, "--peer", "--recipes", recipe, *common]
                rates.append((rate(ours, arguments.steps), rate(theirs, arguments.steps)))
            ratios = [ours / theirs for ours, theirs in rates]
            ours, theirs = (statistics.median(rate) for rate in zip(*rates))
            print(
                f"| {Path(recipe).stem} | {dtype} | {ours:,.0f} | {theirs:,.0f} | {statistics.median(ratios):.2f} "
                f"({min(ratios):.2f} to {max(ratios):.2f}) |", flush=True,
            )


if __name__ == "__main__":
    main()
