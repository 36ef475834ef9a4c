#!/usr/bin/env python3
"""Builds text in many languages from Debian's translated programs, man pages and help, to train and
measure the identification of languages.

    scripts/corpus/languages.py FOLDER

Downloads packages with apt-get into FOLDER/packages, unless they are there, and installs nothing.
Writes FOLDER/train.tsv and FOLDER/test.tsv, a language, a tab and a line each. The text of one
document in six (a catalog of messages, a man page, a chapter), in all languages, is held out: the
test's lines are pieces of it, exactly 20 characters each, that begin with a word.

The text has the licences of its programs, most often the GPL, and stays out of the repository.
"""

import gzip
import hashlib
import random
import re
import struct
import subprocess
import sys
import tarfile
import unicodedata
from collections import defaultdict
from pathlib import Path

LANGUAGES = set(
    "af ar as az be bg bn br ca cs cy da de dz el en eo es et eu fa fi fr ga gd gl gu he hi hr hu hy id is"
    " it ja ka kk km kn ko lo lt lv mk ml mn mr my nb ne nl or pa pl ps pt ro ru si sk sl sq sr sv ta te"
    " tg th tr ug uk ur uz vi zh".split()
)
# Names of locales that are another's language here. Text of a second script or norm is left out.
SAME = {"C": "en", "zh_CN": "zh", "zh_TW": "zh", "zh_HK": "zh", "pt_BR": "pt", "no": "nb", "bn_IN": "bn"}
LATIN = set(
    "af az br ca cs cy da de en eo es et eu fi fr ga gd gl hr hu id is it lt lv nb nl pl pt ro sk sl sq sv tr uz vi"
    .split()
)
PROGRAMS = (
    "aptitude-common audacity-data deja-dup evolution-common gimp-data gnome-control-center-data"
    " gnome-software-common gnome-user-docs gnucash-common gthumb-data hexchat-common kate5-data krita-l10n"
    " nautilus-data pidgin-data rhythmbox-data scribus-data vlc-l10n"
).split()
HELD_OUT = 6
CHARACTERS = 20
MOST_TRAIN, MOST_TEST = 30_000, 1_000
# A language with fewer lines is left out.
FEWEST = 500
# Marks, which the vowels of many scripts are, are parts of words.
MARKS = "".join(chr(code) for code in range(0x300, 0x11000) if unicodedata.category(chr(code))[0] == "M")
WORD = re.compile(rf"[^\W\d_](?:[^\W\d_]|[{MARKS}])*")
# Codes of formats, addresses, options and names in capitals that are no language's.
CODE = re.compile(r"%[-+ #0]*[\d.$*]*[hlzjt]*\w|\{[^}]*\}|\$\w+|https?:\S+|\S+@\S+|(?<!\w)-{1,2}\w[\w-]*|&\w+;|\\.")


def packages(folder: Path) -> list[Path]:
    """Downloads what is missing of the packages."""
    def found(pattern: str) -> list[str]:
        said = subprocess.run(["apt-cache", "search", "-n", pattern], check=True, capture_output=True, text=True)
        return [line.split()[0] for line in said.stdout.splitlines()]
    pages = [name for name in found("^manpages-") if not name.endswith("-dev") and name != "manpages-pt"]
    names = sorted({*PROGRAMS, *pages, *found("^libreoffice-l10n-")})
    folder.mkdir(parents=True, exist_ok=True)
    there = {path.name.split("_")[0] for path in folder.glob("*.deb")}
    missing = [name for name in names if name not in there]
    if missing:
        subprocess.run(["apt-get", "download", *missing], cwd=folder, check=True)
    return sorted(folder.glob("*.deb"))


def language(locale: str) -> str | None:
    locale = SAME.get(locale, locale).replace("-", "_")
    locale = SAME.get(locale, locale)
    code = locale.split("_")[0]
    return code if code in LANGUAGES and "@" not in locale and not locale.startswith("en_") else None


def messages(content: bytes) -> list[tuple[str, str]]:
    """Pairs of a catalog in the binary format of gettext."""
    order = "<" if content[:4] == b"\xde\x12\x04\x95" else ">"
    _, _, count, sources, targets = struct.unpack(order + "5I", content[:20])
    pairs = []
    for at in range(count):
        texts = []
        for table in (sources, targets):
            length, offset = struct.unpack_from(order + "2I", content, table + 8 * at)
            texts.append(content[offset:offset + length].decode("utf-8", "ignore"))
        source = texts[0].split("\x04")[-1].split("\0")[0]
        pairs += [(source, target) for target in texts[1].split("\0")] if source else []
    return pairs


def man_page(text: str) -> list[str]:
    """Paragraphs of a man page, without what is bold or italic: names and options."""
    paragraphs, lines = [], []
    for line in [*text.splitlines(), "."]:
        if line.startswith((".", "'")) or not line.strip():
            paragraphs.append(" ".join(lines))
            lines = []
        else:
            line = re.sub(r"\\f[BI](.*?)\\f[RP]|\\f\[(?!R)\w+\](.*?)\\f\[(R|P|)\]", " ", line)
            lines.append(re.sub(r"\\f(\w|\[\w*\])|\\[&%]|\\\(..|\\\[[^\]]*\]", "", line).replace("\\-", "-"))
    return paragraphs


def cleaned(text: str) -> str:
    text = re.sub(r"<[^>]*>|\(_.\)|\(&.\)", " ", text)
    return " ".join(CODE.sub(" ", text.replace("_", "").replace("&", "").replace("~", "")).split())


def is_language(code: str, text: str, source: str) -> bool:
    """Whether a line is long enough, mostly letters of its script, and not for a fifth words of its
    source."""
    letters = sum(map(len, WORD.findall(text)))
    if len(text) < CHARACTERS or letters < 0.6 * len(text):
        return False
    if code not in LATIN and sum(one.isascii() and one.isalpha() for one in text) > 0.2 * letters:
        return False
    known = {word.lower() for word in WORD.findall(source)}
    left = sum(len(word) for word in WORD.findall(text) if word.lower() in known)
    return left <= 0.2 * letters


def documents(deb: Path):
    """Languages, names and lines of the documents of a package, each with the line it translates."""
    data = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE)
    with tarfile.open(fileobj=data.stdout, mode="r|") as archive:
        for member in archive:
            name = member.name
            catalog = re.search(r"/(?:locale|resource)/([^/]+)/LC_MESSAGES/(.+)\.mo$", name)
            page = re.search(r"/man/([^/]+)/man\d/(.+)\.gz$", name)
            chapter = re.search(r"/help/([^/]+)/(.+)\.page$", name)
            which = catalog or page or chapter
            if not which or not member.isfile() or not (code := language(which[1])):
                continue
            content = archive.extractfile(member).read()
            if catalog:
                for source, target in messages(content):
                    if source != target:
                        yield code, which[2], target, source
                    if code == "de":
                        yield "en", which[2], source, ""
            elif page:
                for text in man_page(gzip.decompress(content).decode("utf-8", "ignore")):
                    yield code, which[2], text, ""
            else:
                text = re.sub(r"<(info|code|cmd|gui|key|app|file|sys)\b.*?</\1>", " ", content.decode("utf-8"), flags=re.S)
                for text in re.findall(r"<(?:p|title)>(.*?)</(?:p|title)>", text, re.S):
                    yield code, which[2], text, ""
    data.wait()


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    train, test = defaultdict(set), defaultdict(set)
    for deb in packages(folder / "packages"):
        for code, document, text, source in documents(deb):
            number = int.from_bytes(hashlib.sha256(document.encode()).digest()[:4], "little")
            into = test if number % HELD_OUT == 0 else train
            for line in text.split("\n"):
                line = cleaned(line)
                if is_language(code, line, source):
                    into[code].add(line)
    draw = random.Random(1)
    written = {"train": [], "test": []}
    english = train["en"] | test["en"]
    for code in sorted(train):
        if code != "en":
            # Parts of a document that nobody has translated yet.
            train[code] -= english
            test[code] -= english
        lines = sorted(train[code])
        held_out = sorted(test[code] - train[code])
        draw.shuffle(lines)
        draw.shuffle(held_out)
        pieces = set()
        for line in held_out:
            starts = [0, *(one.end() for one in re.finditer(" ", line))]
            starts = [start for start in starts if start + CHARACTERS <= len(line)]
            start = draw.choice(starts)
            piece = line[start:start + CHARACTERS]
            if is_language(code, piece, ""):
                pieces.add(piece)
        pieces = sorted(pieces)
        draw.shuffle(pieces)
        if len(lines) < FEWEST:
            continue
        written["train"] += [f"{code}\t{line}\n" for line in lines[:MOST_TRAIN]]
        written["test"] += [f"{code}\t{piece}\n" for piece in pieces[:MOST_TEST]]
        print(f"{code}: {len(lines)} lines, {len(pieces)} held-out pieces", flush=True)
    for name, lines in written.items():
        (folder / f"{name}.tsv").write_text("".join(lines))


if __name__ == "__main__":
    main()
