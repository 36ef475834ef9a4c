"""Measures `taper train` up to its first update, by one process and by several, the batches of an
epoch, and `taper resume`, on corpora of different sizes; see scripts/bench/scale.sh."""

import argparse
import contextlib
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# What a recipe says of a corpus that `write_corpus` wrote.
DATA = """
[data]
dir = "text"
source_language = "en"
target_language = "de"
validation = ""
test = []
"""

# Tokens of a batch.
MAX_TOKENS = 2048

RECIPE = f"""
device = "cpu"
{DATA}[data.batching]
max_tokens = {MAX_TOKENS}
[model]
d_model = 256
d_ff = 1024
heads = 4
encoder_layers = 3
decoder_layers = 3
[training]
max_updates = 1
accumulation = 4
log_every = 1
validate_every = 0
average_last = 0
[evaluation]
test_after_training = false
"""

# Pairs of the corpus whose run is taken for what program and model need without a corpus.
FEW = 2000


def halves(folder, language):
    """The beginnings and the ends of the lines of one side."""
    plain = folder / f"train.{language}"
    reader = open if plain.exists() else gzip.open
    path = plain if plain.exists() else folder / f"train.{language}.gz"
    with reader(path, "rt", encoding="utf-8", newline="\n") as file:
        lines = [line.split() for line in file]
    return [" ".join(words[: len(words) // 2]) + " " for words in lines], [" ".join(words[len(words) // 2 :]) + "\n" for words in lines]


def write_corpus(text, out, pairs):
    """The same lines are put together on both sides, the same for every run of this script."""
    out.mkdir(parents=True)
    for language in ("en", "de"):
        begins, ends = halves(text, language)
        draw, count = random.Random(1).random, len(begins)
        with open(out / f"train.{language}", "w", encoding="utf-8", newline="\n") as file:
            for start in range(0, pairs, 100_000):
                size = min(100_000, pairs - start)
                file.write("".join(begins[int(draw() * count)] + ends[int(draw() * count)] for _ in range(size)))


def field(path, name):
    """A number of a file under /proc, which may be gone."""
    try:
        for line in Path(path).read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def children(pid):
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


class Phases:
    """When a run comes to have its files, and how many bytes it takes at most."""

    def __init__(self, run):
        self.run, self.bytes, self.at = run, 0, {}

    def look(self, seconds):
        with contextlib.suppress(OSError):
            for name in ["text/train.json", "tokenizer.json", "cache/train.bin", "metrics.jsonl"]:
                if name not in self.at and (self.run / name).exists():
                    self.at[name] = seconds
            entries = [entry for folder in ["cache", "cache/train.shards"] if (self.run / folder).is_dir()
                       for entry in os.scandir(self.run / folder) if entry.is_file()]
            self.bytes = max(self.bytes, sum(entry.stat().st_size for entry in entries))
            shards = sum(entry.name.endswith(".bin") for entry in entries if "shards" in entry.path)
            if shards > self.at.get("shards", (0, 0))[0]:
                self.at["shards"] = (shards, seconds)

    def durations(self):
        """Seconds of the hash, of the vocabulary, of tokenising, of putting shards together, and of the rest
        up to the first update, each to the grain of the clock that it is looked at by."""
        ends = [self.at.get("text/train.json"), self.at.get("tokenizer.json"), self.at.get("shards", (0, None))[1],
                self.at.get("cache/train.bin"), self.at.get("metrics.jsonl")]
        names = ["hash", "vocabulary", "tokenising", "merging", "model and opening"]
        took, before = {}, 0
        for name, end in zip(names, ends):
            if end is not None:
                took[name], before = round(end - before, 1), end
        return took


def measure(command, folder, phases=None):
    """Seconds by the clock and of the processor, the peak memory of a process in MiB, bytes read in MB by
    the first, and what was said."""
    began, peak, read, looked = time.time(), 0, 0, 0
    process = subprocess.Popen([str(word) for word in command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while True:
        for pid in [process.pid, *children(process.pid)]:
            peak = max(peak, field(f"/proc/{pid}/status", "VmHWM"))
        read = max(read, field(f"/proc/{process.pid}/io", "rchar"))
        if phases and time.time() - looked > 0.1:
            looked = time.time()
            phases.look(looked - began)
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        if ended:
            break
        time.sleep(0.01)
    said = process.stdout.read()
    if status:
        raise SystemExit(f"{' '.join(map(str, command))}:\n{said}")
    if phases:
        phases.look(time.time() - began)
    return {"seconds": time.time() - began, "processor": usage.ru_utime + usage.ru_stime, "peak": peak / 1024, "read": read / 1e6, "said": said}


def train(arguments, corpus, folder, way):
    """A run up to its first update: what it took, and its phases."""
    processes, threads = way
    (folder / "recipe.toml").write_text(RECIPE.replace('"text"', json.dumps(str(corpus))))
    phases = Phases(folder / "run")
    command = [arguments.taper, "train", "recipe.toml", "--run", "run", "--threads", threads]
    more = [] if processes == 1 else ["--processes", processes]
    return measure([*command, *more], folder, phases), phases


def row(pairs, way, text, run, phases, base, walked, resumed, alone):
    walk = json.loads(walked["said"].splitlines()[-1])
    steps = ", ".join(f"{name} {seconds:.0f}" for name, seconds in phases.durations().items())
    return [
        f"{pairs:.0e}".replace("e+0", "e"),
        f"{way[0]} x {way[1]}",
        f"{text:.0f}",
        f"{run['seconds']:.0f} s ({run['processor']:.0f} s of processor): {steps}",
        f"{run['peak'] - base:.0f}",
        f"{phases.bytes / 1e6:.0f}",
        f"opened {walk['opened']:.1f}, planned {walk['planned']:.1f}, walked {walk['walked']:.1f} s",
        f"{walked['peak']:.0f}",
        f"{walk['target_tokens'] / walk['pairs']:.1f}",
        f"{resumed['seconds']:.1f} s" if resumed else "-",
        f"{alone['seconds']:.0f} s ({alone['processor']:.0f} s of processor)" if alone else "-",
    ]


HEAD = ["pairs", "processes x threads", "text, MB", "to the first update", "peak of a process above the model's, MiB",
        "disk, MB", "an epoch's batches", "peak of that, MiB", "target tokens a pair", "resume",
        "the tokenizer alone"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--taper", type=Path, required=True)
    parser.add_argument("--walk", type=Path, required=True)
    parser.add_argument("--tokenise", type=Path, help="measures the tokenizer alone, by this program")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--corpora", type=Path, help="keeps what is made of the text here, and takes what is there")
    parser.add_argument("--ways", default="1x2,2x2", help="processes and threads of all of them together, as 1x2,2x2")
    parser.add_argument("--resume", action="store_true", help="measures resuming too")
    parser.add_argument("pairs", type=lambda text: int(float(text)), nargs="+")
    arguments = parser.parse_args()
    arguments.taper, arguments.walk = arguments.taper.resolve(), arguments.walk.resolve()
    ways = [tuple(int(number) for number in way.split("x")) for way in arguments.ways.split(",")]
    print(" | ".join(HEAD), flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        corpora = arguments.corpora or Path(temporary)

        def corpus(pairs):
            out = corpora.resolve() / str(pairs)
            if not out.exists():
                write_corpus(arguments.text, out, pairs)
                # A file from a moment ago is read again whenever it is looked at, since it might change once more in the
                # same moment.
                time.sleep(5)
            return out

        few = corpus(FEW)
        for pairs in arguments.pairs:
            text = corpus(pairs)
            size = sum(path.stat().st_size for path in text.iterdir()) / 1e6
            for way in ways:
                with tempfile.TemporaryDirectory(dir=temporary) as name, tempfile.TemporaryDirectory(dir=temporary) as other:
                    base = train(arguments, few, Path(other), way)[0]["peak"]
                    folder = Path(name)
                    run, phases = train(arguments, text, folder, way)
                    walk = [arguments.walk, "run", text, "train", "en", "de", MAX_TOKENS]
                    walked = measure(walk, folder)
                    resume = [arguments.taper, "resume", "run", "--set", "training.max_updates=2"]
                    resumed = measure(resume, folder) if arguments.resume else None
                    tokenise = arguments.tokenise and [arguments.tokenise.resolve(), text, "train", "en", "de"]
                    alone = measure(tokenise, folder) if tokenise else None
                    print(" | ".join(row(pairs, way, size, run, phases, base, walked, resumed, alone)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
