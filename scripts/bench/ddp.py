#!/usr/bin/env python3
"""The weak scaling of PyTorch's DistributedDataParallel on gloo, beside that of `scripts/bench/processes.py`.

    python scripts/bench/ddp.py --batches FILE [--preset base] [--dtype f32] [--processes 2] [--steps 6] [--rounds 1]

The model and step of pytorch_peer.py: one process on one core, and then as many as `--processes`, each on a core of its own with a
batch of its own. Rates are target tokens a second of all of them. Needs Linux.
"""
import argparse
import json
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from pytorch_peer import PADDING, SHAPES, Translator
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


def train(rank, size, meeting, arguments, results):
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    torch.set_num_threads(1)
    torch.manual_seed(1)
    tensors = load_file(arguments.batches)
    count = sum(name.startswith("src.") for name in tensors)
    model = net = Translator(arguments.vocab, *SHAPES[arguments.preset]).train()
    if size > 1:
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
        model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def step(index):
        number = (index * size + rank) % count
        source, target = tensors[f"src.{number}"].long(), tensors[f"tgt.{number}"].long()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.dtype == "bf16"):
            logits = model(source, target[:, :-1])
        wanted = target[:, 1:].flatten()
        F.cross_entropy(logits.float().flatten(0, 1), wanted, ignore_index=PADDING, label_smoothing=0.1).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return int((wanted != PADDING).sum())

    step(0)
    if size > 1:
        dist.barrier()
    start = time.perf_counter()
    tokens = sum(step(1 + index) for index in range(arguments.steps))
    results[rank] = tokens / (time.perf_counter() - start)
    if size > 1:
        dist.destroy_process_group()


def rate(size, arguments):
    """Target tokens a second of so many processes."""
    with tempfile.TemporaryDirectory() as folder, mp.Manager() as manager:
        results = manager.dict()
        mp.spawn(train, (size, f"{folder}/meeting", arguments, results), nprocs=size)
        return sum(results.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", required=True)
    parser.add_argument("--preset", choices=SHAPES, default="base")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--vocab", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    rounds = [(rate(1, arguments), rate(arguments.processes, arguments)) for _ in range(arguments.rounds)]
    print(json.dumps({
        "program": f"PyTorch {torch.__version__}", "preset": arguments.preset, "dtype": arguments.dtype,
        "one": [round(one) for one, _ in rounds], "many": [round(many) for _, many in rounds],
        "efficiency": round(statistics.median(many / (arguments.processes * one) for one, many in rounds), 3),
    }))


if __name__ == "__main__":
    main()
