"""Measures `taper train` up to its first update, and `taper resume`, on corpora of different sizes; see scripts/bench/scale.sh."""

import argparse
import gzip
import os
import random
import subprocess
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

RECIPE = f"""
device = "cpu"
{DATA}[data.batching]
max_tokens = 2048
[model]
d_model = 256
d_ff = 1024
heads = 4
encoder_layers = 3
decoder_layers = 3
[training]
max_updates = 1
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
    """The same lines are put together on both sides."""
    out.mkdir()
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


def measure(command, folder):
    """Seconds by the clock and of the processor, peak memory in MiB, bytes read in MB."""
    began, peak, read = time.time(), 0, 0
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while True:
        peak = max(peak, field(f"/proc/{process.pid}/status", "VmHWM"))
        read = max(read, field(f"/proc/{process.pid}/io", "rchar"))
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        if ended:
            break
        time.sleep(0.01)
    if status:
        raise SystemExit(f"{' '.join(map(str, command))}:\n{process.stdout.read()}")
    return time.time() - began, usage.ru_utime + usage.ru_stime, peak / 1024, read / 1e6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--taper", type=Path, required=True)
    parser.add_argument("--tokenise", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("pairs", type=int, nargs="+")
    arguments = parser.parse_args()
    taper, tokenise = arguments.taper.resolve(), arguments.tokenise.resolve()
    base = None
    print("| pairs | text, MB | to the first update | tokenizer alone | ratio | peak memory above the model's, MiB | resume | reads, MB |")
    print("|---|---|---|---|---|---|---|---|")
    for pairs in [FEW, *arguments.pairs]:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_corpus(arguments.text, folder / "text", pairs)
            size = sum(path.stat().st_size for path in (folder / "text").iterdir()) / 1e6
            (folder / "recipe.toml").write_text(RECIPE)
            # A file from a moment ago is read again when the run goes on, since it might have changed once more in the same moment.
            time.sleep(5)
            train = measure([taper, "train", "recipe.toml", "--run", "run"], folder)
            base = base or train[2]
            if pairs == FEW:
                continue
            alone = measure([tokenise, "text", "train", "en", "de"], folder)
            resume = measure([taper, "resume", "run", "--set", "training.max_updates=2"], folder)
            show = lambda took: f"{took[0]:.1f} s ({took[1]:.1f} s of processor)"
            ratio = f"{train[0] / alone[0]:.2f} ({train[1] / alone[1]:.2f})"
            print(f"| {pairs} | {size:.0f} | {show(train)} | {show(alone)} | {ratio} | {train[2] - base:.0f} | {show(resume)} | {resume[3]:.0f} |", flush=True)


if __name__ == "__main__":
    main()
