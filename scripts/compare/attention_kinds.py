#!/usr/bin/env python3
"""Trains a translation model and a language model with each kind of attention, and compares them.

    scripts/compare/attention_kinds.py FOLDER [--updates 4000] [--jobs 2] [--only NAME...]
        [--taper FILE] [--device cpu] [--length 4096 | --no-bench]
        [--multi30k FOLDER] [--tinyshakespeare FOLDER]

The models are those of configs/multi30k-en-de-lc-tok.toml, without R-Drop, with dropout of 0.1 and
a cosine schedule, and of configs/shakespeare-char.toml; all make as many updates, on one thread
each, --jobs at a time. What is a kind's own is in KINDS. All models of a task are about as large,
but for a mixture of experts, which has four times the feed-forward layers at the arithmetic of one.

Runs are kept in FOLDER/TASK-UPDATES/KIND, and the same command goes on with those that were
interrupted; one that has ended has a file `done` with its number of parameters. --jobs 0 trains
none of the others; --only takes kinds, or patterns such as 'translation/*'. At the end a Markdown
table is printed: of both tasks the parameters and the best validation loss, in nats a token and
without smoothing; BLEU of the test sets, of tokens as they are; and by `taper bench attention` what
attention in as many heads takes for one sequence of --length tokens, forward and back, on one
thread and with the bench's own sizes of windows and the like, in a decoder (of a Linformer, in an
encoder).

Needs Python 3.8 or later, and what scripts/fetch/multi30k.sh and tinyshakespeare.sh fetch.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# The recipe of each task, its data, the longest warm-up, and what differs from the recipe.
TASKS = {
    "translation": ("multi30k-en-de-lc-tok", "multi30k", 1000, {
        "model.embedding_dropout": 0.1,
        "model.residual_dropout": 0.1,
        "training.r_drop": 0.0,
        "training.average_last": 0,
        "training.schedule.kind": "cosine",
        "training.schedule.learning_rate": 3e-3,
        "training.early_stopping.patience": 0,
        "evaluation.validation_sentences": 0,
    }),
    "language-model": ("shakespeare-char", "tinyshakespeare", 100, {}),
}
TESTS = ["test_2016_flickr", "test_2017_flickr"]


def stack(name, kind, **keys):
    """Settings of self-attention in the encoder or in the decoder."""
    return {f"model.{name}_attention.{key}": value for key, value in {"kind": kind, **keys}.items()}


def decoder(kind, **keys):
    return stack("decoder", kind, **keys)


def both(kind, **keys):
    return {**stack("encoder", kind, **keys), **decoder(kind, **keys)}


ORDERED = {"model.positions": "none"}
EXPERTS = {"model.experts.count": 4}
# Without feed-forward layers, as papers have them; so many layers are as large.
STATES = {**ORDERED, "model.encoder_layers": 5}
TEXT_STATES = {**ORDERED, "model.decoder_layers": 7, "model.state_space.states": 12}

# Settings of the translation model and of the language model, which reads blocks of 64 characters:
# sentences have about 14 tokens, so that what a token sees is less there.
KINDS = {
    "full": ({}, {}),
    "window": (both("sparse", window=4), decoder("sparse", window=16)),
    "dilated": (both("sparse", window=4, dilation=2), decoder("sparse", window=16, dilation=2)),
    "global": (
        both("sparse", window=4, global_first=1),
        decoder("sparse", window=16, global_first=4),
    ),
    "random": (
        both("sparse", block=2, window=2, random=1),
        decoder("sparse", block=4, window=4, random=2),
    ),
    "linear": (both("linear"), decoder("linear")),
    # With the features it is validated with: those it would draw in between, it learns to rely on.
    "performer": (both("performer"), decoder("performer")),
    "linformer": (stack("encoder", "linformer", rank=8, length=128), None),
    "reformer": (
        both("reformer", hash_buckets=4, hash_chunk=4),
        decoder("reformer", hash_buckets=4, hash_chunk=16),
    ),
    "hierarchical": (both("hierarchical", chunk=4), decoder("hierarchical", chunk=8)),
    # Its decoder has no positions but distances, and so the encoder has none: its first layer reads
    # in order.
    "transformer-xl": (
        {
            **ORDERED, **decoder("transformer-xl", segment=8, memory=8),
            "model.encoder_attention.kinds": ["mamba", "3 full"],
            "model.state_space.feed_forward": True, "model.state_space.expand": 1,
        },
        {**ORDERED, **decoder("transformer-xl", segment=16, memory=16)},
    ),
    "mamba": ({**STATES, **both("mamba")}, {**TEXT_STATES, **decoder("mamba")}),
    "s4d": ({**STATES, **both("s4d")}, {**TEXT_STATES, **decoder("s4d")}),
    "experts": (EXPERTS, EXPERTS),
}
# Of patterns, the bench knows the window alone; a mixture of experts has full attention.
BENCHED = {kind: kind for kind in KINDS if kind not in ("dilated", "global", "random", "experts")}
BENCHED["window"] = "sparse"


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--updates", type=int, default=4000)
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time; 0: none")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=["*"], help="such kinds alone")
    parser.add_argument("--taper", type=Path, default=ROOT / "target/release/taper")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--length", type=int, default=4096, help="tokens of the bench")
    parser.add_argument("--no-bench", action="store_true", help="no time and memory")
    parser.add_argument("--multi30k", type=Path, default=ROOT / "data/multi30k-lc-tok")
    parser.add_argument("--tinyshakespeare", type=Path, default=ROOT / "data/tinyshakespeare")
    arguments = parser.parse_args()
    arguments.taper = arguments.taper.resolve()
    known = [*KINDS, *(f"{task}/{kind}" for task in TASKS for kind in KINDS)]
    for name in arguments.only:
        if not any(fnmatch(one, name) for one in known):
            parser.error(f"--only {name}: there are {', '.join(KINDS)}")
    return arguments


def command(arguments, task, kind, run):
    """The command that begins a run, or goes on with it."""
    recipe, data, warmup, of_task = TASKS[task]
    every = -(-arguments.updates // 8)
    settings = {
        "name": f"{task}-{kind}",
        "device": arguments.device,
        "data.dir": str(getattr(arguments, data).resolve()),
        "training.max_updates": arguments.updates,
        "training.schedule.warmup": min(warmup, arguments.updates // 4),
        "training.validate_every": every,
        "training.log_every": min(100, every),
        "training.keep_last": 1,
        **of_task,
        **KINDS[kind][list(TASKS).index(task)],
    }
    # JSON's strings, numbers and lists are TOML's too.
    words = [f"--set={key}={json.dumps(value)}" for key, value in settings.items()]
    words += ["--run", str(run), "--resume", "--threads=1"]
    return [str(arguments.taper), "train", str(ROOT / f"configs/{recipe}.toml"), *words]


def output(arguments, *words):
    """What a command of the program prints as JSON."""
    words = [str(arguments.taper), *words, "--json", "--threads", "1"]
    return json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)


def train(arguments, runs):
    """Trains all that are not done, so many at a time; whether all went well."""
    waiting = [name for name, run in runs.items() if arguments.jobs and not (run / "done").exists()]
    running, good = {}, True
    try:
        while waiting or running:
            while waiting and len(running) < max(1, arguments.jobs):
                name = waiting.pop(0)
                runs[name].parent.mkdir(parents=True, exist_ok=True)
                with open(f"{runs[name]}.log", "a") as log:
                    words = command(arguments, *name, runs[name])
                    running[name] = subprocess.Popen(words, stdout=log, stderr=log)
            time.sleep(0.2)
            for name in [name for name, process in running.items() if process.poll() is not None]:
                status = running.pop(name).returncode
                if status == 0:
                    cost = output(arguments, "inspect", str(runs[name]))["cost"]
                    (runs[name] / "done").write_text(f"{cost['parameters']}\n")
                good = good and status == 0
                said = "done" if status == 0 else f"status {status}, see {runs[name]}.log"
                print(f"{'/'.join(name)}: {said}", file=sys.stderr, flush=True)
    finally:
        # They save where they are.
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait()
    return good


def stop(number, _):
    """Ends the program, once: the trainings are told to, and waited for."""
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    sys.exit(128 + number)


def trained(run, with_tests):
    """Cells of a run: parameters and validation loss, and BLEU."""
    if not run or not (run / "done").exists():
        return ["–"] * (4 if with_tests else 2)
    events = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    best = [one for one in events if one["event"] == "validation" and one["improved"]][-1]
    cells = [f"{int((run / 'done').read_text()):,}", f"{best['scores']['nll']:.4f}"]
    if with_tests:
        scores = {one["split"]: one for one in json.loads((run / "scores.json").read_text())}
        cells += [f"{scores[test]['bleu']['score']:.2f}" for test in TESTS]
    return cells


def benched(arguments, kind):
    """Cells of the time and the memory of attention by itself."""
    if kind not in BENCHED:
        return ["–", "–"]
    words = ["--kinds", BENCHED[kind], "--lengths", str(arguments.length), "--heads", "4"]
    words += ["--head-width", "32"] + ([] if kind == "linformer" else ["--causal"])
    found = output(arguments, "bench", "attention", *words)["measurements"][0]
    memory = "–" if found["memory"] is None else f"{found['memory'] / 2**20:.1f}"
    return [f"{1e3 * found['both']:.1f}", memory]


def main():
    arguments = parse()
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    runs = {
        (task, kind): arguments.folder.resolve() / f"{task}-{arguments.updates}" / kind
        for i, task in enumerate(TASKS)
        for kind, settings in KINDS.items()
        if settings[i] is not None
        and any(fnmatch(name, one) for name in (kind, f"{task}/{kind}") for one in arguments.only)
    }
    good = train(arguments, runs)
    heads = ["kind", "parameters", "loss", "BLEU 2016", "BLEU 2017", "text: parameters", "loss"]
    heads += [] if arguments.no_bench else [f"ms, {arguments.length:,} tokens", "MiB"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for kind in KINDS:
        of_kind = [runs.get((task, kind)) for task in TASKS]
        if any(of_kind):
            cells = [kind, *trained(of_kind[0], True), *trained(of_kind[1], False)]
            cells += [] if arguments.no_bench else benched(arguments, kind)
            print(f"| {' | '.join(cells)} |", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
