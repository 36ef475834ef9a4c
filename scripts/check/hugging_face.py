#!/usr/bin/env python3
"""Has the library Transformers read what `taper export` writes, and Taper what it saves.

    scripts/check/hugging_face.py [TAPER] [--python PYTHON] [--keep FOLDER] [--updates N]

Small runs of every kind of tokenizer and every model are trained and exported; folders that
Transformers saves itself, with all sorts of tokenizers, are imported and exported again. Then
`AutoTokenizer` and the models of two major versions have to give the ids, scores, labels, answers,
texts and translations that Taper gives.

TAPER is the program, by default target/release/taper. PYTHON has torch, sentencepiece, protobuf and
Transformers 5 already; without it these are installed from PyPI, into virtual environments that
are made for the check, as Transformers 4 always is.

Needs Python 3.11.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TAPER = ROOT / "target/release/taper"
PARTS = ROOT / "scripts/check/hugging_face"
NEWER, OLDER = "transformers==5.24.0", "transformers==4.57.6"

KINDS = ["bpe", "unigram", "char", "bytes"]

# What cutting and normalising could change; the first lines are of what vocabularies know.
LINES = [
    "I love you.", "Tom is a student", " two  spaces and one behind ", "café naïve Ünïcode",
    "日本語と中文。", "emoji 😀👍🏽!", "a </s> b <s> <unk> <pad> <|endoftext|>", "[CLS] x [SEP] [MASK]",
    "<cls> <sep> <mask> 3.14159, isn't it?",
]

RECIPE = """
name = "check"
task = "{task}"
dtype = "f32"
[data]
dir = "{data}"
train = "{train}"
validation = "{validation}"
test = []
{section}
[data.tokenizer]
kind = "{kind}"
vocabulary_size = 400
[data.batching]
max_tokens = 256
[model]
d_model = 32
d_ff = 64
heads = 2
{layers} = 1
max_positions = 96
scale_embeddings = false
{shape}
[training]
max_updates = 40
validate_every = 40
label_smoothing = 0.0
[training.schedule]
kind = "constant"
learning_rate = 1e-2
warmup = 0
"""

SHAPE = 'norm = "{norm}"\nactivation = "gelu"\npositions = "learned"\nbiases = true'
LLAMA = """norm = "pre"
norm_kind = "rms"
activation = "swish"
feed_forward = "gated"
positions = "rotary"
biases = false
key_value_heads = 1
tied = "none"
"""
NEOX = """norm = "pre"
activation = "gelu"
positions = "rotary"
parallel_feed_forward = "own-norm"
tied = "none"
[model.rotary]
width = 4
"""
SHAPES = {"llama": LLAMA, "neox": NEOX}

TEXT = '[data.text]\nblock_length = 32\ndocuments = "{documents}"\nhold_out = 0.1'
LABELLED = '[data.labelled]\nlabels = ["odd", "even"]\nmax_tokens = 64\npairs = {pairs}'
QUESTIONS = "[data.questions]\nmax_tokens = 64\nmax_question_tokens = 16\nmax_answer_tokens = 8"

TRANSLATION = """
name = "check"
dtype = "f32"
[data]
dir = "{data}"
source_language = "en"
target_language = "zh"
validation = "val"
test = []
[data.tokenizer]
kind = "{kind}"
vocabulary_size = 1000
[data.batching]
max_tokens = 1024
[model]
d_model = 96
d_ff = 256
heads = 4
encoder_layers = 2
decoder_layers = 2
norm = "post"
activation = "swish"
positions = "sinusoidal-halves"
tied = "all"
[training]
max_updates = {updates}
validate_every = {updates}
[training.schedule]
kind = "inverse_sqrt"
learning_rate = 2e-3
warmup = 100
[decoding]
beam_size = 4
length_penalty = 1.0
length_penalty_form = "power"
rules = "transformers"
max_length = 60
max_length_ratio = 0.0
max_length_offset = 60
"""

MODELS = {
    "lines": ("language-model", "text", TEXT.format(documents="lines")),
    "files": ("language-model", "text", TEXT.format(documents="files")),
    "llama": ("language-model", "text", TEXT.format(documents="lines")),
    "neox": ("language-model", "text", TEXT.format(documents="lines")),
    "masked": ("masked-language-model", "text", TEXT.format(documents="lines")),
    "classifier": ("classification", "texts", LABELLED.format(pairs="false")),
    "pairs": ("classification", "pairs", LABELLED.format(pairs="true")),
    "spans": ("question-answering", "questions", QUESTIONS),
}


class Taper:
    """The program, in a folder of its own."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder

    def __call__(self, *arguments, lines=None):
        text = None if lines is None else "".join(line + "\n" for line in lines)
        command = [self.program, *map(str, arguments)]
        done = subprocess.run(command, cwd=self.folder, input=text, text=True, capture_output=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
        return done.stdout

    def records(self, *arguments, lines=None):
        return [json.loads(line) for line in self(*arguments, lines=lines).splitlines()]

    def ids(self, run, lines):
        out = self("tokenizer", "encode", run, lines=lines)
        return [[int(word) for word in line.split()] for line in out.splitlines()]


def write_data(folder):
    """A text, labels of texts and pairs, and questions, made of the corpus that the project has."""
    sentences = (ROOT / "data/everyday-en-zh/train.en").read_text().splitlines()[:600]
    (folder / "text.txt").write_text("".join(line + "\n" for line in sentences))

    def write(name, text):
        stem, ending = name.split(".")
        for split in (stem, f"{stem}-held"):
            (folder / f"{split}.{ending}").write_text(text)

    label = ["odd", "even"]
    texts = [f"{label[i % 2]}\t{line}\n" for i, line in enumerate(sentences[:200])]
    write("texts.tsv", "".join(texts))
    pairs = zip(sentences[:200], sentences[200:400])
    pairs = [f"{label[i % 2]}\t{a}\t{b}\n" for i, (a, b) in enumerate(pairs)]
    write("pairs.tsv", "".join(pairs))
    paragraphs = []
    for number, context in enumerate(sentences[:100]):
        answer = context.split()[-1]
        answers = [{"text": answer, "answer_start": context.rindex(answer)}]
        asked = [{"id": str(number), "question": "What is last?", "answers": answers}]
        paragraphs.append({"context": context, "qas": asked})
    data = {"version": "1.1", "data": [{"title": "check", "paragraphs": paragraphs}]}
    write("questions.json", json.dumps(data))


def train(taper, data):
    """A run of each kind of tokenizer and each model, and its folder."""
    for kind in KINDS:
        for name, (task, split, section) in MODELS.items():
            writes = task == "language-model"
            recipe = RECIPE.format(
                task=task, kind=kind, section=section, data=data, train=split,
                validation="" if split == "text" else f"{split}-held",
                layers="decoder_layers" if writes else "encoder_layers",
                shape=SHAPES.get(name) or SHAPE.format(norm="pre" if writes else "post"))
            run = f"{kind}-{name}"
            (taper.folder / f"{run}.toml").write_text(recipe)
            taper("train", f"{run}.toml", "--run", run, "--threads", "1")
            taper("export", run, f"exported/{run}")
            yield {"name": run, "run": run, "folders": [f"exported/{run}"], "model": name}


def take_over(taper):
    """A run of each folder that Transformers saved, and what is made of it again."""
    for case in json.loads((taper.folder / "saved/cases.json").read_text()):
        name = case["name"]
        run, out = f"of-{name}", f"exported/of-{name}"
        taper("import", f"saved/{name}", run, "--threads", "1")
        taper("export", run, out)
        # A folder that Transformers itself cannot read is compared by what is made of it.
        folders = [out] if case.get("unreadable") else [f"saved/{name}", out]
        yield {"run": run, "folders": folders, "is_theirs": True, **case}


def translate(taper, updates):
    """What Taper says of translation models: those that Transformers saved, and those trained here,
    whose exports it takes over again."""
    for kind in ["unigram", "bpe"]:
        run = f"translation-{kind}"
        data = ROOT / "data/everyday-en-zh"
        recipe = TRANSLATION.format(data=data, kind=kind, updates=updates)
        (taper.folder / f"{run}.toml").write_text(recipe)
        taper("train", f"{run}.toml", "--run", run)
        taper("export", run, f"exported/{run}")
        taper("import", f"exported/{run}", f"of-{run}")
        yield asked_of_translation(taper, run, [f"exported/{run}"])
        yield asked_of_translation(taper, f"of-{run}", [f"exported/{run}"])
    # Training goes on from what was imported.
    adapted = ["--set", "training.max_updates=20", "--set", "training.validate_every=20"]
    taper("train", f"{run}.toml", *adapted, "--from", f"of-{run}", "--run", "adapted")
    taper("export", "adapted", "exported/adapted")
    yield asked_of_translation(taper, "adapted", ["exported/adapted"])
    for path in sorted((taper.folder / "saved-translation").iterdir()):
        if path.is_dir():
            run, out = f"of-{path.name}", f"exported/of-{path.name}"
            known = path / "case.json"
            known = json.loads(known.read_text()) if known.exists() else {}
            options = zip(["--source", "--target"], known.get("languages", []))
            taper("import", path, run, *[word for option in options for word in option])
            taper("export", run, out)
            folders = [f"saved-translation/{path.name}", out]
            yield {**asked_of_translation(taper, run, folders), **known}


def asked_of_translation(taper, run, folders):
    """Ids, texts and scores that Taper gives."""
    lines = json.loads((taper.folder / "saved-translation/lines.json").read_text())
    recipe = tomllib.loads((taper.folder / run / "config.toml").read_text())
    prefix = recipe["data"].get("source_prefix", "")
    case = {"run": run, "folders": folders, "texts": {}, "prefix": prefix}
    case["ids"] = list(zip(lines, taper.ids(run, lines)))
    asked = [line for line in lines if line.strip()]
    for beams in ["1", "4"]:
        found = taper("translate", run, "--beam", beams, lines=asked).split("\n")
        case["texts"][beams] = list(zip(asked, found))
    sources = asked[:50]
    targets = (ROOT / "data/everyday-en-zh/test.zh").read_text().splitlines()[:len(sources)]
    for name, side in [("sources", sources), ("targets", targets)]:
        (taper.folder / name).write_text("".join(line + "\n" for line in side))
    found = taper.records("score", run, "--source", "sources", "--target", "targets", "--json")
    scores = [one["log_probability"] for one in found]
    case["scores"] = list(zip(sources, targets, scores))
    return case


def ask(taper, case):
    """What Taper says of the lines."""
    run, model = case["run"], case["model"]
    if "ids" not in case.get("without", []):
        case["ids"] = dict(zip(LINES, taper.ids(run, LINES)))
    if model in ("lines", "files", *SHAPES):
        path = taper.folder / "lines"
        path.write_text("".join(line + "\n" for line in LINES))
        scores = taper.records("score", run, "--text", path, "--json")
        case["scores"] = [[line, score["log_probability"]] for line, score in zip(LINES, scores)]
        path.write_text("I love\nTom\n")
        written = taper.records(
            "generate", run, "--prompts", path, "--temperature", "0", "-n", "12", "--json")
        case["texts"] = [[one["prompt"], one["text"]] for one in written]
    if model in ("classifier", "pairs"):
        asked = [[line] if model == "classifier" else [line, LINES[at - 1]]
                 for at, line in enumerate(LINES)]
        found = taper.records(
            "predict", run, "--json", lines=["\t".join(texts) for texts in asked])
        case["labels"] = [[texts, one["probabilities"]] for texts, one in zip(asked, found)]
    if model == "spans":
        asked = [{"question": "What is last?", "context": line} for line in LINES]
        found = taper.records("predict", run, "--json", lines=map(json.dumps, asked))
        case["answers"] = [[one["question"], one["context"], got["start"], got["end"]]
                           for one, got in zip(asked, found)]
    return case


def install(folder):
    """An interpreter with torch and the newer Transformers."""
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv/bin/python"
    packages = ["torch", "sentencepiece", "protobuf", NEWER]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


def older(python, folder):
    """What an interpreter needs to find the older Transformers first."""
    target = folder / "older"
    command = [python, "-m", "pip", "install", "--quiet", "--target", target, OLDER]
    subprocess.run(command, check=True)
    return target


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("taper", nargs="?", default=TAPER, type=Path)
    parser.add_argument("--python", type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--lines", type=int, default=200, help="of the corpus to translate")
    parser.add_argument("--updates", type=int, default=600, help="of the translation models")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = (arguments.keep or Path(made)).resolve()
        (folder / "data").mkdir(parents=True)
        python = arguments.python or install(Path(made))
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
                       "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("PYTHONPATH", None)
        run = [python, PARTS / "save.py", folder / "saved"]
        subprocess.run(run, env=environment, check=True)
        run = [python, PARTS / "translation.py", "save", folder / "saved-translation",
               str(arguments.lines)]
        subprocess.run(run, env=environment, check=True)
        taper = Taper(arguments.taper.resolve(), folder)
        write_data(folder / "data")
        cases = [ask(taper, case) for case in [*train(taper, "data"), *take_over(taper)]]
        (folder / "cases.json").write_text(json.dumps(cases))
        (folder / "translation.json").write_text(json.dumps([*translate(taper, arguments.updates)]))
        versions = [{}, {"PYTHONPATH": str(older(python, Path(made)))}]
        parts = [["translation.py", "compare"], ["compare.py"]]
        # Each on one thread.
        with ThreadPoolExecutor(os.cpu_count()) as workers:
            failed = [workers.submit(
                subprocess.run, [python, PARTS / part[0], *part[1:], folder],
                env={**environment, **version}) for part in parts for version in versions]
        failed = [one for one in failed if one.result().returncode != 0]
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
