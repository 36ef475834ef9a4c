"""Pages of HTML, which notebooks show."""

from __future__ import annotations

import html
from os import PathLike
from pathlib import Path
from typing import Literal

from . import _native


def framed(page: str) -> str:
    """The page in a frame, so that its style and its scripts stay in it."""
    escaped = html.escape(page, quote=True)
    return f'<iframe srcdoc="{escaped}" width="100%" height="640" style="border:0"></iframe>'


class Report:
    """Page about a run: curves, data, recipe, scores, test sentences. A notebook shows it."""

    html: str
    """The page; it loads nothing."""

    def __init__(self, html: str) -> None:
        self.html = html

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the page to a file."""
        Path(path).write_text(self.html, encoding="utf-8")

    def _repr_html_(self) -> str:
        return framed(self.html)


def report(path: str | PathLike[str], language: Literal["en", "zh"] = "en") -> Report:
    """Reports about a run, also while it is trained; loads no model.

    Args:
        path: Folder of the run.
        language: Language of the page.

    Raises:
        TaperError: There is no run in the folder, or a record of it is damaged.
    """
    return Report(_native.report(path, language))
