#!/usr/bin/env python3
"""Draws the crates of the workspace, what each depends on and what it must not know.

    scripts/figures/house.py            writes docs/figures/house.svg
    scripts/figures/house.py --check    fails if the drawing is old, or a crate knows too much

Crates and arrows come from `cargo metadata`. The table `package.metadata.house` of a crate's
Cargo.toml says in words what it does not know, and lists under `never` the packages that it must
not depend on, directly or through another crate of the workspace.

Needs Python 3.11 and cargo.
"""

import argparse
import json
import subprocess
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DRAWING = ROOT / "docs/figures/house.svg"

WIDTH, MARGIN = 1080, 20
BOX, GAP, STOREY = (186, 62), 22, 122
STYLE = """
  svg { --ground: #ffffff; --box: #f3f5f9; --edge: #8a94a6; --ink: #1c2430; --faint: #566072; }
  @media (prefers-color-scheme: dark) {
    svg { --ground: #14181f; --box: #1f2530; --edge: #7d8798; --ink: #e8ecf2; --faint: #a9b3c3; }
  }
  .ground { fill: var(--ground); }
  rect.crate { fill: var(--box); stroke: var(--edge); }
  path { fill: none; stroke: var(--edge); stroke-width: 1.2; opacity: 0.75; }
  marker path { fill: var(--edge); stroke: none; opacity: 1; }
  text { font-family: system-ui, sans-serif; fill: var(--ink); text-anchor: middle; }
  .name { font-size: 15px; font-weight: 600; }
  .limit { font-size: 11.5px; fill: var(--faint); }
"""


def workspace():
    """The packages of the workspace by name, as `cargo metadata` describes them."""
    told = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version", "1"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )
    return {package["name"]: package for package in json.loads(told.stdout)["packages"]}


def dependencies(package):
    """Names of the packages that a package depends on, without those of its tests."""
    return {entry["name"] for entry in package["dependencies"] if entry["kind"] is None}


def below(name, arrows):
    """All crates that a crate reaches by arrows."""
    reached, rest = set(), [name]
    while rest:
        for under in arrows[rest.pop()] - reached:
            reached.add(under)
            rest.append(under)
    return reached


def storeys(arrows):
    """Crates by floor: each stands above all that it depends on."""
    floor = {}

    def of(name):
        if name not in floor:
            floor[name] = 1 + max((of(under) for under in arrows[name]), default=-1)
        return floor[name]

    for name in sorted(arrows):
        of(name)
    rows = [[] for _ in range(max(floor.values()) + 1)]
    for name, at in floor.items():
        rows[at].append(name)
    return rows


def ordered(rows, arrows):
    """Rows from the ground up, in which a crate stands near what it depends on."""
    place, result = {}, []
    for row in rows:
        def mean(name):
            under = [place[other] for other in arrows[name] if other in place]
            return (sum(under) / len(under) if under else 0.5, name)

        row = sorted(row, key=mean)
        for at, name in enumerate(row):
            place[name] = (at + 0.5) / len(row)
        result.append(row)
    return result


def draw(packages, arrows):
    """The drawing as SVG."""
    rows = ordered(storeys(arrows), arrows)
    height = MARGIN * 2 + STOREY * (len(rows) - 1) + BOX[1]
    at = {}
    for floor, row in enumerate(rows):
        wide = len(row) * BOX[0] + (len(row) - 1) * GAP
        for number, name in enumerate(row):
            left = (WIDTH - wide) / 2 + number * (BOX[0] + GAP)
            at[name] = (left, height - MARGIN - BOX[1] - floor * STOREY)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-labelledby="title">',
        '<title id="title">The crates of Taper: an arrow goes from a crate to what it depends on; '
        "below each name stands what the crate does not know.</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0,0L8,4L0,8z"/></marker></defs>',
        f'<rect class="ground" width="{WIDTH}" height="{height}"/>',
    ]
    for name in sorted(arrows):
        # An arrow that follows from two others is left out.
        through = set().union(*(below(under, arrows) for under in arrows[name]))
        for under in sorted(arrows[name] - through):
            (x, y), (to_x, to_y) = at[name], at[under]
            x, y, to_x = x + BOX[0] / 2, y + BOX[1], to_x + BOX[0] / 2
            bend = (to_y - y) / 2
            lines.append(
                f'<path d="M{x:.0f},{y:.0f}C{x:.0f},{y + bend:.0f} {to_x:.0f},{to_y - bend:.0f} '
                f'{to_x:.0f},{to_y - 2:.0f}" marker-end="url(#head)"/>'
            )
    for name, (x, y) in at.items():
        middle = x + BOX[0] / 2
        unknown = house(packages[name]).get("does-not-know", "")
        lines += [
            f'<rect class="crate" x="{x:.0f}" y="{y:.0f}" width="{BOX[0]}" height="{BOX[1]}" '
            'rx="7"/>',
            f'<text class="name" x="{middle:.0f}" y="{y + 26:.0f}">'
            f'{escape(name.removeprefix("taper-"))}</text>',
        ]
        if unknown:
            lines.append(
                f'<text class="limit" x="{middle:.0f}" y="{y + 46:.0f}">no {escape(unknown)}</text>'
            )
    return "\n".join([*lines, "</svg>", ""])


def house(package):
    """The table `package.metadata.house` of a crate; empty if there is none."""
    return (package["metadata"] or {}).get("house", {})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    check = parser.parse_args().check
    packages = workspace()
    arrows = {name: dependencies(package) & packages.keys() for name, package in packages.items()}
    faults = []
    for name, package in packages.items():
        for forbidden in house(package).get("never", []):
            knowing = [
                other for other in [name, *sorted(below(name, arrows))]
                if forbidden == other != name or forbidden in dependencies(packages[other])
            ]
            if knowing:
                by = "" if knowing[0] == name else f" by way of {knowing[0]}"
                faults.append(f"{name} must not know {forbidden}, and does{by}")
    drawing = draw(packages, arrows)
    if not check:
        DRAWING.write_text(drawing)
    elif DRAWING.read_text() != drawing:
        faults.append(f"{DRAWING.relative_to(ROOT)} is old: run scripts/figures/house.py")
    sys.exit("\n".join(faults) or 0)


if __name__ == "__main__":
    main()
