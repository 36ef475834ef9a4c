"""Runs that the tests share: small ones, trained once by the package itself."""

import random
import subprocess
import sys
import sysconfig
from contextlib import contextmanager
from pathlib import Path

import pytest

import taper

FROZEN = Path(__file__).resolve().parents[2] / "cli/tests/frozen/format-1"
PROGRAM = Path(sysconfig.get_path("scripts")) / "taper"

SMALL = {
    "d_model": 32,
    "d_ff": 64,
    "heads": 2,
    "encoder_layers": 1,
    "decoder_layers": 1,
}


def program(*arguments, text=""):
    """What the program beside the package prints."""
    done = subprocess.run(
        [PROGRAM, *map(str, arguments)], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def words(seed, count):
    draws = random.Random(seed)
    known = ["red", "green", "blue", "dog", "cat", "runs", "sleeps", "here", "there", "now"]
    return " ".join(draws.choice(known) for _ in range(count))


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A corpus whose translations are the sources with their words reversed, and its lines."""
    folder = tmp_path_factory.mktemp("data")
    for stem, count, offset in [("train", 200, 0), ("val", 10, 1000), ("test", 10, 2000)]:
        lines = [words(offset + number, 3 + number % 5) for number in range(count)]
        reversed_lines = [" ".join(reversed(line.split())) for line in lines]
        (folder / f"{stem}.aa").write_text("\n".join(lines) + "\n")
        (folder / f"{stem}.bb").write_text("\n".join(reversed_lines) + "\n")
    return folder


@pytest.fixture(scope="session")
def recipe(data):
    """A recipe for that corpus, as a dictionary."""
    return {
        "device": "cpu",
        "dtype": "f32",
        "data": {
            "dir": data,
            "source_language": "aa",
            "target_language": "bb",
            "train": "train",
            "validation": "val",
            "test": ["test"],
            "tokenizer": {"kind": "bpe", "joint": True, "vocabulary_size": 300},
            "batching": {"max_tokens": 512},
        },
        "model": SMALL,
        "training": {
            "max_updates": 30,
            "log_every": 5,
            "validate_every": 10,
            "schedule": {"kind": "cosine", "learning_rate": 0.02, "warmup": 5},
        },
        "decoding": {"beam_size": 2, "max_length": 20},
        "evaluation": {"validation_sentences": 4},
    }


@pytest.fixture(scope="session")
def trained(recipe, tmp_path_factory):
    """A translation run and the events of its training."""
    events = []
    outcome = taper.train(recipe, tmp_path_factory.mktemp("runs") / "run", callbacks=[events.append])
    return outcome, events


@pytest.fixture(scope="session")
def run(trained):
    return trained[0].load()


@pytest.fixture(scope="session")
def several(recipe, data, tmp_path_factory):
    """A run of several directions: into ``bb`` words are reversed, into ``cc`` in capitals."""
    for stem in ("train", "val", "test"):
        (data / f"{stem}.cc").write_text((data / f"{stem}.aa").read_text().upper())
    directions = [("aa", "bb"), ("aa", "cc"), ("bb", "aa")]

    def split(stem):
        return [{"stem": stem, "from": from_, "to": to} for from_, to in directions]

    languages = {"train": split("train"), "validation": split("val"), "test": split("test")}
    own = {key: value for key, value in recipe["data"].items() if not key.endswith("_language")}
    recipe = {**recipe, "data": {**own, **languages}}
    return taper.train(recipe, tmp_path_factory.mktemp("runs") / "several").load()


@pytest.fixture(scope="session")
def language_model(data, tmp_path_factory):
    """A language model of the sources."""
    recipe = {
        "task": "language-model",
        "device": "cpu",
        "dtype": "f32",
        "data": {
            "dir": data,
            "train": ["train.aa"],
            "validation": ["val.aa"],
            "test": ["test.aa"],
            "tokenizer": {"kind": "bpe", "vocabulary_size": 300},
            "text": {"block_length": 16, "documents": "lines"},
            "batching": {"max_tokens": 512},
        },
        "model": SMALL,
        "training": {
            "max_updates": 30,
            "log_every": 10,
            "validate_every": 30,
            "schedule": {"kind": "cosine", "learning_rate": 0.02, "warmup": 5},
        },
    }
    return taper.train(recipe, tmp_path_factory.mktemp("runs") / "text").load()


@pytest.fixture(scope="session")
def classifier(data, tmp_path_factory):
    """A classifier that tells whether a text names a dog."""
    lines = [words(number, 4) for number in range(200)]
    labelled = [f"{'dog' if 'dog' in line else 'none'}\t{line}" for line in lines]
    (data / "labels.tsv").write_text("\n".join(labelled) + "\n")
    recipe = {
        "task": "classification",
        "device": "cpu",
        "dtype": "f32",
        "data": {
            "dir": data,
            "train": [{"file": data / "labels.tsv"}],
            "tokenizer": {"kind": "bpe", "vocabulary_size": 300},
            "labelled": {"labels": ["none", "dog"], "max_tokens": 16},
            "batching": {"max_tokens": 512},
        },
        "model": SMALL,
        "training": {"max_updates": 20, "log_every": 10, "schedule": {"warmup": 5}},
    }
    return taper.train(recipe, tmp_path_factory.mktemp("runs") / "labels").load()


@contextmanager
def in_process(code, *arguments):
    """A process of Python that runs `code`, and is killed at the end if it still runs."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
