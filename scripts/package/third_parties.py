#!/usr/bin/env python3
"""Writes what the program is built from: THIRD-PARTY.md, licences and their texts, and sbom.cdx.json.

    scripts/package/third_parties.py --to FOLDER [--features full] [--target TRIPLE]

The crates are those that Cargo resolves for the program on this platform, or the target, without
tests and build scripts' own; the second file is a CycloneDX 1.5 bill of materials. Needs Python
3.11 and Cargo.
"""

import argparse
import json
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LICENCE = re.compile(r"(?i)^(licen[sc]e|copying|notice|unlicense|copyright)")


def crates(features, target):
    """The crates that are compiled into the program, by name and version."""
    target = target or re.search(r"^host: (.*)$", output("rustc", "-vV"), re.M)[1]
    command = ["cargo", "metadata", "--format-version", "1", "--locked",
               "--filter-platform", target]
    found = json.loads(output(*command, "--manifest-path", "crates/cli/Cargo.toml",
                              "--features", features))
    packages = {package["id"]: package for package in found["packages"]}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    # From the program along the arrows that are no tests' and no build scripts'.
    program = next(one for one, package in packages.items()
                   if package["name"] == "taper" and package["source"] is None)
    linked, waiting = set(), [program]
    while waiting:
        one = waiting.pop()
        # Macros run when it is compiled, and are no part of it.
        is_macro = any("proc-macro" in target["kind"] for target in packages[one]["targets"])
        if one not in linked and not is_macro:
            linked.add(one)
            waiting += [edge["pkg"] for edge in nodes[one]["deps"]
                        if any(kind["kind"] is None for kind in edge["dep_kinds"])]
    return sorted((packages[one] for one in linked if packages[one]["source"]),
                  key=lambda package: (package["name"], package["version"]))


def output(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def texts(package):
    """The texts of a crate's licences, as its authors ship them."""
    folder = Path(package["manifest_path"]).parent
    files = sorted(path for path in folder.iterdir() if LICENCE.match(path.name) and path.is_file())
    return [path.read_text(encoding="utf-8", errors="replace").strip() for path in files]


def notices(packages):
    """The page of licences; a text that many crates share is there once."""
    lines = ["# What Taper is built from", "", "| crate | version | licence |", "|---|---|---|"]
    shared = {}
    for package in packages:
        licence = package["license"] or "see its text"
        lines.append(f"| {package['name']} | {package['version']} | {licence} |")
        for text in texts(package):
            shared.setdefault(text, []).append(f"{package['name']} {package['version']}")
    for text, names in shared.items():
        lines += ["", f"## {', '.join(names)}", "", "```text", text.replace("```", "'''"), "```"]
    return "\n".join(lines) + "\n"


def bill(packages, version):
    """The bill of materials."""
    def component(package):
        name, version = package["name"], package["version"]
        about = {"type": "library", "name": name, "version": version,
                 "purl": f"pkg:cargo/{name}@{version}", "bom-ref": f"{name}@{version}"}
        if package["license"]:
            about["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
        return about
    program = {"type": "application", "name": "taper", "version": version, "bom-ref": "taper",
               "licenses": [{"license": {"id": "MIT"}}]}
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
            "metadata": {"component": program}, "components": [*map(component, packages)]}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--to", type=Path, required=True)
    arguments.add_argument("--features", default="full")
    arguments.add_argument("--target", help="the triple; this machine's if none is named")
    given = arguments.parse_args()
    packages = crates(given.features, given.target)
    version = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
    given.to.mkdir(parents=True, exist_ok=True)
    (given.to / "THIRD-PARTY.md").write_text(notices(packages), encoding="utf-8")
    text = json.dumps(bill(packages, version), indent=1) + "\n"
    (given.to / "sbom.cdx.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
