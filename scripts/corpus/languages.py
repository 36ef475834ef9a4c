#!/usr/bin/env python3
"""Builds text in many languages from Debian's translated programs, man pages and help, to train and
measure the identification of languages.

    scripts/corpus/languages.py FOLDER

Downloads packages with apt-get into FOLDER/packages, unless they are there, and installs nothing.
Writes FOLDER/train.tsv and FOLDER/test.tsv, a language, a tab and a line each. Lines have 40
characters at least, so that most are sentences. The text of one document in six (a catalog of
messages, a man page, a chapter), in all languages, is held out: the test's lines are pieces of it,
exactly 20 characters each, that begin with a word. A piece that another language's text has
verbatim is left out, as nobody could tell whose it is.

The text has the licences of its programs, most often the GPL, and stays out of the repository.
"""

import gzip
import hashlib
import html
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
SAME = {"C": "en", "zh_CN": "zh", "zh_TW": "zh", "zh_HK": "zh", "pt_BR": "pt", "en_US": "en", "no": "nb", "bn_IN": "bn"}
LATIN = set(
    "af az br ca cs cy da de en eo es et eu fi fr ga gd gl hr hu id is it lt lv nb nl pl pt ro sk sl sq sv tr uz vi"
    .split()
)
PROGRAMS = (
    "aisleriot akregator apt aptitude-common audacity-data baobab brasero-common caja-common cantor cheese-common"
    " cinnamon-l10n claws-mail-i18n darktable debconf-i18n deja-dup digikam-data dpkg eog epiphany-browser-data"
    " evince-common evolution-common file-roller freeciv-data gcc-12-locales geany-common gedit-common gimp-data glade"
    " gnome-calculator gnome-chess gnome-control-center-data gnome-disk-utility gnome-mahjongg gnome-shell-common"
    " gnome-software-common gnome-sudoku gnome-terminal-data gnome-user-docs gnucash-common gnupg-l10n gramps"
    " grisbi-common gthumb-data gucharmap hexchat-common homebank hugin-data inkscape installation-guide-amd64 k3b-i18n"
    " kate5-data kdenlive-data kmail kmymoney-common konversation-data krita-l10n ktorrent-data libgtk2.0-common"
    " mate-control-center-common mate-user-guide meld minetest-data nautilus-data network-manager-gnome okular orca"
    " pidgin-data pluma-common rhythmbox-data rkward scribus-data seahorse shotwell-common skrooge-common synaptic"
    " thunar-data totem-common tuxpaint-data util-linux-locales vlc-l10n wordpress-l10n xfdesktop4-data yelp"
).split()
# Stories that a game tells.
CAMPAIGNS = r"^wesnoth-1\.16-(core|did|dm|dw|ei|httt|l|low|nr|sof|sota|sotbe|thot|trow|tsg|ttb|utbs)$"
HELD_OUT = 6
CHARACTERS = 20
# Shorter lines are names and labels more often than sentences.
SHORTEST = 40
MOST_TRAIN, MOST_TEST = 60_000, 1_000
# A language with fewer lines is left out.
FEWEST = 500
# A line with two of these has English in it that nobody has translated.
ENGLISH = set(
    "the and that this these with from which when have has would should there their they for your you".split()
)
# Documents by their paths.
FORMS = {
    "catalog": re.compile(r"/(?:locale|resource)/(?P<locale>[^/]+)/LC_MESSAGES/(?P<name>.+)\.mo$"),
    "site": re.compile(r"/wp-content/languages/(?P<name>[a-z-]*?)-?(?P<locale>[a-z]{2}(?:_[A-Z]{2})?)\.mo$"),
    "man page": re.compile(r"/man/(?P<locale>[^/]+)/man\d/(?P<name>.+)\.gz$"),
    "page": re.compile(r"/(?:help|installation-guide-amd64)/(?P<locale>[^/]+)/(?P<name>.+)\.(?:page|xml|html)$"),
}
# Marks, which the vowels of many scripts are, are parts of words.
MARKS = "".join(chr(code) for code in range(0x300, 0x11000) if unicodedata.category(chr(code))[0] == "M")
WORD = re.compile(rf"[^\W\d_](?:[^\W\d_]|[{MARKS}])*")
# Elements that name keys, files and commands.
NAMES = re.compile(r"<(info|code|cmd|gui|key|app|file|sys|kbd|tt|pre|command|filename|literal)\b.*?</\1>", re.S)
# Codes of formats, addresses, options and names in capitals that are no language's.
CODE = re.compile(r"%[-+ #0]*[\d.$*]*[hlzjt]*\w|\{[^}]*\}|\$\w+|https?:\S+|\S+@\S+|(?<!\w)-{1,2}\w[\w-]*|&\w+;|\\.")


def packages(folder: Path) -> list[Path]:
    """Downloads what is missing of the packages."""
    def found(pattern: str) -> list[str]:
        said = subprocess.run(["apt-cache", "search", "-n", pattern], check=True, capture_output=True, text=True)
        return [line.split()[0] for line in said.stdout.splitlines()]
    pages = [name for name in found("^manpages-") if not name.endswith("-dev") and name != "manpages-pt"]
    names = sorted({*PROGRAMS, *pages, *found("^libreoffice-(l10n|help)-"), *found(CAMPAIGNS)})
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
    """Whether a line is mostly letters of its script, without much English, and not for a fifth words
    of its source."""
    words = WORD.findall(text)
    letters = sum(map(len, words))
    if letters < 0.6 * len(text) or code != "en" and len(ENGLISH & {word.lower() for word in words}) > 1:
        return False
    if code not in LATIN and sum(one.isascii() and one.isalpha() for one in text) > 0.2 * letters:
        return False
    known = {word.lower() for word in WORD.findall(source)}
    left = sum(len(word) for word in words if word.lower() in known)
    return left <= 0.2 * letters


def marked_up(text: str) -> list[str]:
    """Paragraphs of a page of help in Mallard, DocBook or HTML, without what names keys and files."""
    text = NAMES.sub(" ", text)
    paragraphs = re.findall(r"<(p|para|li|title)\b[^>]*>(.*?)</\1>", text, re.S)
    return [html.unescape(" ".join(paragraph.split())) for _, paragraph in paragraphs]


def documents(deb: Path):
    """Languages, names and lines of the documents of a package, each with the line it translates."""
    data = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE)
    with tarfile.open(fileobj=data.stdout, mode="r|") as archive:
        for member in archive:
            found = ((kind, form.search(member.name)) for kind, form in FORMS.items())
            kind, which = next((one for one in found if one[1]), ("", None))
            if not which or not member.isfile() or not (code := language(which["locale"])):
                continue
            content = archive.extractfile(member).read()
            if kind in ("catalog", "site"):
                for source, target in messages(content):
                    if source != target:
                        yield code, which["name"], target, source
                    if code == "de":
                        yield "en", which["name"], source, ""
                continue
            if kind == "man page":
                texts = man_page(gzip.decompress(content).decode("utf-8", "ignore"))
            else:
                texts = marked_up(content.decode("utf-8", "ignore"))
            for text in texts:
                yield code, which["name"], text, ""
    data.wait()


def pieces_of(code: str, lines: list[str], draw: random.Random) -> list[str]:
    """Pieces of lines, one each, that begin with a word."""
    pieces = set()
    for line in lines:
        starts = [start for start in word_starts(line) if start + CHARACTERS <= len(line)]
        start = draw.choice(starts)
        piece = line[start:start + CHARACTERS]
        if is_language(code, piece, ""):
            pieces.add(piece)
    pieces = sorted(pieces)
    draw.shuffle(pieces)
    return pieces[:MOST_TEST]


def word_starts(line: str) -> list[int]:
    return [0, *(one.end() for one in re.finditer(" ", line))]


def of_one_language(lines: dict[str, set[str]], pieces: dict[str, list[str]]) -> dict[str, list[str]]:
    """Pieces that no line of another language has, verbatim and from the beginning of a word."""
    languages = defaultdict(set)
    for code, own in pieces.items():
        for piece in own:
            languages[piece].add(code)
    for code, own in lines.items():
        for line in own:
            for start in word_starts(line):
                if (piece := line[start:start + CHARACTERS]) in languages:
                    languages[piece].add(code)
    return {code: [piece for piece in own if len(languages[piece]) == 1] for code, own in pieces.items()}


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
                if len(line) >= SHORTEST and is_language(code, line, source):
                    into[code].add(line)
    draw = random.Random(1)
    english = train["en"] | test["en"]
    pieces = {}
    for code in sorted(train):
        if code != "en":
            # Parts of a document that nobody has translated yet.
            train[code] -= english
            test[code] -= english
        if len(train[code]) >= FEWEST:
            pieces[code] = pieces_of(code, sorted(test[code] - train[code]), draw)
    lines = {code: train[code] | test[code] for code in pieces}
    unambiguous = of_one_language(lines, pieces)
    with open(folder / "train.tsv", "w") as to_train, open(folder / "test.tsv", "w") as to_test:
        for code, own in unambiguous.items():
            lines = sorted(train[code])
            draw.shuffle(lines)
            to_train.writelines(f"{code}\t{line}\n" for line in lines[:MOST_TRAIN])
            to_test.writelines(f"{code}\t{piece}\n" for piece in own)
            shared = len(pieces[code]) - len(own)
            print(f"{code}: {len(lines)} lines, {len(own)} held-out pieces, {shared} that others have too", flush=True)


if __name__ == "__main__":
    main()
