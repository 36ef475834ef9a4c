"""BLEU of translations by the length of their sources, of several systems beside each other.

    python scripts/compare/bleu_by_length.py SOURCE REFERENCE NAME=TRANSLATION… [--edges 8,11,14,18] [--taper PATH]

Sentences are put into groups by the words of their source, split at spaces: up to the first edge, from there up to the
second, and so on, and beyond the last. Each group is scored as a corpus by `taper bleu --tokenize none`. Prints a
Markdown table, in the rows the groups and in the last one all sentences.
"""
import argparse
import json
import subprocess
import tempfile
from pathlib import Path


def lines(path):
    return Path(path).read_text(encoding="utf-8").rstrip("\n").split("\n")


def bleu(taper, hypotheses, references):
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("hypotheses", "references")]
        for path, text in zip(paths, (hypotheses, references)):
            path.write_text("\n".join(text) + "\n", encoding="utf-8")
        command = [taper, "bleu", *map(str, paths), "--tokenize", "none", "--force", "--json"]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = json.loads(output)
    return (found[0] if isinstance(found, list) else found)["score"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source"), parser.add_argument("reference")
    parser.add_argument("systems", nargs="+", metavar="NAME=TRANSLATION")
    parser.add_argument("--edges", default="8,11,14,18")
    parser.add_argument("--taper", default="target/release/taper")
    arguments = parser.parse_args()
    sources, references = lines(arguments.source), lines(arguments.reference)
    systems = dict(system.split("=", 1) for system in arguments.systems)
    outputs = {name: lines(path) for name, path in systems.items()}
    for name, output in outputs.items():
        if len(output) != len(sources):
            parser.error(f"{name} has {len(output)} lines, and the source {len(sources)}")
    edges = [0, *map(int, arguments.edges.split(",")), None]
    lengths = [len(line.split()) for line in sources]
    print("| words of the source | sentences | " + " | ".join(systems) + " |")
    print("|---|---|" + "---|" * len(systems))
    groups = [
        (f"{low + 1} to {high}" if high else f"from {low + 1}",
         [at for at, length in enumerate(lengths) if low < length and (high is None or length <= high)])
        for low, high in zip(edges, edges[1:])
    ]
    for name, group in [*groups, ("all", range(len(sources)))]:
        if group:
            scores = (
                bleu(arguments.taper, [output[at] for at in group], [references[at] for at in group])
                for output in outputs.values()
            )
            print(f"| {name} | {len(group)} | " + " | ".join(f"{score:.1f}" for score in scores) + " |", flush=True)


if __name__ == "__main__":
    main()
