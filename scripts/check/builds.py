#!/usr/bin/env python3
"""Checks the builds of the README's two commands.

    scripts/check/builds.py

- The program that the first command builds has at most 240 crates in its tree.
- The tests, which the second command builds, share all of them: each crate has the same features in
  both builds, so that none is compiled twice.

Compiles nothing. Needs Python 3.9 and Cargo.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_CRATES = 240


def crates(*options):
    """Crates of a build, each with its features, as (name and version, features)."""
    command = ["cargo", "tree", "--locked", "--prefix", "none", "--no-dedupe", "--format", "{p}|{f}"]
    found = subprocess.run([*command, *options], cwd=ROOT, check=True,
                           stdout=subprocess.PIPE, text=True)
    return {tuple(line.split("|")) for line in found.stdout.splitlines() if line}


def main():
    program = crates("--package", "taper", "--edges", "normal,build")
    tests = crates("--workspace", "--edges", "normal,build,dev")
    count = len({crate for crate, _ in program})
    print(f"{count} crates in the program's tree")
    faults = []
    if count > MOST_CRATES:
        faults.append(f"at most {MOST_CRATES} crates are wanted")
    faults += [f"the tests build {crate} again, with features other than {features or 'none'}"
               for crate, features in sorted(program - tests)]
    sys.exit("\n".join(faults) or 0)


if __name__ == "__main__":
    main()
