#!/usr/bin/env bash
# The package for Python: built as a wheel, installed into a new environment, its types checked, and its
# tests, the code of docs/python.md and the notebook docs/python.ipynb run.
#
#   scripts/check/python.sh [OPTIONS OF CARGO'S]
#
# CI gives the options of its own build, so that only the extension is compiled. Needs the network.
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cargo build --release -p taper-python "$@"
python3 scripts/package/wheel.py --to "$folder/dist"
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "$folder"/dist/*.whl mypy pytest sacrebleu==2.6.0 \
  nbclient==0.10.2 ipykernel matplotlib

# Away from the sources, so that what is installed is tested.
cd crates/python
"$folder/venv/bin/python" -c 'import taper; print("taper", taper.__version__)'
"$folder/venv/bin/mypy" --cache-dir "$folder/mypy" --config-file pyproject.toml
"$folder/venv/bin/python" -m pytest -q -p no:cacheprovider
cd ../..
"$folder/venv/bin/python" scripts/check/python_page.py docs/python.md
"$folder/venv/bin/python" scripts/check/notebook.py docs/python.ipynb
