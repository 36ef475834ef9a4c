#!/usr/bin/env bash
# Packs the crates for crates.io, in the order of their dependencies, and checks what is packed.
#
#   scripts/package/crates.sh                            # packs, compiles nothing
#   scripts/package/crates.sh package                    # compiles each package, from its files alone
#   scripts/package/crates.sh publish --dry-run          # any command and options of Cargo's
#
# Works on a copy, in which the crates may be published, and the program has the files of its
# quickstart beside it.
set -euo pipefail
cd "$(dirname "$0")/../.."

[ $# -gt 0 ] || set -- package --no-verify --offline --quiet
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
git ls-files --cached --others --exclude-standard -z | tar --null -T - -cf - | tar -C "$folder" -xf -
sed -i.before 's/^publish = false$/publish = true/' "$folder/Cargo.toml"
rm "$folder/Cargo.toml.before"
mkdir "$folder/crates/cli/bundled"
cp -r --parents configs/quickstart.toml data/everyday-en-zh "$folder/crates/cli/bundled/"

# Crates that tests and fuzzers need, and the extension for Python, are no libraries for others.
cd "$folder"
CARGO_TARGET_DIR=$folder/target cargo "$@" --workspace --exclude taper-hostile \
  --exclude taper-fuzz --exclude taper-python --allow-dirty

python3 - target/package/*.crate <<'CHECK'
import sys, tarfile, tomllib
LARGEST = 10 << 20  # of crates.io
for path in sys.argv[1:]:
    with tarfile.open(path) as crate:
        names = {name.partition("/")[2]: name for name in crate.getnames()}
        read = lambda name: crate.extractfile(names[name]).read().decode()
        package = tomllib.loads(read("Cargo.toml"))
        problems = [f"{name} is missing" for name in ("README.md", "LICENSE-MIT") if name not in names]
        about = package["package"]
        problems += [f"no {key}" for key in ("description", "keywords", "categories") if not about.get(key)]
        problems += [f"{name} is a path" for table in ("dependencies", "dev-dependencies")
                     for name, value in package.get(table, {}).items() if "path" in value]
        size = sum(member.size for member in crate.getmembers())
        if size > LARGEST:
            problems.append(f"{size} bytes, more than crates.io takes")
        if problems:
            sys.exit(f"{path}: {'; '.join(problems)}")
        print(f"{about['name']:18} {len(names):4} files {size / 1e3:7.0f} kB")
CHECK
