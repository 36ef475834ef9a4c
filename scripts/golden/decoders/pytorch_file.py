"""Makes `pytorch_model.bin`: the weights of the folder gpt2 as PyTorch saves a state_dict.

As older files have it, with the causal masks as bools, the output projection a second time in the storage of the
embedding, and a bias that is a part of a larger storage.
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import load_file

from ..common import ROOT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    golden = ROOT / "crates" / "run" / "tests" / "golden"
    parser.add_argument("--out", type=Path, default=golden / "gpt2-pytorch" / "pytorch_model.bin")
    out = parser.parse_args().out
    state = load_file(golden / "gpt2" / "model.safetensors")
    positions = state["transformer.wpe.weight"].shape[0]
    for layer in range(2):
        mask = torch.ones(positions, positions, dtype=torch.bool).tril()
        state[f"transformer.h.{layer}.attn.bias"] = mask.view(1, 1, positions, positions)
        state[f"transformer.h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    state["lm_head.weight"] = state["transformer.wte.weight"]
    bias = state["transformer.ln_f.bias"]
    state["transformer.ln_f.bias"] = torch.cat([torch.zeros(3), bias])[3:]
    out.parent.mkdir(exist_ok=True)
    torch.save(state, out)
    print(f"{out.name}: {len(state)} tensors, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
