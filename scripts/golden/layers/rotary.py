"""Makes rotary.safetensors: rotary positions of other bases, pairs and scalings, by the library Transformers.

Frequencies and magnitudes are those of its `ROPE_INIT_FUNCTIONS`, as Llama, Qwen and GPT-J models have them; the
rotation itself is that of its Llama (halves) and of its GPT-J (interleaved). The library computes frequencies in
float32; all else here is in float64.
"""

import argparse
from pathlib import Path

import torch
import transformers
from torch import Tensor
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import modeling_llama

from ..common import default_folder, random, save, setup

HEADS, HEAD_WIDTH = 3, 16
# Within and beyond the 64 tokens of the original training.
POSITIONS = [0, 1, 2, 3, 17, 63, 64, 120]
ORIGINAL = 64

CASES: dict[str, dict[str, object]] = {
    "base": {"rope_type": "default", "rope_theta": 500_000.0},
    "linear": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0},
    "llama3": {
        "rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": ORIGINAL,
    },
    "yarn": {
        "rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": ORIGINAL,
    },
    "yarn_narrow": {
        "rope_type": "yarn", "rope_theta": 10_000.0, "factor": 16.0, "original_max_position_embeddings": ORIGINAL,
        "beta_fast": 4.0, "beta_slow": 0.5, "attention_factor": 1.1,
    },
}


def frequencies(parameters: dict[str, object]) -> tuple[Tensor, float]:
    """(Dh/2,), and the magnitude."""
    config = LlamaConfig(
        hidden_size=HEADS * HEAD_WIDTH, num_attention_heads=HEADS, head_dim=HEAD_WIDTH,
        max_position_embeddings=int(ORIGINAL * parameters.get("factor", 1)), rope_parameters=parameters,
    )
    if parameters["rope_type"] == "default":
        embedding = modeling_llama.LlamaRotaryEmbedding(config)
        return embedding.inv_freq.double(), embedding.attention_scaling
    found, magnitude = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, device="cpu")
    return found.double(), magnitude


def in_halves(x: Tensor, angles: Tensor, magnitude: float) -> Tensor:
    angles = angles.repeat(1, 2)[None]
    heads = x.unflatten(1, (HEADS, HEAD_WIDTH)).transpose(0, 1)[None]
    turned, _ = modeling_llama.apply_rotary_pos_emb(heads, heads, magnitude * angles.cos(), magnitude * angles.sin())
    return turned[0].transpose(0, 1).flatten(1)


def interleaved(x: Tensor, angles: Tensor, magnitude: float) -> Tensor:
    heads = x.unflatten(1, (HEADS, HEAD_WIDTH))[None]
    sines, cosines = magnitude * angles.sin()[None], magnitude * angles.cos()[None]
    return modeling_gptj.apply_rotary_pos_emb(heads, sines, cosines)[0].flatten(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=default_folder(__file__))
    arguments = parser.parse_args()
    setup()
    x = random(torch.Generator().manual_seed(20210420), len(POSITIONS), HEADS * HEAD_WIDTH)
    positions = torch.tensor(POSITIONS)
    tensors = {"x": x, "positions": positions}
    for name, parameters in CASES.items():
        speeds, magnitude = frequencies(parameters)
        angles = torch.outer(positions.double(), speeds)
        tensors[f"{name}.halves"] = in_halves(x, angles, magnitude)
        tensors[f"{name}.interleaved"] = interleaved(x, angles, magnitude)
    save(arguments.out / "rotary.safetensors", __file__, tensors, transformers=transformers.__version__)


if __name__ == "__main__":
    main()
