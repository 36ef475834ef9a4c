#!/usr/bin/env python3
"""Makes the libraries that a program is linked with in place of CUDA's, which it loads late (late.c).

    scripts/package/cuda/late.py FOLDER        # writes FOLDER/lib/libcuda.so and others

The names of functions are those that cudarc, of the version in Cargo.lock, declares. `CC` is another
compiler than `cc`. Needs Python 3.9 and Cargo, and no network once the sources are there.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# File, cudarc's module with its functions, and what brings it. The driver comes first.
LIBRARIES = [
    ("libcuda.so.1", "driver", "it is a part of NVIDIA's driver, which has to be installed"),
    ("libcublas.so.13", "cublas", "`pip install nvidia-cublas` brings it"),
    ("libcurand.so.10", "curand", "`pip install nvidia-curand nvidia-cuda-runtime` brings it"),
]
# What a program is linked with: the first has all functions, and the others none. Were a function of
# NVRTC, cuBLASLt, the runtime or Candle's own library called, no program could be linked.
LINKED = ["cuda", "nvrtc", "cublasLt", "cublas", "curand", "cudart", "moe"]
# Functions of late.c's own.
OWN = {"cuInit", "cuGetErrorName", "cuGetErrorString"}


def output(*command):
    return subprocess.run(command, cwd=HERE, check=True, capture_output=True, text=True).stdout


def cudarc():
    """The folder of cudarc's sources."""
    host = output("rustc", "-vV").split("host: ")[1].split()[0]
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", host,
               "--features", "taper-ops/cuda"]
    packages = json.loads(output(*command))["packages"]
    manifest = next(one["manifest_path"] for one in packages if one["name"] == "cudarc")
    return Path(manifest).parent


def functions(sources):
    """Names of the functions that cudarc's module declares."""
    text = (sources / "sys/mod.rs").read_text(encoding="utf-8")
    return sorted(set(re.findall(r"^\s+fn (cu\w+)\(", text, re.M)))


def included(sources):
    """The text of late.inc."""
    libraries, names, absent = [], [], []
    for file, module, brought in LIBRARIES:
        libraries.append(f'{{"{file}", "{brought}", {len(names)}}}')
        found = functions(sources / "src" / module)
        if not found:
            sys.exit(f"{sources}: no function of the module {module} is found")
        last = len(names) + len(found) - 1
        absent.append(f"[{len(names)} ... {last}] = absent_{module}")
        names += found
    return "\n".join([
        f"#define LIBRARIES {', '.join(libraries)}",
        f"#define COUNT {len(names)}",
        f"#define ABSENT {', '.join(absent)}",
        "#define NAMES " + ", ".join(f'"{name}"' for name in names),
        *(f"FUNCTION({name}, {at})" for at, name in enumerate(names) if name not in OWN),
    ]) + "\n"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    to = Path(sys.argv[1]).resolve() / "lib"
    to.mkdir(parents=True, exist_ok=True)
    (to / "late.inc").write_text(included(cudarc()), encoding="utf-8")
    compiler, built = os.environ.get("CC", "cc").split(), to / "late.o"
    subprocess.run([*compiler, "-c", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-I", to,
                    HERE / "late.c", "-o", built], check=True)
    # Scripts for the linker: one that is told to look for shared libraries takes no archive.
    for name in LINKED:
        script = f"INPUT({built})" if name == LINKED[0] else "/* No functions. */"
        (to / f"lib{name}.so").write_text(f"{script}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
