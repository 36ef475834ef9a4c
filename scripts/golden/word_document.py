"""Writes a document of Word as python-docx does, for `crates/documents/tests/golden/letter.docx`."""

from pathlib import Path

import docx

PATH = Path("crates/documents/tests/golden/letter.docx")


def main() -> None:
    """Writes the file."""
    document = docx.Document()
    document.add_heading("A letter", 0)
    paragraph = document.add_paragraph("Some text with ")
    paragraph.add_run("bold").bold = True
    paragraph.add_run(" words & ")
    paragraph.add_run("italic ones").italic = True
    paragraph.add_run(". Another ")
    paragraph.add_run("sentence.")
    paragraph = document.add_paragraph("before a tab\tand a break")
    paragraph.add_run().add_break()
    paragraph.add_run("behind it")
    table = document.add_table(1, 2)
    table.cell(0, 0).text = "left"
    table.cell(0, 1).text = "12"
    document.sections[0].header.paragraphs[0].text = "the header"
    PATH.parent.mkdir(parents=True, exist_ok=True)
    document.save(str(PATH))


if __name__ == "__main__":
    main()
