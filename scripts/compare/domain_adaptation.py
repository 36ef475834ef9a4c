#!/usr/bin/env python3
"""A translation model of one domain, trained on with text of another: what it gains, what it forgets.

    python scripts/compare/domain_adaptation.py RUN CORPUS OUTPUT [--updates 400] [--set KEY=VALUE …]

RUN is the trained model, CORPUS a folder with {train,val,test} of both its languages. RUN's own
recipe is trained on from its weights in several ways, each into a run in OUTPUT, and what is there
already is not trained again. The table has the BLEU of each on the test sets of both domains.

`taper finetune` is among the ways, with text of home and without. Of the weights that it gives and
those of RUN, several means are tried (`taper average --with-parent`), and the one with the highest
BLEU on both validation sets together is a row of its own. With --exported it fine-tunes the folder
that `taper export RUN` writes, imported again. --only NAME leaves out the other ways, such as
--only finetune.
"""

import argparse
import gzip
import json
import subprocess
import tomllib
from pathlib import Path

# What --from takes, what is frozen, the peak of the learning rate, and whether both corpora are read.
WAYS = {
    "from nothing": {"take": False},
    "all weights": {},
    "all weights, a tenth of the rate": {"rate": 1e-4},
    "only the decoder's layers": {"freeze": ["encoder.*", "*embedding*"]},
    "all weights, both corpora": {"mixed": True},
    "finetune": {"finetune": True},
    "finetune with home": {"finetune": True, "home": True},
}
# Shares of the new weights that are tried.
SHARES = 0.25, 0.5, 0.75, 1.0


def lines(path):
    """The text of a file, which may end in .gz."""
    found = Path(f"{path}.gz")
    return gzip.open(found, "rt", encoding="utf-8") if found.exists() else open(path, encoding="utf-8")


def mixed(folders, languages, folder):
    """A corpus with the training text of several, and the rest of the last."""
    folder.mkdir(parents=True, exist_ok=True)
    for language in languages:
        for split, sources in {"train": folders, "val": folders[-1:], "test": folders[-1:]}.items():
            with open(folder / f"{split}.{language}", "w", encoding="utf-8") as out:
                for source in sources:
                    out.writelines(lines(source / f"{split}.{language}"))
    return folder


def bleu(taper, run, corpus, split="test", options=()):
    # Of corpora that are divided by `taper finetune`, the files that RUN was measured on.
    command = [taper, "evaluate", run, "--split", split, "--set", f"data.dir={corpus}", "--json"]
    command += ["--set", "data.format=text", "--set", f'data.test=["{split}"]', *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["results"][0]["bleu"]["score"]


def fine_tune(arguments, run, languages, corpora, has_home, updates):
    """Trains with `taper finetune`."""
    home, new = corpora
    model = arguments.run
    if arguments.exported:
        model = arguments.output / "exported"
        if not model.exists():
            subprocess.run([arguments.taper, "export", arguments.run, model], check=True)
        imported = arguments.output / "imported"
        if not imported.exists():
            subprocess.run([arguments.taper, "import", model, imported], check=True)
        model = imported

    def files(corpus):
        found = (Path(f"{corpus / 'train'}.{language}") for language in languages)
        return [file if file.exists() else Path(f"{file}.gz") for file in found]

    command = [arguments.taper, "finetune", model, "--pairs", *files(new), "--run", run]
    command += ["--output", run.with_suffix(".toml"), "--data", run.with_suffix(".data")]
    command += ["--home", *files(home)] if has_home else []
    for setting in updates + arguments.settings:
        command += ["--set", setting]
    subprocess.run(command, check=True)


def best_share(taper, run, corpora):
    """The share of the new weights that translates both validation sets best."""
    found = {}
    for share in SHARES:
        subprocess.run([taper, "average", run, "--with-parent", str(share)], check=True)
        scores = [bleu(taper, run, corpus, "val", AVERAGE) for corpus in corpora]
        found[share] = sum(scores)
    share = max(found, key=found.get)
    subprocess.run([taper, "average", run, "--with-parent", str(share)], check=True)
    return share


AVERAGE = "--checkpoint", "average"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--taper", default="target/release/taper")
    parser.add_argument("--updates", type=int, default=400, help="of all ways but finetune's own")
    parser.add_argument("--exported", action="store_true")
    parser.add_argument("--only", default="", metavar="NAME")
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    arguments = parser.parse_args()
    recipe = arguments.run / "config.toml"
    data = tomllib.loads(recipe.read_text())["data"]
    own = Path(data["dir"])
    languages = data["source_language"], data["target_language"]
    both = mixed([own, arguments.corpus.resolve()], languages, arguments.output.resolve() / "mixed")
    rows = [("the model as it was", arguments.run)]
    corpora = own, arguments.corpus.resolve()
    for name, way in WAYS.items():
        if not name.startswith(arguments.only):
            continue
        run = arguments.output / name.replace(" ", "-").replace(",", "").replace("'", "")
        rows.append((name, run))
        if (run / "scores.json").exists():
            continue
        if way.get("finetune"):
            fine_tune(arguments, run, languages, corpora, way.get("home"), [])
            continue
        settings = {
            "data.dir": both if way.get("mixed") else arguments.corpus.resolve(),
            "data.train": "train",
            "data.validation": "val",
            "data.test": '["test"]',
            "training.max_updates": arguments.updates,
            "training.schedule.learning_rate": way.get("rate", 1e-3),
            "training.schedule.warmup": 50,
            "training.validate_every": max(1, arguments.updates // 4),
            "training.average_last": 0,
        }
        command = [arguments.taper, "train", recipe, "--run", run]
        command += ["--from", arguments.run] if way.get("take", True) else []
        for pattern in way.get("freeze", []):
            command += ["--freeze", pattern]
        for setting in [f"{key}={value}" for key, value in settings.items()] + arguments.settings:
            command += ["--set", setting]
        subprocess.run(command, check=True)
    print(f"| trained on | BLEU, {own.name} | BLEU, {arguments.corpus.resolve().name} |\n|---|---|---|")
    for name, run in rows:
        is_tuned = WAYS.get(name, {}).get("finetune")
        options = ("--checkpoint", "best") if is_tuned else ()
        scores = [bleu(arguments.taper, run, corpus, options=options) for corpus in corpora]
        print(f"| {name} | {scores[0]:.1f} | {scores[1]:.1f} |", flush=True)
        if is_tuned:
            share = best_share(arguments.taper, run, corpora)
            scores = [bleu(arguments.taper, run, corpus, options=AVERAGE) for corpus in corpora]
            print(f"| … {share:g} of it | {scores[0]:.1f} | {scores[1]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
