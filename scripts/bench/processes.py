#!/usr/bin/env python3
"""Weak scaling: the rate of N processes with a core each, beside N times that of one process on one core.

    python scripts/bench/processes.py RECIPE [--processes 2] [--updates 60] [--rounds 3] [--set KEY=VALUE …]

Each process has one micro-batch of an update, so that N of them have N times the work of one. The two
are run in turn, `--rounds` times, and each round has its own ratio. Rates are target tokens a second
between the second and the last log line. Needs Linux, and as many cores as processes.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path


def rate(taper, recipe, processes, updates, settings, run):
    """Target tokens a second of so many processes with a thread each."""
    log_every = max(1, updates // 6)
    fixed = {
        "training.accumulation": processes,
        "training.max_updates": updates,
        "training.max_epochs": 0,
        "training.log_every": log_every,
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
    first = sorted(os.sched_getaffinity(0))[0]
    pin = (lambda: os.sched_setaffinity(0, {first})) if processes == 1 else None
    done = subprocess.run(command, preexec_fn=pin, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    records = map(json.loads, (Path(run) / "metrics.jsonl").read_text().splitlines())
    first, *_, last = [record for record in records if record["event"] == "log"][1:]
    seconds = last["timing"]["elapsed_seconds"] - first["timing"]["elapsed_seconds"]
    return (last["tokens"] - first["tokens"]) / seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe")
    parser.add_argument("--taper", default="target/release/taper")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    arguments = parser.parse_args()
    taper = str(Path(arguments.taper).resolve())
    ratios = []
    for number in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as folder:
            one, many = (
                rate(taper, arguments.recipe, count, arguments.updates, arguments.settings, f"{folder}/{count}")
                for count in (1, arguments.processes)
            )
        ratios.append(many / (arguments.processes * one))
        print(f"round {number + 1}: 1 process {one:.0f} tokens/s, {arguments.processes} processes {many:.0f}, {ratios[-1]:.3f}")
    print(f"efficiency: {statistics.median(ratios):.3f} (median of {arguments.rounds})")


if __name__ == "__main__":
    main()
