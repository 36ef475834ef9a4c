#!/usr/bin/env python3
"""Converts a Taper run to a CTranslate2 model, so that both can be compared on the same weights.

Usage: python scripts/convert/to_ctranslate2.py RUN OUTPUT [--checkpoint average|best|last|step-…|DIR] [--quantization int8|bfloat16|…]

Reads the run's config.toml, tokenizer.json and model.safetensors; writes a folder that
`ctranslate2.Translator` opens. Pre-LN and Post-LN, every kind of tying, models without biases, and
the activations relu, gelu (exact) and swish are converted. Positions may be sinusoidal, in either layout, or
learned; T5, rotary and ALiBi positions are refused, as CTranslate2's encoder-decoder does not
compute them as Taper does.

Needs Python 3.11 or later and: ctranslate2, numpy, safetensors, tokenizers. Made with ctranslate2 4.8.5.
"""

import argparse
import json
import sys
import tomllib
from pathlib import Path

import numpy as np
from ctranslate2.specs import common_spec, transformer_spec
from safetensors.numpy import load_file
from tokenizers import Tokenizer

ACTIVATIONS = {
    "relu": common_spec.Activation.RELU,
    "gelu": common_spec.Activation.GELU,
    "swish": common_spec.Activation.SWISH,
}


def checkpoint_of(run: Path, name: str | None) -> Path:
    """The checkpoint folder that `taper translate --checkpoint NAME` would use."""
    checkpoints = run / "checkpoints"
    if name is None:
        def state(folder: Path) -> dict:
            return json.loads((folder / "state.json").read_text())

        averaged, saved = checkpoints / "averaged", sorted(checkpoints.glob("step-*"))
        newest = max((state(folder)["step"] for folder in saved if not state(folder).get("interim")), default=0)
        # One from before the run went on does not count.
        if averaged.exists() and state(averaged)["step"] >= newest:
            return averaged
        name = "best" if (checkpoints / "best").exists() else "last"
    if name == "average":
        return checkpoints / "averaged"
    if name in ("best", "last"):
        return checkpoints / (checkpoints / name).read_text().strip()
    return Path(name) if "/" in name else checkpoints / name


def sinusoids(count: int, model: dict) -> np.ndarray:
    """The table of Vaswani et al. 2017, section 3.5, interleaved or in halves, or with the frequencies of Tensor2Tensor."""
    width, first = model["d_model"], model.get("position_offset", 0)
    last = width / 2 - (model.get("sinusoid_frequencies") == "tensor2tensor")
    angles = (first + np.arange(count))[:, None] * 10_000.0 ** (-np.arange(width // 2) / max(last, 1))
    halves = model["positions"] == "sinusoidal-halves"
    parts = np.stack([np.sin(angles), np.cos(angles)], axis=1 if halves else 2)
    return parts.reshape(count, width).astype(np.float32)


class Converter:
    """Moves parameters from their names in Taper to their places in the specification."""

    def __init__(self, model: dict, weights: dict):
        self.model = model
        self.weights = weights

    def linear(self, spec, name: str):
        spec.weight = self.weights[f"{name}.weight"]
        if self.model["biases"]:
            spec.bias = self.weights[f"{name}.bias"]

    def norm(self, spec, name: str):
        spec.gamma = self.weights[f"{name}.weight"]
        spec.beta = self.weights[f"{name}.bias"]

    def layer(self, spec, name: str):
        self.norm(spec.self_attention.layer_norm, f"{name}.self_attention_norm")
        self.linear(spec.self_attention.linear[0], f"{name}.self_attention.qkv")
        self.linear(spec.self_attention.linear[1], f"{name}.self_attention.out")
        if hasattr(spec, "attention"):
            self.norm(spec.attention.layer_norm, f"{name}.cross_attention_norm")
            for place, part in enumerate(("q", "kv", "out")):
                self.linear(spec.attention.linear[place], f"{name}.cross_attention.{part}")
        self.norm(spec.ffn.layer_norm, f"{name}.feed_forward_norm")
        self.linear(spec.ffn.linear_0, f"{name}.feed_forward.up")
        self.linear(spec.ffn.linear_1, f"{name}.feed_forward.down")

    def stack(self, spec, name: str, positions: int):
        model = self.model
        spec.scale_embeddings = model["scale_embeddings"]
        if model["positions"] == "learned":
            first = model.get("position_offset", 0)
            spec.position_encodings.encodings = self.weights[f"{name}.positions.weight"][first:]
        else:
            spec.position_encodings.encodings = sinusoids(positions, model)
        for index, layer in enumerate(spec.layer):
            self.layer(layer, f"{name}.layers.{index}")
        if model["norm"] == "pre":
            self.norm(spec.layer_norm, f"{name}.final_norm")

    def transformer(self, positions: int) -> transformer_spec.TransformerSpec:
        model = self.model
        spec = transformer_spec.TransformerSpec.from_config(
            (model["encoder_layers"], model["decoder_layers"]),
            model["heads"],
            pre_norm=model["norm"] == "pre",
            activation=ACTIVATIONS[model["activation"]],
        )
        shared = self.weights.get("embedding.weight")
        source = shared if shared is not None else self.weights["source_embedding.weight"]
        target = shared if shared is not None else self.weights["target_embedding.weight"]
        spec.encoder.embeddings[0].weight = source
        spec.decoder.embeddings.weight = target
        spec.decoder.projection.weight = self.weights.get("output.weight", target)
        self.stack(spec.encoder, "encoder", positions)
        self.stack(spec.decoder, "decoder", positions)
        return spec


def vocabulary(path: Path, size: int) -> list[str]:
    tokenizer = Tokenizer.from_file(str(path))
    # A hole in a foreign tokenizer still needs a name of its own.
    return [tokenizer.id_to_token(i) or f"<hole-{i}>" for i in range(size)]


def convert(run: Path, output: Path, checkpoint: str | None, quantization: str | None, positions: int):
    config = tomllib.loads((run / "config.toml").read_text())
    model = config["model"]
    if model["positions"] not in ("sinusoidal", "sinusoidal-halves", "learned"):
        sys.exit(f"{run}: positions = {model['positions']!r} cannot be converted; only sinusoidal, sinusoidal-halves and learned can")
    weights = load_file(checkpoint_of(run, checkpoint) / "model.safetensors")
    spec = Converter(model, weights).transformer(positions)
    names = ("tokenizer.json", "tokenizer.json")
    if not (run / names[0]).exists():
        names = ("tokenizer.source.json", "tokenizer.target.json")
    spec.register_source_vocabulary(vocabulary(run / names[0], spec.encoder.embeddings[0].weight.shape[0]))
    spec.register_target_vocabulary(vocabulary(run / names[1], spec.decoder.embeddings.weight.shape[0]))
    spec.config.layer_norm_epsilon = model["norm_epsilon"]
    spec.config.decoder_start_token = "<s>"
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize(quantization=quantization)
    output.mkdir(parents=True, exist_ok=True)
    spec.save(str(output))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--checkpoint", help="average, best, last, or a folder [default: as taper translate]")
    parser.add_argument("--quantization", help="int8, bfloat16, float16 … [default: f32]")
    parser.add_argument("--positions", type=int, default=1024, help="rows of the sinusoidal table")
    arguments = parser.parse_args()
    convert(arguments.run, arguments.output, arguments.checkpoint, arguments.quantization, arguments.positions)


if __name__ == "__main__":
    main()
