#!/usr/bin/env python3
"""Trains eight small language models, fits scaling laws to them, and trains the ninth that these ask for.

    scripts/figures/scaling.py FOLDER [--taper FILE] [--threads N] [--data FOLDER]

The models are those of configs/shakespeare-char.toml in four sizes, each trained on two amounts of
data/tinyshakespeare (scripts/fetch/tinyshakespeare.sh): ten minutes on one core. Runs are kept in
FOLDER; those that are there are not trained again. `taper scaling` fits the laws and draws them
into FOLDER/figures. The ninth has the size and the text that the law says are best for the cost of
the largest of the eight; its loss stands beside the one that was predicted.

Needs Python 3.11, and nothing else.
"""

import argparse
import json
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECIPE, BATCH = "configs/shakespeare-char.toml", 768
# Width and layers.
SIZES, UPDATES = [(24, 2), (40, 2), (72, 3), (128, 4)], [700, 2100]
HEAD = 8


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--taper", default="target/release/taper")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--data", default="data/tinyshakespeare")
    arguments = parser.parse_args()
    folder, data = arguments.folder.resolve(), Path(arguments.data).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    threads = ["--threads", str(arguments.threads)]

    def taper(*words):
        done = subprocess.run([arguments.taper, *words, *threads], cwd=ROOT, check=True, text=True,
                              capture_output=True)
        return done.stdout

    def train(width, layers, updates):
        """The run, and its size, text and loss."""
        run = folder / f"{width}x{layers}-{updates}"
        settings = {
            "name": run.name, "data.dir": data, "model.d_model": width, "model.d_ff": 4 * width,
            "model.heads": max(1, width // (4 * HEAD)) if width % 32 == 0 else width // HEAD,
            "model.decoder_layers": layers, "training.max_updates": updates,
            "training.validate_every": updates, "dtype": "f32",
            # Narrow models take larger steps.
            "training.schedule.learning_rate": round(1e-3 * (128 / width) ** 0.5, 6),
        }
        if not (run / "checkpoints" / "last").exists():
            words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
            taper("train", RECIPE, "--run", str(run), *words)
        lines = [json.loads(line) for line in open(run / "metrics.jsonl")]
        loss = [line["scores"]["nll"] for line in lines if line["event"] == "validation"][-1]
        print(f"{run.name}: loss {loss:.4f}", flush=True)
        return run, loss

    runs = [train(*size, updates)[0] for size in SIZES for updates in UPDATES]
    text = taper("scaling", *map(str, runs), "--svg", str(folder / "figures"))
    print(text)
    # The first amount of training of which the best model is told is that of the largest of these.
    parameters, tokens, predicted = map(float, re.search(
        r"FLOPs: (\S+) parameters, (\S+) tokens .*loss (\S+)", text).groups())
    layers = SIZES[-1][1]
    # A layer has 12 numbers for each pair of units, and these are nearly all.
    width = round((parameters / (12 * layers)) ** 0.5 / HEAD) * HEAD
    run, loss = train(width, layers, round(tokens / BATCH))
    print(f"the ninth, of {parameters:.3g} parameters and {tokens:.3g} tokens as the law says: "
          f"{predicted:.3f} predicted, {loss:.3f} reached by {run.name}")


main()
