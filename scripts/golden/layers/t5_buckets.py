"""Makes t5-buckets.safetensors: buckets of distances of T5 as Transformers computes them, of several numbers of buckets.

Some distances lie so close to the border of two buckets that the order of the operations and their rounding decide.
"""

import argparse
from pathlib import Path

import torch
import transformers
from transformers.models.t5.modeling_t5 import T5Attention

from ..common import default_folder, save

SHAPES = [(4, 3), (5, 9), (8, 11), (9, 128), (16, 20), (32, 128), (33, 500), (64, 100)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=default_folder(__file__))
    arguments = parser.parse_args()
    relative = torch.arange(-200, 201)
    tensors = {"relative_positions": relative, "shapes": torch.tensor(SHAPES)}
    for buckets, distance in SHAPES:
        for name, is_causal in [("causal", True), ("bidirectional", False)]:
            found = T5Attention._relative_position_bucket(relative, not is_causal, buckets, distance)
            tensors[f"{buckets}.{distance}.{name}"] = found
    save(arguments.out / "t5-buckets.safetensors", __file__, tensors, transformers=transformers.__version__)


if __name__ == "__main__":
    main()
