#!/usr/bin/env python3
"""Trains a language model for each position encoding on blocks of 64 characters, and measures longer ones.

    scripts/figures/extrapolation.py FOLDER [--taper FILE] [--updates N] [--threads N]

Each run is the model of configs/shakespeare-char.toml on data/tinyshakespeare
(scripts/fetch/tinyshakespeare.sh), about a minute on two cores. Runs are kept in FOLDER; those that
are there are not trained again. Then `taper extrapolate` prints the perplexity on blocks of 64 to
2,048 characters, rotary positions also interpolated, with NTK scaling, by YaRN and in dual chunks,
and draws it into FOLDER/figures; and of the Transformer-XL by the length of its memory.

Needs Python 3.11, and nothing else.
"""

import argparse
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECIPE = "configs/shakespeare-char.toml"
LENGTHS, MEMORIES = "64,128,256,512,1024,2048", (0, 4, 8, 16, 32, 64, 128)
XL = ["model.positions=none", "model.decoder_attention.kind=transformer-xl"]
RUNS = {
    "sinusoidal": ["model.positions=sinusoidal", "model.scale_embeddings=true"],
    "learned": [],
    "t5": ["model.positions=t5"],
    "rotary": ["model.positions=rotary"],
    "alibi": ["model.positions=alibi"],
    "none": ["model.positions=none"],
    # One segment a block, as the others; and four, of which each has a memory of the one before.
    "transformer-xl": [*XL, "model.decoder_attention.segment=64", "model.decoder_attention.memory=64"],
    "transformer-xl-memory": [
        *XL, "model.decoder_attention.segment=16", "model.decoder_attention.memory=16",
    ],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--taper", default="target/release/taper")
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--data", default="data/tinyshakespeare")
    arguments = parser.parse_args()
    folder, data = arguments.folder.resolve(), Path(arguments.data).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    threads = ["--threads", str(arguments.threads)]

    def taper(*words, **options):
        return subprocess.run([arguments.taper, *words, *threads], cwd=ROOT, check=True, text=True, **options)

    for name, settings in RUNS.items():
        if (folder / name / "checkpoints" / "last").exists():
            continue
        common = [
            f"name={name}", f"data.dir={data}", f"training.max_updates={arguments.updates}",
            f"training.schedule.warmup={min(100, arguments.updates // 2)}",
        ]
        words = [word for setting in common + settings for word in ("--set", setting)]
        with open(folder / f"{name}.log", "w") as log:
            taper("train", RECIPE, "--run", str(folder / name), *words, stdout=log, stderr=log)
    models = [str(folder / name) for name in RUNS if name != "transformer-xl-memory"]
    taper("extrapolate", *models, "--lengths", LENGTHS, "--svg", str(folder / "figures"))
    for memory in MEMORIES:
        print(f"a memory of {memory}:", flush=True)
        taper(
            "extrapolate", str(folder / "transformer-xl-memory"), "--lengths", "256",
            "--set", f"model.decoder_attention.memory={memory}",
        )


if __name__ == "__main__":
    main()
