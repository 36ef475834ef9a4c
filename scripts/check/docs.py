#!/usr/bin/env python3
"""Checks the Markdown files of the repository against the repository and the program.

    scripts/check/docs.py [TAPER]      (default: target/release/taper)

- Relative links, and their anchors, lead somewhere.
- Files that code in the text names under scripts/, configs/ and crates/ exist.
- Tests that a page names ("Test: `name`") exist.
- Each `taper` command exists and has the options that it is given (`taper COMMAND --help`).
- README.md has at most 150 lines, a page of docs/ at most 250 unless a program wrote it, and lines
  have at most 100 columns; tables and long code are exempt from the last.

Needs Python 3.11 and git, and nothing else.
"""

import os
import re
import subprocess
import sys
import unicodedata
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^(```|~~~)")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
NAMED = re.compile(r"\b(?:scripts|configs|crates)/[\w./*-]*\w\.(?:sh|py|toml|rs|md)\b")
TEST = re.compile(r"(?:Test: |测试：)`(\w+)`")
# What ends a command within a line of shell.
END = re.compile(r"[|;<>&]|\s#|\\$")


def pages():
    """The Markdown files that git knows, or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate"]
    command.append("*.md")
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in names.splitlines() if (ROOT / name).is_file()]


def columns(line):
    """How wide a line is on a screen, where a Chinese character takes two columns."""
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in line)


def anchor(heading):
    """The anchor that GitHub gives to a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@cache
def anchors(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    return {anchor(line.lstrip("#")) for line in lines if line.startswith("#")}


@cache
def tests():
    """The names of all functions under the folders of tests."""
    files = [path.read_text(encoding="utf-8") for path in ROOT.glob("crates/*/tests/**/*.rs")]
    return {name for text in files for name in re.findall(r"^\s*fn (\w+)\(\)", text, re.MULTILINE)}


@cache
def help_of(taper, command):
    """What `taper COMMAND --help` prints; none where there is no such command."""
    answer = subprocess.run([taper, *command, "--help"], capture_output=True, text=True)
    return answer.stdout if answer.returncode == 0 else None


def subcommands(text):
    """The commands that a help text lists."""
    section = re.search(r"^Commands:\n((?:  .*\n)+)", text, re.MULTILINE)
    return set(re.findall(r"^  (\S+)", section[1], re.MULTILINE)) if section else set()


def fault_of_command(taper, words):
    """What is wrong with the words after `taper`, if anything."""
    command = ()
    while names := subcommands(help_of(taper, command)):
        if not words or words[0].startswith("-") or not re.fullmatch(r"[a-z-]+", words[0]):
            # `taper`, `taper --help`, or `taper COMMAND` in a sentence.
            break
        if words[0] not in names:
            return f"there is no command `taper {' '.join((*command, words[0]))}`"
        if words[0] == "help":
            return None
        command, words = (*command, words[0]), words[1:]
    options = help_of(taper, command)
    for word in words:
        option = re.match(r"--[a-z][a-z0-9-]*|-[a-zA-Z]+$", word)
        # sacreBLEU's short options stand in brackets; `-cw` and the like are among them.
        if option and not re.search(rf"(?<![\w-]){re.escape(option[0])}(?![\w-])", options):
            return f"`taper {' '.join(command)}` has no option {option[0]}"
    return None


def commands_in(code):
    """The words after each `taper` in a line of shell or in code within a sentence."""
    program = r"(?:^|[\s|(])(?:taper|cargo run --release (?:--quiet )?--)\s+(.*)"
    for match in re.finditer(program, code):
        yield END.split(match[1])[0].split()


def faults(page, taper):
    text = page.read_text(encoding="utf-8")
    name = page.relative_to(ROOT)
    lines = text.splitlines()
    longest = 150 if str(name).startswith("README") else 250 if name.parts[0] == "docs" else None
    if longest and len(lines) > longest and "<!-- Written by `" not in text:
        yield f"{name}: {len(lines)} lines, at most {longest} are wanted"
    language = None
    for number, line in enumerate(lines, 1):
        where = f"{name}:{number}"
        if FENCE.match(line):
            language = line.strip("`~ ") or "text" if language is None else None
            continue
        prose = language is None and not line.startswith("|") and "](" not in line
        if prose and columns(line) > 100:
            yield f"{where}: {columns(line)} columns, at most 100 are wanted"
        if language is None:
            for link in LINK.findall(line):
                yield from fault_of_link(page, where, link)
            for test in TEST.findall(line):
                if test not in tests():
                    yield f"{where}: there is no test {test}"
            codes = re.findall(r"`([^`]+)`", line)
        else:
            codes = [line]
        for code in codes:
            for path in NAMED.findall(code):
                if not any(ROOT.glob(path)) and not (page.parent / path).exists():
                    yield f"{where}: there is no {path}"
            if language in (None, "sh"):
                for words in commands_in(code):
                    if fault := fault_of_command(taper, words):
                        yield f"{where}: {fault}"


def fault_of_link(page, where, link):
    if re.match(r"[a-z]+:", link):
        return
    path, _, part = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        yield f"{where}: the link {link} leads nowhere"
    elif part and target.suffix == ".md" and part not in anchors(target):
        yield f"{where}: there is no heading #{part} in {target.relative_to(ROOT)}"


def main():
    built = Path(ROOT, os.environ.get("CARGO_TARGET_DIR", "target"), "release", "taper")
    taper = str(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else built)
    if help_of(taper, ()) is None:
        sys.exit(f"{taper} does not run; build it with `cargo build --release --features full`")
    checked = pages()
    found = [fault for page in checked for fault in faults(page, taper)]
    print("\n".join(found) or f"{len(checked)} pages: links, commands, options and files exist")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
