#!/usr/bin/env python3
"""Has Taper divide text in many scripts by models of SentencePiece, as their own package does.

    scripts/check/many_scripts.py TEXT [TAPER] [--lines N]

TEXT has a language, a tab and a line in each line, as `scripts/corpus/languages.py` writes it. Models
of both kinds, with bytes for unknown characters and without, are trained by the package on some of
the lines and put into folders of MarianMT with weights at random, which Taper imports; the ids of N
other lines (default: 100,000) have to be those of the package under the folder's vocabulary.

Needs `pip install sentencepiece torch transformers==5.24.0`.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import unicodedata
from collections import Counter
from pathlib import Path

import sentencepiece
import transformers

ROOT = Path(__file__).resolve().parents[2]
TRAINED = 60_000


def script(line):
    """Script of most letters of a line, by the first word of their names."""
    letters = Counter(unicodedata.name(one, "?").split()[0] for one in line if one.isalpha())
    return letters.most_common(1)[0][0] if letters else "none"


def folder_of(path, lines, kind, has_bytes):
    """A MarianMT whose languages are cut by one model, which is returned."""
    path.mkdir()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(path / "model"), model_type=kind,
        vocab_size=16_000, character_coverage=0.9995, byte_fallback=has_bytes, num_threads=2,
        minloglevel=2)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(path / "model.model"))
    for name in ("source.spm", "target.spm"):
        (path / name).write_bytes((path / "model.model").read_bytes())
    words = [pieces.id_to_piece(at) for at in range(pieces.vocab_size())]
    ids = {word: at for at, word in enumerate(dict.fromkeys(["</s>", "<unk>", *words, "<pad>"]))}
    (path / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False))
    names = [str(path / name) for name in ("source.spm", "target.spm", "vocab.json")]
    tokenizer = transformers.MarianTokenizer(*names, source_lang="xx", target_lang="yy")
    pad = ids["<pad>"]
    config = transformers.MarianConfig(
        vocab_size=len(ids), d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=1,
        decoder_attention_heads=1, encoder_ffn_dim=8, decoder_ffn_dim=8, max_position_embeddings=64,
        pad_token_id=pad, eos_token_id=0, decoder_start_token_id=pad, forced_eos_token_id=0)
    transformers.MarianMTModel(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return pieces, ids


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("text", type=Path)
    arguments.add_argument("taper", nargs="?", type=Path, default=ROOT / "target/release/taper")
    arguments.add_argument("--lines", type=int, default=100_000)
    given = arguments.parse_args()
    all_lines = [line.split("\t", 1)[1] for line in given.text.read_text().split("\n") if "\t" in line]
    # The package adds no second space before a line that begins with one.
    all_lines = [line for line in all_lines if not line[:1].isspace()]
    random.Random(1).shuffle(all_lines)
    trained, lines = all_lines[:TRAINED], all_lines[TRAINED:TRAINED + given.lines]
    scripts = Counter(map(script, lines))
    used = [name for name, count in scripts.most_common() if count >= 100]
    print(f"{len(lines)} lines in {len(used)} scripts of 100 and more: {', '.join(used)}")
    failed = len(lines) < given.lines
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("unigram", "bpe"):
            for has_bytes in (True, False):
                path = Path(folder) / f"{kind}-{has_bytes}"
                pieces, ids = folder_of(path, trained, kind, has_bytes)
                run = path / "run"
                subprocess.run([given.taper, "import", path, run], check=True, capture_output=True)
                done = subprocess.run(
                    [given.taper, "tokenizer", "encode", run, "--special-tokens", "text"], text=True,
                    input="".join(f"{line}\n" for line in lines), capture_output=True, check=True)
                ours = [list(map(int, row.split())) for row in done.stdout.split("\n")[:-1]]
                unknown = ids["<unk>"]
                theirs = ([ids.get(piece, unknown) for piece in row]
                          for row in pieces.encode(lines, out_type=str))
                different = [line for line, a, b in zip(lines, ours, theirs, strict=True) if a != b]
                print(f"{kind}, bytes {has_bytes}: {len(different)} different", *different[:5])
                failed |= bool(different)
    sys.exit(failed)


if __name__ == "__main__":
    main()
