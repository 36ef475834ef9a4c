#!/usr/bin/env python3
"""Has the library huggingface_hub exchange folders with Taper through the server of the tests.

    scripts/check/hub.py [LOCAL_HUB] [--python PYTHON]

What the library uploads, Taper downloads, and the other way about, byte by byte: so the server
speaks the hub's API as the library knows it. Files are small, large, in parts, empty and in folders.

LOCAL_HUB is the example of the crate taper-hub, by default target/release/examples/local_hub, which
`cargo test` builds. PYTHON has huggingface_hub already; without it the package is installed from
PyPI into a virtual environment that is made for the check.

Needs Python 3.11.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCAL_HUB = ROOT / "target/release/examples/local_hub"
PACKAGE = "huggingface_hub==2.4.0"


def contents(large):
    """Bytes of files by their paths."""
    patterned = lambda count, seed: bytes((at * at // 7 + seed) % 256 for at in range(count))
    return {
        "README.md": b"---\nlicense: mit\n---\n",
        "config.json": b"{}\n",
        "empty.txt": b"",
        "model.safetensors": patterned(5 * large + 17, 2),
        "onnx/encoder model.onnx": patterned(large, 3),
    }


def write(folder, files):
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


def read(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files
            if not path.relative_to(folder).parts[0].startswith(".")}


def exchange(local_hub, endpoint, large, folder):
    """Uploads and downloads in both directions; the library is at one end."""
    from huggingface_hub import HfApi, snapshot_download

    files = contents(int(large))
    api = HfApi(endpoint=endpoint, token="hf_test")
    write(folder / "theirs", files)
    api.create_repo("library/model", exist_ok=True)
    api.upload_folder(repo_id="library/model", folder_path=folder / "theirs")
    subprocess.run([local_hub, "pull", endpoint, "library/model", folder / "pulled"], check=True)
    write(folder / "ours", files)
    subprocess.run([local_hub, "push", endpoint, folder / "ours", "taper/model"], check=True)
    snapshot_download("taper/model", local_dir=folder / "downloaded", endpoint=endpoint, token=False)
    for name in ("pulled", "downloaded"):
        found = read(folder / name)
        if found != files:
            wrong = [path for path in files | found if found.get(path) != files.get(path)]
            sys.exit(f"FAIL {name}: {', '.join(wrong)}")
        print(f"ok   {name}: {len(files)} files")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("local_hub", nargs="?", default=LOCAL_HUB, type=Path)
    parser.add_argument("--python", type=Path)
    parser.add_argument("--exchange", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    local_hub = arguments.local_hub.resolve()
    if arguments.exchange:
        endpoint, large, folder = arguments.exchange
        return exchange(local_hub, endpoint, large, Path(folder))
    with tempfile.TemporaryDirectory() as made:
        python = arguments.python
        if python is None:
            python = Path(made) / "venv/bin/python"
            subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", PACKAGE], check=True)
        server = subprocess.Popen([local_hub, "serve"], text=True, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE)
        try:
            endpoint, large = server.stdout.readline().split()
            # The server stores large files by Git LFS alone.
            environment = {**os.environ, "HF_HUB_DISABLE_XET": "1", "HF_HOME": f"{made}/home",
                           "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
            command = [python, __file__, local_hub, "--exchange", endpoint, large, made]
            done = subprocess.run(command, env=environment)
        finally:
            server.communicate()
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
