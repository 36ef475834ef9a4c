#!/usr/bin/env python3
"""Trains Pre-LN and Post-LN at several depths, with and without warm-up, and draws their gradients.

    scripts/figures/gradient_flow.py FOLDER [--taper FILE] [--updates N] [--depths 6,12,24]

Each run is a small language model on data/tinyshakespeare (scripts/fetch/tinyshakespeare.sh), some
minutes in all on two cores. Runs are kept in FOLDER; those that are there are not trained again. It
prints a table, and writes the reports' figures of each run into FOLDER/figures.

Needs Python 3.11, and nothing else.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECIPE = """
task = "language-model"
dtype = "f32"

[data]
dir = "{data}"
train = "{text}"
validation = ""
test = []

[data.text]
block_length = 64
hold_out = 0.05

[data.tokenizer]
kind = "char"

[data.batching]
max_tokens = 1024

[model]
d_model = 64
d_ff = 256
heads = 4
decoder_layers = {depth}
norm = "{norm}"
embedding_dropout = 0.0
attention_dropout = 0.0
feed_forward_dropout = 0.0
residual_dropout = 0.0

[training]
max_updates = {updates}
clip_norm = 0.0
label_smoothing = 0.0
log_every = 10
log_layers = true
validate_every = {updates}
max_skipped_in_a_row = 8

[training.schedule]
kind = "constant"
learning_rate = 0.003
warmup = {warmup}
"""


def entries(run):
    path = run / "metrics.jsonl"
    return [json.loads(line) for line in open(path)] if path.exists() else []


def row(name, run, depth):
    found = entries(run)
    logged = [one for one in found if one["event"] == "log"]
    skipped = [one for one in found if one["event"] == "skipped"]
    scores = [one["scores"] for one in found if one["event"] == "validation"]
    if not logged:
        return f"| {name} | – | – | – | no update was made |"
    layers = logged[0]["layers"]
    inner = lambda number: next(value["gradient"] for key, value in layers.items()
                                if key.endswith(f".{number}"))
    first, last = inner(0), inner(depth - 1)
    loss = f"{scores[-1]['nll']:.3f}" if scores else "–"
    note = f"{len(skipped)} updates skipped, first: {skipped[0]['place']}" if skipped else ""
    return (f"| {name} | {loss} | {first:.3g} / {last:.3g} | "
            f"{max(one['gradient_norm'] for one in logged):.3g} | {note} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--taper", type=Path, default=ROOT / "target/release/taper")
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--depths", default="6,12,24")
    parser.add_argument("--data", type=Path, default=ROOT / "data/tinyshakespeare")
    parser.add_argument("--text", default="input")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    print("| run | validation loss | gradients of the first / last layer at update 10 | "
          "largest norm | |\n|---|---|---|---|---|")
    for depth in map(int, arguments.depths.split(",")):
        for norm in ("pre", "post"):
            for warmup in (arguments.updates // 2, 0):
                name = f"{norm}-{depth}-{'warm-up' if warmup > 1 else 'none'}"
                run = arguments.folder / name
                recipe = arguments.folder / f"{name}.toml"
                if not run.exists():
                    recipe.write_text(RECIPE.format(
                        data=arguments.data.resolve(), text=arguments.text, depth=depth, norm=norm,
                        updates=arguments.updates, warmup=warmup))
                    # A run that diverges ends with an error: that is a result.
                    done = subprocess.run(
                        [arguments.taper, "train", recipe, "--run", run,
                         "--threads", str(arguments.threads)],
                        capture_output=True, text=True)
                    if done.returncode and not entries(run):
                        sys.exit(done.stderr)
                print(row(name, run, depth), flush=True)
                subprocess.run([arguments.taper, "report", run, "--svg",
                                arguments.folder / "figures" / name], check=True,
                               stdout=subprocess.DEVNULL)


main()
