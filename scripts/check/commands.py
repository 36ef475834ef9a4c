#!/usr/bin/env python3
"""Finds commands of the program in the texts of libraries.

    scripts/check/commands.py

Readers of a library's message may have no shell. The message carries what to do as data
(`taper_run::advice`), and the program, the package for Python and the server name it for theirs.
Comments, tests within files and byte strings are left out.

Needs Python 3.11 and nothing else.
"""

import re
import sys

from floors import ROOT, without_tests

# They speak to people at a shell.
PROGRAMS = {"cli", "python"}

WITH_TEXT = {".rs", ".template", ".html", ".js", ".json"}

CONTINUED = re.compile(r"\\\n\s*")


def commands():
    """The commands of the program."""
    text = (ROOT / "crates/cli/src/arguments/mod.rs").read_text()
    variants = re.search(r"enum Command \{(.*?)^\}", text, re.M | re.S)[1]
    names = re.findall(r"^    ([A-Z]\w+)[(,]", variants, re.M)
    return [re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower() for name in names]


def main():
    named = re.compile(rf'(?<!b")\btaper (?:{"|".join(commands())})\b')
    found = []
    for path in sorted(ROOT.glob("crates/*/src/**/*")):
        file = path.relative_to(ROOT / "crates")
        if path.suffix not in WITH_TEXT or file.parts[0] in PROGRAMS or path.stem == "tests":
            continue
        text = path.read_text()
        text = without_tests(text) if path.suffix == ".rs" else text
        found += [f"{file}: {match[0]}" for match in named.finditer(CONTINUED.sub("", text))]
    if found:
        sys.exit("libraries name commands:\n  " + "\n  ".join(found))


if __name__ == "__main__":
    main()
