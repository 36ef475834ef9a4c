#!/usr/bin/env python3
"""Has the package sentencepiece divide text by models that Taper writes of its own tokenizers.

    scripts/check/sentence_pieces.py [TAPER]

A Unigram and two BPEs are trained on the bundled corpus. `taper tokenizer pieces` writes them as
models of SentencePiece, whose ids of all lines of the corpus and of lines in other scripts have to
be those of `taper tokenizer encode`. Tokenizers that cannot be expressed have to be refused. Lines
that begin with a space are left out: there SentencePiece adds another one.

Needs `pip install sentencepiece`.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import sentencepiece

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "data/everyday-en-zh"
MORE = [
    "I'm 3.14159% sure: <unk> a—b “q” … (x)", "café naïve Ünïcode ﬁne ①", "Привет, мир! Как дела?",
    "हिन्दी में लिखा", "عربي نص", "ไทย ภาษา", "한국어 문장", "ελληνικά", "עברית", "emoji 😀👍🏽!",
    "a<0x41>b </s> <pad>", "two  spaces   three", "tab\there\u00a0and\u3000there",
    "1234567890 x1y2z3", "ẞtraße",
]
WRITTEN = {
    "unigram": ["data.tokenizer.kind=unigram", "data.tokenizer.vocabulary_size=8000"],
    "bpe": ["data.tokenizer.vocabulary_size=8000"],
    "small-bpe": ["data.tokenizer.vocabulary_size=1500", "data.tokenizer.character_coverage=0.98"],
}
REFUSED = {
    "data.tokenizer.kind=char": "none that was trained here with",
    "data.tokenizer.kind=bytes": "none that was trained here with",
    "data.nfkc=true": "it normalises text",
    "data.tokenizer.byte_fallback=false": "one <unk> of several unknown characters",
}


def main():
    taper = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/release/taper").resolve()
    lines = [line for name in sorted(CORPUS.glob("t*.*")) if name.suffix in (".en", ".zh")
             for line in name.read_text().splitlines() if line and not line.startswith(" ")]
    lines += MORE
    text = "".join(f"{line}\n" for line in lines)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)

        def trained(name, settings):
            command = [taper, "tokenizer", "train", ROOT / "configs/quickstart.toml", "--output",
                       folder / name, "--set", f"data.dir={CORPUS}"]
            for setting in settings:
                command += ["--set", setting]
            subprocess.run(command, check=True, capture_output=True)
            command = [taper, "tokenizer", "pieces", folder / name, "-o", folder / f"{name}.model"]
            return subprocess.run(command, capture_output=True, text=True)

        for name, settings in WRITTEN.items():
            done = trained(name, settings)
            if done.returncode:
                sys.exit(done.stderr)
            theirs = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.model"))
            command = [taper, "tokenizer", "encode", folder / name]
            found = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
            ours = [[int(word) for word in row.split()] for row in found.stdout.split("\n")[:-1]]
            different = [line for line, ids in zip(lines, ours, strict=True)
                         if theirs.encode(line) != ids]
            print(f"{name}: {len(lines)} lines, {len(different)} different", *different[:5])
            failed += len(different)
        for number, (setting, reason) in enumerate(REFUSED.items()):
            done = trained(f"refused-{number}", [setting])
            if done.returncode != 2 or reason not in done.stderr:
                print(f"{setting}: {done.returncode} {done.stderr}")
                failed += 1
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
