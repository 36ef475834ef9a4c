#!/usr/bin/env python3
"""Has the library PEFT read the adapters that `taper export --adapters` writes, and Taper what it saves.

    scripts/check/adapters.py [TAPER] [--python PYTHON] [--keep FOLDER]

A Llama, a GPT-2, a BERT classifier and a MarianMT are trained and exported, and adapters of them; with
PEFT's adapters on the exported model, Transformers has to give the scores that Taper gives. Adapters
that PEFT saves itself, of the same models, are imported, and the scores compared again.

TAPER is the program, by default target/release/taper. PYTHON has torch, Transformers and PEFT
already; without it they are installed from PyPI, into a virtual environment made for the check.

Needs Python 3.11.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TAPER = ROOT / "target/release/taper"
VERSIONS = ["transformers==5.24.0", "peft==0.21.2", "torch", "sentencepiece"]
CLOSE = 1e-4

RECIPE = """
name = "check"
task = "{task}"
dtype = "f32"
[data]
dir = "{data}"
{own}
[data.batching]
max_tokens = 256
[model]
d_model = 32
d_ff = 64
heads = 2
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

TEXT = """train = "text"
validation = ""
test = []
[data.text]
block_length = 32
documents = "lines"
hold_out = 0.1
[data.tokenizer]
vocabulary_size = 400"""
LABELLED = """train = "texts"
validation = "held"
test = []
[data.labelled]
labels = ["odd", "even"]
max_tokens = 64
[data.tokenizer]
vocabulary_size = 400"""
PAIRS = """source_language = "en"
target_language = "zh"
train = "train"
validation = "val"
test = []
[data.tokenizer]
vocabulary_size = 900"""

DECODER = "decoder_layers = 2\nmax_positions = 96\nscale_embeddings = false\n"
MODELS = {
    "llama": ("language-model", TEXT, DECODER + """norm_kind = "rms"
activation = "swish"
feed_forward = "gated"
positions = "rotary"
biases = false
key_value_heads = 1
tied = "none"
""", ["*qkv", "*.down"]),
    "neox": ("language-model", TEXT, DECODER + """activation = "gelu"
positions = "rotary"
parallel_feed_forward = "own-norm"
tied = "none"
[model.rotary]
width = 4
""", ["*qkv", "*.up"]),
    "gpt2": ("language-model", TEXT, DECODER + 'activation = "gelu"\npositions = "learned"\n', ["*"]),
    "bert": ("classification", LABELLED, """encoder_layers = 2
max_positions = 96
scale_embeddings = false
norm = "post"
activation = "gelu"
positions = "learned"
""", ["*.qkv", "*.up", "*.down", "*.out"]),
    "marian": ("translation", PAIRS, """encoder_layers = 1
decoder_layers = 1
norm = "post"
activation = "swish"
positions = "sinusoidal-halves"
tied = "all"
""", ["*attention*"]),
}
KINDS = {"plain": [], "scaled": ["model.lora.rank_stabilized=true"], "dora": ["model.lora.dora=true"]}


def write_data(folder):
    sentences = (ROOT / "data/everyday-en-zh/train.en").read_text().splitlines()[:300]
    (folder / "text.txt").write_text("".join(line + "\n" for line in sentences))
    texts = [f"{['odd', 'even'][i % 2]}\t{line}\n" for i, line in enumerate(sentences)]
    for name in ["texts", "held"]:
        (folder / f"{name}.tsv").write_text("".join(texts))
    for side in ["en", "zh"]:
        for split in ["train", "val"]:
            text = (ROOT / f"data/everyday-en-zh/{split}.{side}").read_text().splitlines()[:300]
            (folder / f"{split}.{side}").write_text("".join(line + "\n" for line in text))
    return sentences[:8], (folder / "val.zh").read_text().splitlines()[:8]


def scores(taper, name, run, lines, targets):
    """What Taper says of lines: log-probabilities of texts, or of labels."""
    task = MODELS[name][0]
    if task == "classification":
        found = taper("predict", run, "--json", text=lines)
        return [one["probabilities"] for one in found]
    (taper.folder / "lines").write_text("".join(line + "\n" for line in lines))
    if task == "language-model":
        found = taper("score", run, "--text", "lines", "--json")
    else:
        sources = (taper.folder / "data/val.en").read_text().splitlines()[:8]
        (taper.folder / "sources").write_text("".join(line + "\n" for line in sources))
        (taper.folder / "targets").write_text("".join(line + "\n" for line in targets))
        found = taper("score", run, "--source", "sources", "--target", "targets", "--json")
    return [[one["log_probability"]] for one in found]


class Taper:
    """The program, in a folder of its own."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder

    def __call__(self, *arguments, text=()):
        command = [self.program, *map(str, arguments)]
        given = "".join(line + "\n" for line in text)
        done = subprocess.run(command, cwd=self.folder, input=given, text=True, capture_output=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
        if "--json" not in arguments:
            return []
        return [json.loads(line) for line in done.stdout.splitlines()]


def compare(folder):
    """Within PEFT: scores with each folder of adapters, and adapters of its own beside them."""
    import torch
    import transformers
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoTokenizer

    kinds = {
        "language-model": ("AutoModelForCausalLM", "CAUSAL_LM"),
        "classification": ("AutoModelForSequenceClassification", "SEQ_CLS"),
        "translation": ("AutoModelForSeq2SeqLM", "SEQ_2_SEQ_LM"),
    }

    def told(name, model, tokenizer, lines, pairs):
        task = MODELS[name][0]
        if task == "classification":
            rows = [model(**tokenizer(line, return_tensors="pt")).logits[0].softmax(-1) for line in lines]
            return [row.tolist() for row in rows]
        found = []
        for line, (source, target) in zip(lines, pairs):
            if task == "language-model":
                start = model.config.bos_token_id
                ids = [start, *tokenizer(line, add_special_tokens=False).input_ids]
                logits, ids = model(torch.tensor([ids])).logits[0], ids[1:]
            else:
                ids = tokenizer(text_target=[target], return_tensors="pt").input_ids
                row = tokenizer([source], return_tensors="pt")
                logits, ids = model(**row, labels=ids).logits[0], ids[0].tolist()
            logits = logits.double().log_softmax(-1)
            found.append([sum(logits[at, token].item() for at, token in enumerate(ids))])
        return found

    cases = json.loads((folder / "cases.json").read_text())
    failed = checks = 0
    for case in cases:
        name = case["model"]
        kind, task = kinds[MODELS[name][0]]
        base = folder / "exported" / name
        opened = lambda: getattr(transformers, kind).from_pretrained(base).float().eval()
        tokenizer = AutoTokenizer.from_pretrained(base)
        for adapters, ours in case["scores"].items():
            model = PeftModel.from_pretrained(opened(), folder / adapters).eval()
            theirs = told(name, model, tokenizer, case["lines"], case["pairs"])
            for line, one, other in zip(case["lines"], ours, theirs):
                checks += 1
                pairs = zip(one, other, strict=True)
                if not all(abs(a - b) <= CLOSE * max(1, abs(a)) for a, b in pairs):
                    failed += 1
                    print(f"{adapters}: {line!r}: Taper {one}, PEFT {other}")
        for dora in [False, True]:
            targets = "all-linear" if name != "gpt2" else ["c_attn", "c_proj", "c_fc"]
            config = LoraConfig(r=3, lora_alpha=5, target_modules=targets, use_dora=dora, task_type=task,
                                exclude_modules=["classifier", "pooler.dense"] if name == "bert" else None)
            torch.manual_seed(3)
            model = get_peft_model(opened(), config)
            with torch.no_grad():
                for key, parameter in model.named_parameters():
                    if "lora_" in key:
                        parameter.add_(torch.randn_like(parameter) * 0.05)
            model.save_pretrained(folder / "saved" / f"{name}-{dora}")
    print(f"{checks} comparisons, {failed} failed")
    sys.exit(failed > 0)


def install(folder):
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv/bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *VERSIONS], check=True)
    return python


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("taper", nargs="?", default=TAPER, type=Path)
    parser.add_argument("--python", type=Path)
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = (arguments.keep or Path(made)).resolve()
        (folder / "data").mkdir(parents=True)
        python = arguments.python or install(Path(made))
        taper = Taper(arguments.taper.resolve(), folder)
        lines, targets = write_data(folder / "data")
        pairs = list(zip((folder / "data/val.en").read_text().splitlines()[:8], targets))
        cases = []
        for name, (task, own, shape, layers) in MODELS.items():
            recipe = RECIPE.format(task=task, data="data", own=own, shape=shape)
            (folder / f"{name}.toml").write_text(recipe)
            taper("train", f"{name}.toml", "--run", name)
            taper("export", name, f"exported/{name}")
            case = {"model": name, "lines": lines, "pairs": pairs, "scores": {}}
            for kind, settings in KINDS.items():
                run = f"{name}-{kind}"
                settings = ["model.lora.rank=3", f"model.lora.layers={json.dumps(layers)}", *settings]
                settings = [word for setting in settings for word in ("--set", setting)]
                taper("train", f"{name}.toml", "--from", name, "--run", run, *settings)
                taper("export", run, f"adapters/{run}", "--adapters")
                case["scores"][f"adapters/{run}"] = scores(taper, name, run, lines, targets)
            cases.append(case)
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        compared = [python, __file__, "--compare", folder]
        failed = False
        for again in [False, True]:
            (folder / "cases.json").write_text(json.dumps(cases))
            failed |= subprocess.run(compared, env=environment).returncode != 0
            for case in [] if again else cases:
                # Then what PEFT has saved.
                name, case["scores"] = case["model"], {}
                for dora in [False, True]:
                    saved, run = f"saved/{name}-{dora}", f"of-{name}-{dora}"
                    taper("import", saved, run, "--onto", name)
                    taper("export", run, f"again/{run}", "--adapters")
                    found = scores(taper, name, run, lines, targets)
                    case["scores"] |= {saved: found, f"again/{run}": found}
    sys.exit(failed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--compare"]:
        compare(Path(sys.argv[2]))
    main()
