#!/usr/bin/env python3
"""Weak scaling: the rate of N processes with a core each, beside N times that of one process on one core.

    python scripts/bench/processes.py RECIPE [--processes 2] [--micro-batches 1] [--updates 60] [--rounds 3]
        [--set KEY=VALUE …]

Each process has so many micro-batches of an update, so that N of them have N times the work of one. Beside
them, N trainings of one process each run at the same time and know nothing of each other: what cores
take from each other by sharing caches, memory and power, which no exchange can win back. The three are
run in turn, `--rounds` times, and each round has its own ratios. Rates are target tokens a second
between the second and the last log line. Needs Linux, and as many cores as processes.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path


def start(taper, recipe, processes, micro_batches, updates, settings, run, core):
    """Begins a training of so many processes with a thread each; a single one stays on `core`."""
    fixed = {
        "training.accumulation": processes * micro_batches,
        "training.max_updates": updates,
        "training.max_epochs": 0,
        "training.log_every": max(1, updates // 6),
        "training.validate_every": 0,
        "training.checkpoint_every": 0,
        "training.early_stopping.patience": 0,
        "training.average_last": 0,
        "evaluation.test_after_training": "false",
    }
    command = [taper, "train", recipe, "--run", run, "--threads", str(processes)]
    if processes > 1:
        command += ["--processes", str(processes)]
    for setting in [f"{key}={value}" for key, value in fixed.items()] + settings:
        command += ["--set", setting]
    # One process stays on one core, as each of several does by itself.
    pin = (lambda: os.sched_setaffinity(0, {core})) if processes == 1 else None
    return subprocess.Popen(command, preexec_fn=pin, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def rate(training, run):
    """Target tokens a second of a training, once it has ended."""
    _, said = training.communicate()
    if training.returncode:
        raise SystemExit(said)
    records = map(json.loads, (Path(run) / "metrics.jsonl").read_text().splitlines())
    first, *_, last = [record for record in records if record["event"] == "log"][1:]
    seconds = last["timing"]["elapsed_seconds"] - first["timing"]["elapsed_seconds"]
    return (last["tokens"] - first["tokens"]) / seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe")
    parser.add_argument("--taper", default="target/release/taper")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=1, help="of each process in an update")
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    arguments = parser.parse_args()
    taper = str(Path(arguments.taper).resolve())
    cores = sorted(os.sched_getaffinity(0))
    ratios, bounds = [], []
    for number in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as folder:
            def begin(name, processes, core=cores[0]):
                run = f"{folder}/{name}"
                counts = processes, arguments.micro_batches, arguments.updates
                return start(taper, arguments.recipe, *counts, arguments.settings, run, core), run

            one = rate(*begin("one", 1))
            many = rate(*begin("many", arguments.processes))
            apart = [begin(f"apart-{core}", 1, core) for core in cores[: arguments.processes]]
            beside = sum(rate(*training) for training in apart)
        ratios.append(many / (arguments.processes * one))
        bounds.append(beside / (arguments.processes * one))
        print(
            f"round {number + 1}: 1 process {one:.0f} tokens/s, {arguments.processes} processes {many:.0f}, {ratios[-1]:.3f};"
            f" {arguments.processes} apart {beside:.0f}, {bounds[-1]:.3f}",
            flush=True,
        )
    efficiency, bound = statistics.median(ratios), statistics.median(bounds)
    print(
        f"efficiency: {efficiency:.3f}; of trainings apart: {bound:.3f}; of what the cores can do together: {efficiency / bound:.3f}"
        f" (medians of {arguments.rounds})"
    )


if __name__ == "__main__":
    main()
