#!/usr/bin/env python3
"""Makes a wheel of what Cargo has built: the package for Python, which has the program too.

    scripts/package/wheel.py --built target/release --to dist [--cuda]

The wheel holds `taper/` (the sources in crates/python/python and the extension) and a script, which
pip puts into the environment's `bin` as `taper`: it calls the program in the extension, so that the
wheel has each function once. It is for CPython 3.9 and later, and for Linux as old as the symbols
allow that the extension asks of the C library (PEP 600): printed, with the size. With --cuda it is
the wheel `taper-cuda13`, which brings CUDA's libraries as NVIDIA's packages; the extension loads
them late (scripts/package/cuda), so that it runs without them.

Needs Python 3.9, and on Linux readelf.
"""

import argparse
import base64
import hashlib
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "crates/python"

# The name of the wheel for NVIDIA's GPUs.
CUDA = "taper-cuda13"

# Libraries that PEP 600 lets a wheel ask of any Linux.
EVERYWHERE = re.compile(r"lib(c|m|dl|rt|pthread|gcc_s|util|resolv)\.so\.\d+|ld-linux.*\.so\.\d+")

# Libraries of the driver and of NVIDIA's packages.
OF_CUDA = re.compile(r"lib(cuda|cudart|cublas|cublasLt|curand|nvrtc)\.so\.\d+")
# What brings them; the driver is the system's. cuBLAS brings NVRTC, which it needs. cuRAND does not
# bring the runtime, which it needs.
NVIDIA = ["nvidia-cublas>=13.0,<14", "nvidia-curand>=10.4,<11", "nvidia-cuda-runtime>=13.0,<14"]


def read_elf(path, *options):
    return subprocess.run(["readelf", *options, path], check=True, capture_output=True,
                          text=True).stdout


def platform_tag(binaries, cuda=False):
    """The oldest platform that loads all binaries; with `cuda`, without CUDA's libraries."""
    if sys.platform != "linux":
        return re.sub(r"[-.]", "_", sysconfig.get_platform())
    machine, floor, others = "", (2, 17), set()
    for path in binaries:
        header = read_elf(path, "-h")
        machine = "aarch64" if "AArch64" in header else "x86_64"
        dynamic = read_elf(path, "-d")
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
        others |= {name for name in needed if not EVERYWHERE.fullmatch(name)}
        for version in re.findall(r"GLIBC_(\d+)\.(\d+)", read_elf(path, "-V")):
            floor = max(floor, (int(version[0]), int(version[1])))
    if cuda and any(OF_CUDA.fullmatch(name) for name in others):
        sys.exit(f"the extension is not loaded without {', '.join(sorted(others))}: build it with "
                 "scripts/package/wheel.sh --cuda, so that it loads them when it needs them")
    if others:
        print(f"for this machine alone, since it needs {', '.join(sorted(others))}")
        return f"linux_{machine}"
    return f"manylinux_{floor[0]}_{floor[1]}_{machine}"


def workspace_version():
    text = (ROOT / "Cargo.toml").read_text(encoding="utf-8")
    return re.search(r'^version = "(.*)"', text, re.M).group(1)


def metadata(version, cuda):
    readme = (PACKAGE / "README.md").read_text(encoding="utf-8")
    summary = "Train Transformers and use them: the program taper, and a package for Python"
    needs = ["numpy>=1.21"]
    if cuda:
        readme = readme.replace("pip install taper\n", f"pip install {CUDA}\n")
        readme += ("\nThis is the build for NVIDIA's GPUs, with drivers from version 580 on. It "
                   "takes the place of the package\n`taper`: install one of the two.\n")
        summary += ", on NVIDIA's GPUs"
        needs += NVIDIA
    fields = [
        ("Metadata-Version", "2.4"),
        ("Name", CUDA if cuda else "taper"),
        ("Version", version),
        ("Summary", summary),
        ("License-Expression", "MIT"),
        ("License-File", "LICENSE-MIT"),
        ("Requires-Python", ">=3.9"),
        *(("Requires-Dist", need) for need in needs),
        ("Description-Content-Type", "text/markdown"),
    ]
    return "".join(f"{key}: {value}\n" for key, value in fields) + "\n" + readme


class Wheel:
    """A wheel that is being written: files with the same times, whatever the day."""

    def __init__(self, path, name):
        self.archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self.info, self.record = f"{name}.dist-info", []

    def add(self, name, content, executable=False):
        entry = zipfile.ZipInfo(name)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (0o100755 if executable else 0o100644) << 16
        self.archive.writestr(entry, content, compresslevel=9)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(content)}\n")

    def close(self):
        record = f"{self.info}/RECORD"
        self.record.append(f"{record},,\n")
        self.archive.writestr(zipfile.ZipInfo(record), "".join(self.record))
        self.archive.close()


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--built", type=Path, default=ROOT / "target/release")
    arguments.add_argument("--to", type=Path, default=ROOT / "dist")
    arguments.add_argument("--share", type=Path, help="a folder that is installed as share/")
    arguments.add_argument("--cuda", action="store_true", help="the wheel for NVIDIA's GPUs")
    given = arguments.parse_args()
    library = {"darwin": "lib_native.dylib"}.get(sys.platform, "lib_native.so")
    extension = given.built / library
    version, tag = workspace_version(), f"cp39-abi3-{platform_tag([extension], given.cuda)}"
    name = f"{CUDA.replace('-', '_') if given.cuda else 'taper'}-{version}"
    given.to.mkdir(parents=True, exist_ok=True)
    path = given.to / f"{name}-{tag}.whl"
    wheel = Wheel(path, name)
    for source in sorted((PACKAGE / "python/taper").iterdir()):
        if source.suffix in (".py", ".pyi") or source.name == "py.typed":
            wheel.add(f"taper/{source.name}", source.read_bytes())
    wheel.add("taper/_native.abi3.so", extension.read_bytes(), executable=True)
    script = (PACKAGE / "python/program.py").read_bytes()
    wheel.add(f"{name}.data/scripts/taper", script, executable=True)
    for source in sorted(given.share.rglob("*")) if given.share else []:
        if source.is_file():
            to = source.relative_to(given.share).as_posix()
            wheel.add(f"{name}.data/data/share/{to}", source.read_bytes())
    wheel.add(f"{wheel.info}/licenses/LICENSE-MIT", (ROOT / "LICENSE-MIT").read_bytes())
    wheel.add(f"{wheel.info}/METADATA", metadata(version, given.cuda).encode())
    about = f"Wheel-Version: 1.0\nGenerator: taper\nRoot-Is-Purelib: false\nTag: {tag}\n"
    wheel.add(f"{wheel.info}/WHEEL", about.encode())
    wheel.close()
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
