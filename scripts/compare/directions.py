#!/usr/bin/env python3
"""A model of several directions, and a model of each direction alone: is any worse together?

    python scripts/compare/directions.py RECIPE OUTPUT [--taper target/release/taper] [--set KEY=VALUE …]

RECIPE has corpora with `from` and `to`. It is trained as it is, and once for each direction with the
corpora of that alone, with the same model and as many updates, into runs in OUTPUT; what is there
already is not trained again. The table has the BLEU of each test set, alone and together.
"""

import argparse
import json
import subprocess
import tomllib
from pathlib import Path

SPLITS = "train", "validation", "test"


def as_toml(corpora):
    """Corpora as the value of an option."""
    return "[" + ", ".join(
        "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in corpus.items()) + " }"
        for corpus in corpora
    ) + "]"


def placed(corpora, folder):
    """Corpora whose files are named from anywhere."""
    def place(key, value):
        if key not in ("source", "target", "file", "links"):
            return value
        return [place(key, one) for one in value] if isinstance(value, list) else str((folder / value).resolve())
    return [{key: place(key, value) for key, value in corpus.items()} for corpus in corpora]


def train(arguments, run, options):
    if not (run / "scores.json").exists():
        command = [arguments.taper, "train", arguments.recipe, "--run", run, "--resume", *options]
        subprocess.run(command, check=True)
    return {one.get("direction"): one for one in json.loads((run / "scores.json").read_text())}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("recipe", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--taper", default="target/release/taper")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    data = tomllib.loads(arguments.recipe.read_text())["data"]
    options = [part for one in arguments.set for part in ("--set", one)]
    corpora = {split: placed(data[split], arguments.recipe.parent) for split in SPLITS}
    directions = list(dict.fromkeys((one["from"], one["to"]) for one in corpora["train"]))
    together = train(arguments, arguments.output / "together", options)
    print(f"{'direction':<12}{'pairs':>10}{'alone':>8}{'together':>10}{'gain':>8}")
    for source, target in directions:
        own = list(options)
        for split, all_of in corpora.items():
            chosen = [one for one in all_of if (one["from"], one["to"]) == (source, target)]
            own += ["--set", f"data.{split}={as_toml(chosen)}"]
        own += ["--set", f"data.source_language={source}", "--set", f"data.target_language={target}"]
        name = f"{source}-{target}"
        run = arguments.output / name
        # A run of one direction does not name it.
        alone = next(iter(train(arguments, run, own).values()))["bleu"]["score"]
        both = together[name]["bleu"]["score"]
        pairs = json.loads((run / "data.json").read_text())["train"]["pairs_kept"]
        print(f"{name:<12}{pairs:>10}{alone:>8.2f}{both:>10.2f}{both - alone:>+8.2f}", flush=True)


if __name__ == "__main__":
    main()
