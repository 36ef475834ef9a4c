"""Makes muon.safetensors: weights after steps of PyTorch's Muon and AdamW.

Muon of torch.optim multiplies in bf16, whatever it is given; here that type is replaced by f64 while it steps, so that
its equations are compared and not its rounding. Projections that Taper holds in one parameter are parameters of their
own. Vectors and tables follow torch.optim.AdamW.
"""

import argparse
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor

from ..common import ROOT, random, save, setup

STEPS, RATE, DECAY, MOMENTUM, BETAS, EPSILON = 5, 0.02, 0.1, 0.95, (0.9, 0.98), 1e-9
# Rows of the projections of each parameter, and their columns: wide, tall, square, and three in one.
PROJECTIONS = {"wide": ([5], 12), "tall": ([12], 5), "square": ([8], 8), "fused": ([6, 3, 3], 6)}
OTHERS = {"table": (7, 4), "bias": (9,)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "crates" / "ops" / "tests" / "golden")
    folder = parser.parse_args().out
    setup()
    generator = torch.Generator().manual_seed(7)
    tensors: dict[str, Tensor] = {}
    projections, others = [], []
    for name, (rows, columns) in PROJECTIONS.items():
        tensors[name] = random(generator, sum(rows), columns, scale=0.3)
        parts = tensors[name].clone().split(rows)
        projections.append((name, [torch.nn.Parameter(part.clone()) for part in parts]))
    for name, shape in OTHERS.items():
        tensors[name] = random(generator, *shape, scale=0.3)
        others.append((name, torch.nn.Parameter(tensors[name].clone())))
    muon = torch.optim.Muon(
        [part for _, parts in projections for part in parts],
        lr=RATE, weight_decay=DECAY, momentum=MOMENTUM, adjust_lr_fn="match_rms_adamw",
    )
    settings = {"lr": RATE, "betas": BETAS, "eps": EPSILON}
    # Biases are not decayed.
    adam = torch.optim.AdamW([
        {"params": [one for _, one in others if one.dim() > 1], "weight_decay": DECAY},
        {"params": [one for _, one in others if one.dim() == 1], "weight_decay": 0.0},
    ], **settings)
    for step in range(STEPS):
        for name, parts in projections:
            rows = [part.shape[0] for part in parts]
            gradient = random(generator, sum(rows), parts[0].shape[1])
            tensors[f"gradient.{step}.{name}"] = gradient
            for part, own in zip(parts, gradient.split(rows)):
                part.grad = own.clone()
        for name, one in others:
            tensors[f"gradient.{step}.{name}"] = one.grad = random(generator, *one.shape)
        with patch.object(torch, "bfloat16", torch.float64):
            muon.step()
        adam.step()
    for name, parts in projections:
        tensors[f"after.{name}"] = torch.cat([part.detach() for part in parts])
    for name, one in others:
        tensors[f"after.{name}"] = one.detach()
    save(folder / "muon.safetensors", __file__, tensors, steps=STEPS)


if __name__ == "__main__":
    main()
