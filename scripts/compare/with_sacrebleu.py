#!/usr/bin/env python3
"""Runs `taper bleu` and sacreBLEU's program on the same files with the same arguments and
compares what they print. Needs `sacrebleu` 2.6 in this Python:

    python scripts/compare/with_sacrebleu.py target/release/taper [sacrebleu-2.6.0.tar.gz]

With sacreBLEU's source distribution (`pip download sacrebleu==2.6.0 --no-deps --no-binary :all:`),
also on the 16 systems of WMT17 English-German that its test suite compares. JSON must hold the
same values but for the version in signatures; of tables, the part in the frame must be the same.
"""

import bz2
import gzip
import itertools
import json
import os
import pickle
import random
import re
import subprocess
import sys
import tarfile
import tempfile

import sacrebleu

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "scores"))

from metrics import MAKERS, perturb  # noqa: E402

ALL = "-m bleu chrf ter"
INVOCATIONS = [
    "r1 -i a",
    "r1 -i a -w 2",
    "r1 -i a -w 12 -m chrf bleu ter",
    "r1 r2 r3 -i a -m bleu chrf ter -w 4",
    "r1 r2 -i a -m ter bleu -f text",
    "r1 -i a -m chrf -f text -w 3 -sh",
    f"r1 r2 -i a {ALL} -f text -sh -w 2",
    "r1 -i a -b",
    "r1 -i a -b -w 7 -f text",
    f"r1 r2 -i a {ALL} -b -f text",
    f"r1 r2 -i a {ALL} -b",
    "r1 -i a -tok none -w 6",
    "r1 -i a -tok zh -w 6",
    "r1 -i a --tokenize intl -w 6",
    "r1 -i a -tok char -lc -w 6",
    "r1 -i a -l en-zh -w 6",
    "r1 -i a -l en-de --force -w 6",
    "r1 -i a -l en-zh-x -w 6",
    "r1 -i a -s floor -w 6",
    "r1 -i a --smooth-method floor --smooth-value 0.3 -w 6",
    "r1 -i a -s add-k -w 6",
    "r1 -i a -s add-k -sv 2 -w 6",
    "r1 -i a -s none -w 6",
    "r1 -i a -m chrf -cw 2 -w 6",
    "r1 -i a -m chrf --chrf-word-order 1 --chrf-char-order 4 --chrf-beta 3 -w 6",
    "r1 r2 -i a -m chrf -cc 2 -cw 2 --chrf-lowercase --chrf-whitespace --chrf-eps-smoothing -w 6",
    *(
        f"r1 r2 r3 -i a -m ter -w 6 {' '.join(flags)}"
        for count in range(5)
        for flags in itertools.combinations(
            ["--ter-normalized", "--ter-no-punct", "--ter-asian-support", "--ter-case-sensitive"], count
        )
    ),
    "tabs -nr 3 -i a -w 6",
    "tabs --num-refs 3 -i a -m bleu chrf ter -w 6",
    "r1.gz -i a.gz -w 6",
    "r1 -i a --confidence -w 6",
    f"r1 r2 -i a {ALL} -ci -cin 300 -w 8",
    f"r1 -i a {ALL} -ci -cin 123 -f text -w 5",
    f"r1 -i a {ALL} -ci -cin 41 -b -f text -w 5",
    "r1 r2 -i a -m bleu -sl -w 4",
    "r1 r2 -i a -m chrf --sentence-level -b -w 4",
    "r1 r2 -i a -m ter -sl -sh -w 4",
    f"r1 -i a b c {ALL}",
    f"r1 -i a b c {ALL} -f text -w 3",
    f"r1 -i a b c {ALL} -f latex -w 3",
    "r1 -i a b c -m bleu --paired-bs -w 3",
    "r1 r2 -i a b a c -m bleu -pbs -pbsn 400 -s floor",
    f"r1 -i a b c {ALL} --paired-bs -f text -w 5 -q",
    f"r1 r2 -i a b -m ter chrf bleu --paired-bs --paired-bs-n 200 -f latex -w 5 -q",
    f"r1 -i a b c {ALL} --paired-ar --paired-ar-n 2000",
    f"r1 r2 -i a b {ALL} -par -parn 500 -f text -w 4 -sh",
    "r1 r2 -i a b -par -parn 500 -s add-k -sv 1.6",
]
FROM_STANDARD_INPUT = ["r1", "r1 -w 3 -m bleu ter"]
COLUMNS_FROM_STANDARD_INPUT = ["r1 -m bleu chrf", "r1 --paired-bs -w 4", "r1 -m chrf --chrf-whitespace -w 6"]
REFUSED = [
    "r1 -i short",
    "r1 -i a -tok 14a",
    "r1 -i a -s sometimes",
    "r1 -i a a",
    "r1 -i a --paired-bs",
    "r1 -i a b --confidence",
    "r1 -i a b --paired-bs --paired-ar",
    "r1 -i a -sl -m bleu chrf",
    "r1 r2 --num-refs 3 -i a",
    "r1 -i absent",
    "r1 -i a -l zh",
    "r1 -i a -nr 0",
]
# The suite's own comparison, and the other metrics over fewer systems: sacreBLEU takes long.
WMT17 = [
    "ref -i {all} -m bleu chrf ter -tok none -w 4",
    "ref -i {all} -tok none --paired-bs --paired-bs-n 2000",
    "ref -i {all} -tok none --paired-ar --paired-ar-n 10000",
    "ref -i {few} -m bleu chrf ter -pbs -f text -w 6",
    "ref -i {few} -m bleu chrf ter -par -parn 1000",
    "ref -i {one} -m bleu chrf ter --confidence -w 6",
]


def made_up(folder):
    """Writes references r1 to r3, systems a to c, and variants of them."""
    rng = random.Random(11)
    makers = list(MAKERS.values())
    lines = [makers[index % len(makers)](rng).replace("\n", " ") for index in range(220)]
    streams = {
        "r1": lines,
        **{name: [perturb(rng, line, 0.15) for line in lines] for name in ("r2", "r3")},
        **{name: [perturb(rng, line, strength) for line in lines] for name, strength in (("a", 0.2), ("b", 0.22), ("c", 0.5))},
    }
    streams["a"][7] = ""
    streams["r2"][9] = ""
    streams["short"] = lines[:-1]
    # Tabs separate columns, and Python takes a carriage return on standard input for a line's end.
    bare = {name: [re.sub(r"[\t\r]", " ", line).strip() or "x" for line in streams[name]] for name in ("a", "b", "c", "r1", "r2", "r3")}
    streams["one column"] = bare["a"]
    streams["tabs"] = ["\t".join(parts) for parts in zip(bare["r1"], bare["r2"], bare["r3"])]
    streams["columns"] = ["\t".join(parts) for parts in zip(bare["a"], bare["b"], bare["c"])]
    # Of the first line on standard input, fields keep the whitespace at their ends.
    streams["columns"][0] = streams["columns"][0].replace("\t", " \t", 1)
    for name, stream in streams.items():
        text = "".join(f"{line}\n" for line in stream).encode()
        for path, opened in ((name, open), (f"{name}.gz", gzip.open)):
            with opened(os.path.join(folder, path), "wb") as file:
                file.write(text)


def wmt17(archive, folder):
    """Writes the systems of the suite, and returns their names."""
    with tarfile.open(archive) as tar:
        (member,) = [name for name in tar.getnames() if name.endswith("wmt17_en_de_systems.pkl.bz2")]
        streams = pickle.loads(bz2.decompress(tar.extractfile(member).read()))
    _, references = streams.pop()
    names = []
    for name, lines in [*streams, ("ref", references[0])]:
        name = name.replace("Baseline: ", "")
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        names.append(name)
    return names[:-1]


def run(command, folder, text):
    """What a program prints, and its exit code."""
    environment = {**os.environ, "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    result = subprocess.run(command, cwd=folder, input=text, capture_output=True, env=environment, check=False)
    return result.returncode, result.stdout.decode(), result.stderr.decode()


def normalized(output):
    """The output without what may differ: JSON as values, tables with the signatures alone of what follows."""
    output = re.sub(r"(version|v):(taper-)?[0-9.]+", r"\1:", output)
    output = re.sub(r'"version": ".*"', '"version": ""', output)
    if output.startswith(("{", "[")):
        return json.loads(output)
    if "╒" in output or "tabular" in output:
        signatures = re.findall(r"^ - \S+ +(?:nrefs|#):.*$", output, re.MULTILINE)
        return "\n".join([output.split("\n\n")[0].rstrip(), *signatures])
    return output.rstrip("\n")


class Comparison:
    """The two programs side by side."""

    def __init__(self, taper, folder):
        self.taper = [os.path.abspath(taper), "bleu"]
        self.sacrebleu = [sys.executable, "-m", "sacrebleu"]
        self.folder = folder
        self.same = self.different = 0

    def check(self, invocation, text=b""):
        """Both must print the same."""
        arguments = invocation.split()
        code, expected, problem = run(self.sacrebleu + arguments, self.folder, text)
        ours, got, complaint = run(self.taper + arguments, self.folder, text)
        if code != 0:
            self.count(invocation, False, f"sacreBLEU failed: {problem.splitlines()[-1]}")
        elif ours != 0:
            self.count(invocation, False, complaint)
        else:
            expected, got = normalized(expected), normalized(got)
            self.count(invocation, expected == got, f"sacreBLEU:\n{expected}\ntaper:\n{got}")

    def check_refused(self, invocation):
        """Both must refuse, ours with exit code 2 and one line that says why."""
        arguments = invocation.split()
        code, _, _ = run(self.sacrebleu + arguments, self.folder, b"")
        ours, _, complaint = run(self.taper + arguments, self.folder, b"")
        fine = code != 0 and ours == 2 and "error:" in complaint
        self.count(f"{invocation} (refused)", fine, f"exit codes {code} and {ours}: {complaint}")

    def count(self, invocation, same, explanation):
        """Notes an outcome, and says how it differs."""
        self.same += same
        self.different += not same
        if not same:
            print(f"DIFFERENT: {invocation}\n{explanation}\n")


def main():
    """Compares, and exits with 1 if anything differs."""
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(sys.argv[1], folder)
        made_up(folder)
        for invocation in INVOCATIONS:
            comparison.check(invocation)
        for name, invocations in (("one column", FROM_STANDARD_INPUT), ("columns", COLUMNS_FROM_STANDARD_INPUT)):
            with open(os.path.join(folder, name), "rb") as file:
                text = file.read()
            for invocation in invocations:
                comparison.check(invocation, text)
        for invocation in REFUSED:
            comparison.check_refused(invocation)
        if len(sys.argv) > 2:
            names = wmt17(sys.argv[2], folder)
            parts = {"all": " ".join(names), "few": " ".join(names[:4]), "one": names[0]}
            for invocation in WMT17:
                comparison.check(invocation.format(**parts))
    print(f"sacreBLEU {sacrebleu.__version__}: {comparison.same} invocations agree, {comparison.different} differ")
    sys.exit(comparison.different > 0)


if __name__ == "__main__":
    main()
