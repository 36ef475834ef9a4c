#!/usr/bin/env python3
"""Runs a notebook in a kernel of Jupyter, cell after cell, as a reader would.

    scripts/check/notebook.py docs/python.ipynb

It runs in a temporary folder that has the configs and the data of the repository. Needs the package,
nbclient, ipykernel and what the notebook imports.
"""

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]


def main():
    page = Path(sys.argv[1]).resolve()
    notebook = nbformat.read(page, as_version=4)
    nbformat.validate(notebook)
    kept = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.outputs]
    assert not kept, f"{page.name}: cells have outputs, which change with each run; clear them"
    with tempfile.TemporaryDirectory() as folder:
        for name in ("configs", "data"):
            os.symlink(ROOT / name, Path(folder) / name)
        NotebookClient(
            notebook, timeout=1200, resources={"metadata": {"path": folder}}
        ).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = {kind for cell in cells for output in cell.outputs for kind in output.get("data", {})}
    missing = {"image/png", "text/html"} - shown
    assert not missing, f"{page.name}: nothing was shown as {missing}"
    print(f"{page.name}: {len(cells)} cells ran")


if __name__ == "__main__":
    main()
