#!/usr/bin/env python3
"""Writes one test image of each class of Fashion-MNIST as a PNG file, for `taper predict`.

    scripts/convert/idx_pictures.py [FOLDER]

The first of each class in data/fashion-mnist (scripts/fetch/fashion_mnist.sh), as
FOLDER/CLASS.png; FOLDER is data/fashion-mnist/pictures unless it is given.

Needs Python 3.11, and nothing else.
"""

import gzip
import struct
import sys
import tomllib
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA, RECIPE = ROOT / "data/fashion-mnist", ROOT / "configs/images/fashion-mnist.toml"


def png(pixels: bytes, width: int, height: int) -> bytes:
    """A grey picture of 8 bits."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    # Each row begins with 0, no filter.
    rows = b"".join(b"\0" + pixels[row * width:(row + 1) * width] for row in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    names = tomllib.loads(RECIPE.read_text())["data"]["images"]["labels"]
    images = gzip.open(DATA / "t10k-images-idx3-ubyte.gz").read()
    labels = gzip.open(DATA / "t10k-labels-idx1-ubyte.gz").read()[8:]
    height, width = struct.unpack(">II", images[8:16])
    for label, name in enumerate(names):
        start = 16 + labels.index(label) * height * width
        (folder / f"{name}.png").write_bytes(png(images[start:start + height * width], width, height))
    print(folder)


if __name__ == "__main__":
    main()
