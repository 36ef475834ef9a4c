"""Makes pictures.json.gz: PNG and JPEG files, what Pillow makes of them, and what image processors of Transformers do.

`decoded` has small files of every mode with their pixels as Pillow turns (`exif_transpose`) and converts them, to RGB and to
L. `resized` has the pixels of an odd picture after the resizing and cropping of Transformers' processors that use Pillow,
for each kind of resampling. `whole` has JPEG files that are cut, padded or damaged, and whether Pillow takes them. Bytes are
in hexadecimal; pixels go row by row with their channels side by side.
"""

import argparse
import gzip
import io
import json
import struct
import zlib
from importlib.metadata import version
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

ORIENTATION = 0x0112
XMP = (
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    b'<rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="6"/></rdf:RDF></x:xmpmeta>'
)


def text(values: bytes) -> str:
    return values.hex()


def colours(height: int, width: int) -> np.ndarray:
    """Gradients with noise on them."""
    y, x = np.mgrid[:height, :width]
    noise = np.random.default_rng(height * width).integers(0, 60, (height, width, 3))
    ramp = np.stack([x * 255 // width, y * 255 // height, (x * 7 + y * 3) % 256], axis=-1)
    return ((ramp * 195) // 255 + noise).astype(np.uint8)


def smooth(height: int, width: int) -> np.ndarray:
    """What JPEG decoders agree on but for rounding."""
    y, x = np.mgrid[:height, :width]
    return np.stack([x * 255 // width, y * 255 // height, (x + y) * 255 // (width + height)], axis=-1).astype(np.uint8)


def encoded(image: Image.Image, kind: str, **settings) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **settings)
    return out.getvalue()


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_of_16_bits(values: np.ndarray) -> bytes:
    """Pillow writes no colours of 16 bits."""
    height, width, channels = values.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = struct.pack(">IIBBBBB", width, height, 16, {3: 2, 4: 6}[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def oriented(number: int, byte_order: str) -> bytes:
    exif = Image.Exif()
    exif[ORIENTATION] = number
    exif.endian = byte_order
    return exif.tobytes()


def decoded() -> list[dict]:
    rgb = Image.fromarray(colours(5, 7))
    even = Image.fromarray(smooth(24, 40))
    alpha = Image.fromarray(np.random.default_rng(1).integers(0, 256, (5, 7), dtype=np.uint8))
    rgba = rgb.copy()
    rgba.putalpha(alpha)
    grey_alpha = rgb.convert("L").convert("LA")
    grey_alpha.putalpha(alpha)
    palette = rgb.quantize(11)
    inverted = Image.fromarray(smooth(24, 40)).convert("CMYK")
    files = {
        "rgb.png": encoded(rgb, "PNG"),
        "rgba.png": encoded(rgba, "PNG"),
        "grey.png": encoded(rgb.convert("L"), "PNG"),
        "grey-alpha.png": encoded(grey_alpha, "PNG"),
        "palette.png": encoded(palette, "PNG"),
        "palette-transparent.png": encoded(palette, "PNG", transparency=bytes(range(0, 220, 20))),
        "one-bit.png": encoded(rgb.convert("1"), "PNG"),
        "rgb-16.png": png_of_16_bits(np.random.default_rng(2).integers(0, 65536, (5, 7, 3))),
        "rgba-16.png": png_of_16_bits(np.random.default_rng(3).integers(0, 65536, (5, 7, 4))),
        "colours.jpg": encoded(even, "JPEG", quality=95, subsampling=0),
        "halved.jpg": encoded(even, "JPEG", quality=95, subsampling=2),
        "progressive.jpg": encoded(even, "JPEG", quality=95, progressive=True),
        "grey.jpg": encoded(even.convert("L"), "JPEG", quality=95),
        "cmyk.jpg": encoded(inverted, "JPEG", quality=95),
        "untransformed.jpg": encoded(even, "JPEG", quality=95, keep_rgb=True),
    }
    for number in range(1, 9):
        exif = oriented(number, "<" if number % 2 else ">")
        files[f"turned-{number}.png"] = encoded(rgb, "PNG", exif=exif)
        files[f"turned-{number}.jpg"] = encoded(even, "JPEG", quality=95, exif=exif)
    files["by-xmp.jpg"] = encoded(even, "JPEG", quality=95, xmp=XMP)
    files["no-orientation.jpg"] = encoded(even, "JPEG", quality=95, exif=oriented(9, "<"))
    # Data that end before their mark: libjpeg goes on with zeros, and leaves what follows grey.
    kinds = {"whole": {"subsampling": 0}, "halved": {"subsampling": 2}, "restarts": {"restart_marker_blocks": 3}}
    for name, settings in kinds.items():
        file = encoded(Image.fromarray(colours(40, 56)), "JPEG", quality=90, **settings)
        scan = file.index(b"\xff\xda") + 16
        for part in (2, 5, 8, 11, 14):
            cut = file[:scan + (len(file) - scan) * part // 16] + b"\xff\xd9"
            # Some are cut within a header.
            files |= {f"cut-{name}-{part}.jpg": cut} if is_taken(cut) else {}
    # The chunk may follow the pixels.
    plain = encoded(rgb, "PNG")
    files["late.png"] = plain[:-12] + chunk(b"eXIf", oriented(3, ">")[6:]) + plain[-12:]
    cases = []
    for name, file in files.items():
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(file)))
        coloured, grey = image.convert("RGB"), (image if image.mode != "CMYK" else image.convert("RGB")).convert("L")
        cases.append({
            "name": name, "file": text(file), "height": image.height, "width": image.width,
            "rgb": text(coloured.tobytes()), "grey": text(grey.tobytes()),
        })
    return cases


def resized() -> dict:
    file = encoded(Image.fromarray(colours(37, 23)), "PNG")
    image = Image.open(io.BytesIO(file))
    square, crop = {"height": 16, "width": 16}, {"height": 16, "width": 16}
    settings = [
        ("stretch", [], {"size": square}),
        ("stretch", [19, 45], {"size": {"height": 19, "width": 45}, "do_center_crop": True}),
        ("shortest-edge", [18], {"size": {"shortest_edge": 18}, "do_center_crop": True}),
        ("shortest-edge", [18, 25], {"size": {"shortest_edge": 18, "longest_edge": 25}, "do_center_crop": True}),
        ("shortest-edge", [31], {"size": {"shortest_edge": 31}, "do_center_crop": True}),
        ("fit", [30, 11], {"size": {"max_height": 30, "max_width": 11}, "do_center_crop": True}),
        ("none", [], {"do_resize": False, "do_center_crop": True}),
    ]
    cases = []
    for number, resample in enumerate(["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"]):
        for resize, to, keys in settings:
            processor = ViTImageProcessorPil(
                resample=number, do_rescale=False, do_normalize=False, crop_size=crop, **keys
            )
            pixels = processor(image, return_tensors="np")["pixel_values"][0].astype(np.uint8)
            assert pixels.shape == (3, 16, 16)
            cases.append({
                "resize": resize, "resize_to": to, "resample": resample,
                "center_crop": "do_center_crop" in keys, "planes": text(pixels.tobytes()),
            })
    return {"file": text(file), "size": 16, "cases": cases}


def is_taken(file: bytes) -> bool:
    try:
        Image.open(io.BytesIO(file)).load()
    except OSError:
        return False
    return True


def whole() -> list[dict]:
    image = Image.fromarray(smooth(40, 56))
    cases = []
    for name, settings in {
        "baseline": {}, "progressive": {"progressive": True}, "restarts": {"restart_marker_blocks": 2},
        "progressive-restarts": {"progressive": True, "restart_marker_blocks": 3},
        "grey": {}, "cmyk": {}, "thumbnail": {"exif": b"Exif\0\0II*\0\x08\0\0\0\0\0" + b"\xff\xd8\xff\xd9" * 3},
    }.items():
        mode = {"grey": "L", "cmyk": "CMYK"}.get(name, "RGB")
        file = encoded(image.convert(mode), "JPEG", **settings)
        forms = {
            "whole": file,
            "without end": file[:-2],
            "half an end": file[:-1],
            "behind its end": file + b"more \xff\xd8 bytes",
            "filled": file[:-2] + b"\xff\xff\xff\xd9",
            "noise before its end": file[:-2] + b"abc\xff\xd9",
        }
        cases += [
            {"name": f"{name}, {form}", "file": text(changed), "taken": is_taken(changed)}
            for form, changed in forms.items()
        ]
        assert not any(is_taken(file[: len(file) * part // 20]) for part in range(20)), name
    return cases


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", type=Path, default=Path("crates/data/tests/golden/pictures.json.gz"))
    path = arguments.parse_args().out
    golden = {
        "made_by": f"Pillow {version('pillow')}, Transformers {version('transformers')}",
        "decoded": decoded(), "resized": resized(), "whole": whole(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as out, gzip.GzipFile("", "wb", 9, out, mtime=0) as file:
        file.write(json.dumps(golden).encode())
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
