"""Runs to serve, and `taper serve` with them, which needs the cargo feature `full`."""

import json
import shutil
import struct
import subprocess
import threading
import urllib.request
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
RECIPES = ROOT / "crates/serve/tests/serve"
TAPER = ROOT / "target/release/taper"


# What a language model learns to answer, and how conversations are written for it.
COLOURS = {"sky": "blue", "grass": "green", "snow": "white", "coal": "black"}
TEMPLATE = ("{% for one in messages %}{{ one.role[0] }}:{{ one.content }}|{% endfor %}a:")


def conversations():
    """Lines, each a conversation, most of which end after their first or second answer."""
    things = list(COLOURS)
    for number in range(400):
        asked = [things[at % 4] for at in (number, number + 1 + number // 4 % 3, number // 2)]
        rounds = [1, 1, 2, 1, 1, 2, 1, 1, 2, 3][number % 10]
        yield "|".join(f"u:{thing}|a:{COLOURS[thing]}" for thing in asked[:rounds])


# Runs of each task that is served, beside translation.
SERVED = ("text", "chat", "reviews", "tags", "questions", "captions", "matches", "shapes")


def make_runs(taper, folder, names=SERVED):
    """Runs that are trained for a moment; one that is not served is called masked."""
    data = folder / "data"
    data.mkdir()
    (data / "text.txt").write_text("the quick brown fox, 7 lazy dogs; and a seä.\n" * 60)
    (data / "chats.txt").write_text("\n".join(conversations()) + "\n")
    reviews = [f"yes\tred birds sing {i}" if i % 2 else f"no\told stones fall {i}"
               for i in range(80)]
    (data / "reviews.tsv").write_text("\n".join(reviews) + "\n")
    def image(number):
        row = 1 + number // 2 % 6
        return bytes(200 if row == (at // 8 if number % 2 == 0 else at % 8) else 20
                     for at in range(64))
    images = b"".join(map(image, range(96)))
    (data / "shapes-images-idx3-ubyte").write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, 96, 8, 8)
                                                    + images)
    (data / "shapes-labels-idx1-ubyte").write_bytes(struct.pack(">4BI", 0, 0, 8, 1, 96)
                                                    + bytes(number % 2 for number in range(96)))
    (data / "names.conll").write_text("mr O\nstone B-PER\nsings O\nin O\nred B-LOC\ntown I-LOC\n\n"
                                      * 24)
    (data / "checked.conll").write_text((data / "names.conll").read_text())
    paragraphs = [{"context": f"amber has {number}. coal has {99 - number}.", "qas": [
        {"id": f"{thing} {number}", "question": f"{thing}?",
         "answers": [{"text": str(told), "answer_start": start}]}
        for thing, told, start in [("amber", number, 10), ("coal", 99 - number, 23)]]}
        for number in range(10, 90)]
    for name in ("questions", "checked"):
        (data / f"{name}.json").write_text(json.dumps(
            {"version": "1.1", "data": [{"title": "", "paragraphs": paragraphs}]}))
    return [make_run(taper, folder, name) for name in names]


def write_picture(path):
    """Writes a PNG of 8 by 8 grey pixels: a bright row."""
    rows = b"".join(b"\0" + bytes([200 if row == 2 else 20] * 8) for row in range(8))
    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(
            ">I", zlib.crc32(name + content))
    head = struct.pack(">2I5B", 8, 8, 8, 0, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head)
                     + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    return path


def recipe_of(name):
    """Recipe of a run, without what all have in common."""
    like = {"chat": "text", "masked": "text"}.get(name, name)
    own = (RECIPES / f"{like}.toml").read_text()
    if name == "chat":
        own = own.replace('"text"', '"chats"').replace(
            "block_length = 24", 'block_length = 96\ndocuments = "lines"\nbarrier = true')
    if name == "masked":
        own = own.replace('"language-model"', '"masked-language-model"').replace(
            "decoder_layers", "encoder_layers")
    return (RECIPES / "common.toml").read_text().replace("# OWN", own)


def make_run(taper, folder, name):
    """Trains a run for a moment."""
    (folder / f"{name}.toml").write_text(recipe_of(name).replace("DIR", str(folder / "data")))
    run = folder / name
    subprocess.run([taper, "train", folder / f"{name}.toml", "--run", run], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if name == "chat":
        (run / "chat_template.jinja").write_text(TEMPLATE)
    return run


class Serving:
    """`taper serve`, until it is told to end."""

    def __init__(self, taper, runs, *options):
        command = [taper, "serve", *runs, "--address", "127.0.0.1:0", "--json", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            event = json.loads(line)
            if event["event"] == "listening":
                break
        else:
            raise SystemExit(f"taper serve has ended with {self.process.wait()}")
        self.address = event["address"]
        self.url = f"http://{self.address}"
        # Nobody may stop reading, or the server would wait.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def memory(self):
        """Resident bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    def metrics(self):
        with urllib.request.urlopen(f"{self.url}/metrics") as answer:
            return answer.read().decode()

    def end(self):
        self.process.terminate()
        return self.process.wait(timeout=60)


def copy_of(run, folder, name):
    """A run under another name."""
    shutil.copytree(run, folder / name, ignore=shutil.ignore_patterns("cache", "run.lock"))
    return folder / name
