#!/usr/bin/env python3
"""Runs the Python code of a page, block after block, as a reader would.

    scripts/check/python_page.py docs/python.md

Blocks share their names, and are run in a temporary folder that has the configs and the data of the
repository. Needs the package.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main():
    page = Path(sys.argv[1]).resolve()
    blocks = re.finditer(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in ("configs", "data"):
            os.symlink(ROOT / name, name)
        names = {"__name__": "page"}
        for count, block in enumerate(blocks, 1):
            line = block.string.count("\n", 0, block.start(1))
            exec(compile("\n" * line + block.group(1), str(page), "exec"), names)
        print(f"{page.name}: {count} blocks of code ran")


if __name__ == "__main__":
    main()
