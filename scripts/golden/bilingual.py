"""Writes files of sentence pairs as other programs do, with the pairs that those read of them.

Compressed files by Python's standard library; a translation memory, exchange files and a catalog by
the Translate Toolkit and polib. Small files for `crates/data/tests/golden/bilingual`.
"""

import bz2
import json
import lzma
import zipfile
from pathlib import Path

import polib
from translate.storage import tmx, xliff

FOLDER = Path("crates/data/tests/golden/bilingual")

PAIRS = [
    ("Open the file", "Öffnen Sie die Datei"),
    ("A <b>bold</b> word & more", "Ein <b>fettes</b> Wort & mehr"),
    ("\"Quotes\" and a tab\tinside", "„Anführung“ und ein Tab\tdarin"),
    ("Smile 🙂", "Lächeln 🙂"),
]


def archive(path: Path, method: int, texts: dict[str, str]) -> None:
    """Writes a ZIP archive whose bytes do not depend on the time."""
    with zipfile.ZipFile(path, "w", method) as file:
        for name, text in texts.items():
            member = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            member.compress_type = method
            file.writestr(member, text.encode())


def main() -> None:
    """Writes all files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    sources, targets = ("".join(text + "\n" for text in side) for side in zip(*PAIRS))
    # Two streams in one file, as `cat` makes.
    half = len(sources.encode()) // 2
    parts = [sources.encode()[:half], sources.encode()[half:]]
    (FOLDER / "packed.en.xz").write_bytes(b"".join(map(lzma.compress, parts)))
    (FOLDER / "packed.de.bz2").write_bytes(b"".join(map(bz2.compress, [targets.encode()])))
    moses = {"README": "about", "LICENSE": "terms", "Books.de-en.de": targets,
             "Books.de-en.en": sources, "Books.de-en.xml": "<x/>"}
    for name, method in [("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED),
                         ("bzip2", zipfile.ZIP_BZIP2)]:
        archive(FOLDER / f"{name}.zip", method, moses)
    rows = "".join(f"{source}\t{target}\n".replace("a tab\t", "a tab ").replace("Tab\t", "Tab ")
                   for source, target in PAIRS)
    archive(FOLDER / "table.tsv.zip", zipfile.ZIP_DEFLATED, {"table.tsv": rows})

    memory = tmx.tmxfile()
    for source, target in PAIRS:
        memory.addtranslation(source, "en", target, "de")
    text = bytes(memory)
    (FOLDER / "memory.tmx").write_bytes(text)
    wide = text.decode().replace("utf-8", "UTF-16").replace("UTF-8", "UTF-16")
    (FOLDER / "wide.tmx").write_bytes(wide.encode("utf-16"))

    exchange = xliff.xlifffile(sourcelanguage="en", targetlanguage="de")
    for source, target in PAIRS:
        unit = xliff.xliffunit(source)
        unit.target = target
        exchange.addunit(unit)
    (FOLDER / "exchange.xlf").write_bytes(bytes(exchange))

    catalog = polib.POFile(wrapwidth=30)
    catalog.metadata = {"Content-Type": "text/plain; charset=UTF-8", "Language": "de",
                        "Plural-Forms": "nplurals=2; plural=(n != 1);"}
    for source, target in PAIRS:
        catalog.append(polib.POEntry(msgid=source, msgstr=target))
    catalog.append(polib.POEntry(msgid="Not sure", msgstr="Unsicher", flags=["fuzzy"]))
    catalog.append(polib.POEntry(msgid="Old", msgstr="Alt", obsolete=True))
    catalog.append(polib.POEntry(msgid="New"))
    catalog.append(polib.POEntry(msgid="%d file", msgid_plural="%d files", msgctxt="count",
                                 msgstr_plural={0: "%d Datei", 1: "%d Dateien"}))
    catalog.save(FOLDER / "catalog.po")

    def line(text: str) -> str:
        return " ".join(text.split())

    def read(store: object) -> list[list[str]]:
        return [[line(unit.source), line(unit.target)] for unit in store.units]

    entries = polib.pofile(str(FOLDER / "catalog.po")).translated_entries()
    forms = [entry for entry in entries if entry.msgid_plural]
    expected = {
        "lines": [list(pair) for pair in PAIRS],
        "table.tsv.zip": [row.split("\t") for row in rows.splitlines()],
        "memory.tmx": read(tmx.tmxfile.parsefile(str(FOLDER / "memory.tmx"))),
        "exchange.xlf": read(xliff.xlifffile.parsefile(str(FOLDER / "exchange.xlf"))),
        "catalog.po": [[line(entry.msgid), line(entry.msgstr)] for entry in entries
                       if not entry.msgid_plural]
        + [[form.msgid, form.msgstr_plural[0]] for form in forms]
        + [[form.msgid_plural, form.msgstr_plural[1]] for form in forms],
    }
    text = json.dumps(expected, indent=1, ensure_ascii=False)
    (FOLDER / "expected.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
