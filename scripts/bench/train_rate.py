#!/usr/bin/env python3
"""Whether `taper train` is as quick as `taper bench train`, and as quick on a large corpus as on a small one.

    python scripts/bench/train_rate.py --text data/multi30k --batches BATCHES [--pairs 29000 1000000] [--rounds 2]

Two processes run side by side, each with one thread on a core of its own, and then once more with the cores changed: what
else the machine does meets both. Corpora are made of the lines of Multi30k as by scripts/bench/scale.sh; BATCHES is what
`taper bench train` reads. Rates are target tokens a second of the `tiny` model, from the second log line on. Needs Linux.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

from scale import DATA, write_corpus

RECIPE = f"""
device = "cpu"
threads = 1
dtype = "bf16"
{DATA}[data.tokenizer]
vocabulary_size = 10000
[data.batching]
max_tokens = 4096
[model]
d_model = 128
d_ff = 256
heads = 4
encoder_layers = 4
decoder_layers = 4
[training]
max_updates = 1
log_every = 20
validate_every = 0
average_last = 0
[evaluation]
test_after_training = false
"""


def prepared(taper, text, pairs, folder):
    """A run of one update."""
    folder.mkdir()
    write_corpus(text, folder / "text", pairs)
    (folder / "recipe.toml").write_text(RECIPE)
    subprocess.run([taper, "train", "recipe.toml", "--run", "run"], cwd=folder, check=True, capture_output=True)


def start(taper, what, updates, core):
    """A program that trains; `what` is the folder of a prepared corpus or a file of batches."""
    if what.is_file():
        command = [taper, "bench", "train", "--batches", what, "--preset", "tiny", "--dtype", "bf16", "--threads", "1"]
        command += ["--steps", str(updates), "--json"]
        folder = what.parent
    else:
        folder = what
        shutil.rmtree(folder / "again", ignore_errors=True)
        shutil.copytree(folder / "run", folder / "again")
        command = [taper, "resume", "again", "--set", f"training.max_updates={updates}"]
    pin = lambda: os.sched_setaffinity(0, {core})
    return subprocess.Popen(command, cwd=folder, preexec_fn=pin, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def rate(what, process):
    """Target tokens a second."""
    output = process.communicate()[0]
    if process.returncode:
        raise SystemExit(f"{what}: exit status {process.returncode}")
    if what.is_file():
        return json.loads(output)["target_tokens_per_s"]
    records = map(json.loads, (what / "again" / "metrics.jsonl").read_text().splitlines())
    first, *_, last = [record for record in records if record["event"] == "log"][1:]
    return (last["tokens"] - first["tokens"]) / (last["timing"]["elapsed_seconds"] - first["timing"]["elapsed_seconds"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--taper", type=Path, default=Path("target/release/taper"))
    parser.add_argument("--text", type=Path, required=True, help="folder of Multi30k")
    parser.add_argument("--batches", type=Path, required=True)
    parser.add_argument("--pairs", type=int, nargs=2, default=[29_000, 1_000_000])
    parser.add_argument("--updates", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    taper, cores = arguments.taper.resolve(), sorted(os.sched_getaffinity(0))[:2]
    with tempfile.TemporaryDirectory() as name:
        small, large = Path(name, "small"), Path(name, "large")
        for folder, pairs in zip((small, large), arguments.pairs):
            prepared(taper, arguments.text, pairs, folder)
        bench = arguments.batches.resolve()
        names = {small: f"train on {arguments.pairs[0]} pairs", large: f"train on {arguments.pairs[1]} pairs", bench: "bench train"}
        for one, other in ((large, small), (small, bench), (large, bench)):
            ratios = []
            for turn in range(2 * arguments.rounds):
                pair = [(what, start(taper, what, arguments.updates, core)) for what, core in zip((one, other), cores)]
                own, others = (rate(*side) for side in pair)
                ratios.append(own / others)
                cores.reverse()
            shown = ", ".join(f"{ratio:.3f}" for ratio in ratios)
            print(f"{names[one]} / {names[other]}: {statistics.median(ratios):.3f} ({shown})", flush=True)


if __name__ == "__main__":
    main()
