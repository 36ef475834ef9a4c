#!/usr/bin/env python3
"""Fine-tuning of a BERT into a classifier of texts: Taper beside a plain loop of Transformers.

    python scripts/bench/finetune_bert.py FOLDER LABELS.tsv OUTPUT [--rounds 3] [--threads 2]

FOLDER is a BERT of the library Transformers, LABELS.tsv has a label and a text a line. Both programs
go on in turn: `taper train --dry-run` of the recipe that `taper finetune` writes, which measures
updates, and AdamW on batches with as many texts, padded to the longest, as `Trainer` makes them.
Prints texts a second, peak memory, and the share of the peak of multiply-adds that Taper has.

Needs torch and transformers.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
from pathlib import Path

WARM_UP, UPDATES = 2, 8


def transformers_loop(folder, rows, count, threads):
    """Texts a second, and the peak of resident memory in MiB, of the loop in this process."""
    import resource
    import time

    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.set_num_threads(threads)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    random.Random(1).shuffle(rows)
    for update in range(WARM_UP + UPDATES):
        if update == WARM_UP:
            began = time.perf_counter()
        some = rows[update * count : (update + 1) * count]
        batch = tokenizer([text for _, text in some], padding=True, return_tensors="pt")
        loss = model(**batch, labels=torch.tensor([label for label, _ in some])).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    seconds = time.perf_counter() - began
    return UPDATES * count / seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def last_line(command):
    done = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True)
    return done.stdout.strip().splitlines()[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path), parser.add_argument("labels", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--taper", default="target/release/taper")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--other", type=int, metavar="TEXTS", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.other:
        lines = arguments.labels.read_text(encoding="utf-8").splitlines()
        rows = [(int(label), text) for label, text in (line.split("\t", 1) for line in lines)]
        speed, peak = transformers_loop(arguments.folder, rows, arguments.other, arguments.threads)
        return print(json.dumps([speed, peak]))
    output = arguments.output
    output.mkdir(parents=True, exist_ok=True)
    recipe, run = output / "bert.toml", output / "bert"
    if not recipe.exists():
        subprocess.run([arguments.taper, "import", arguments.folder, run], check=True)
        subprocess.run([arguments.taper, "finetune", run, "--labels", arguments.labels, "--task", "classification",
                        "--data", output / "data", "--output", recipe, "--recipe-only"], check=True)
    ours, theirs = [], []
    for _ in range(arguments.rounds):
        ours.append(json.loads(last_line([
            arguments.taper, "train", recipe, "--from", run, "--run", output / "dry", "--threads", arguments.threads,
            "--dry-run", "--json"])))
        texts = round(ours[-1]["tokens_per_second"] * ours[-1]["seconds_per_update"])
        theirs.append(json.loads(last_line([
            sys.executable, __file__, arguments.folder, arguments.labels, output, "--other", texts,
            "--threads", arguments.threads])))
    ratios = [mine["tokens_per_second"] / other[0] for mine, other in zip(ours, theirs)]
    print(json.dumps({
        "texts_a_batch": texts,
        "taper": statistics.median(mine["tokens_per_second"] for mine in ours),
        "transformers": statistics.median(other[0] for other in theirs),
        "ratios": sorted(round(ratio, 2) for ratio in ratios),
        "peak_mib": [max(mine["peak_memory"] >> 20 for mine in ours), max(other[1] for other in theirs)],
        "share_of_peak": statistics.median(mine["arithmetic"]["share_of_peak"] for mine in ours),
    }))


if __name__ == "__main__":
    main()
