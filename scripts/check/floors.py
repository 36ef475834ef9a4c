#!/usr/bin/env python3
"""Finds circles between the source files of each crate: files that name each other.

    scripts/check/floors.py [--list]      (--list: prints the files of each circle)

A file depends on another if a `use` line or a path of its code (`crate::…`, `super::…`) names the
module of that file, or an item of it that a parent re-exports. A module and its own children may
name each other: they are one room. Tests within files are left out.

ALLOWED tells how many files of each crate stand in circles. The numbers may fall and not grow.

Needs Python 3.11 and nothing else.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

USE = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?use\s+((?:crate|super|self)[^;]*);", re.M | re.S)
PATH = re.compile(r"\b((?:crate|super)(?:::\w+)+)")
REEXPORT = re.compile(r"^\s*pub(?:\([^)]*\))?\s+use\s+((?!crate|super)(?:self::)?\w+::[^;]*);",
                      re.M | re.S)
ALLOWED: dict[str, int] = {}

COMMENT = re.compile(r"//.*$", re.M)


def without_tests(text):
    """The code of a file, without comments and the modules of tests at its end."""
    text = COMMENT.sub("", text)
    begins = re.search(r"^#\[cfg\((?:all\()?test\b", text, re.M)
    while begins:
        at = text.find("{", begins.end())
        semicolon = text.find(";", begins.end())
        if semicolon != -1 and (at == -1 or semicolon < at):
            end = semicolon + 1
        else:
            depth, end = 0, at
            for end in range(at, len(text)):
                depth += {"{": 1, "}": -1}.get(text[end], 0)
                if depth == 0:
                    break
            end += 1
        text = text[:begins.start()] + text[end:]
        begins = re.search(r"^#\[cfg\((?:all\()?test\b", text, re.M)
    return text


def expand(path):
    """The paths of a `use` tree, such as a::{b, c::d}, each as a tuple of names."""
    path = path.strip()
    brace = path.find("{")
    if brace == -1:
        return [tuple(name.strip() for name in path.split(" as ")[0].split("::"))]
    head = tuple(name for name in path[:brace].strip().split("::") if name)
    parts, depth, begun = [], 0, brace + 1
    for at in range(brace, len(path)):
        depth += {"{": 1, "}": -1}.get(path[at], 0)
        if (path[at] == "," and depth == 1) or depth == 0:
            parts.append(path[begun:at])
            begun = at + 1
            if depth == 0:
                break
    return [head + tail for part in parts if part.strip() for tail in expand(part)]


class Crate:
    """The modules of a crate by their paths, and which names the files of which."""

    def __init__(self, root):
        self.files = {}
        for file in sorted(root.rglob("*.rs")):
            names = file.relative_to(root).with_suffix("").parts
            if names[-1] in ("mod", "lib", "main"):
                names = names[:-1]
            if "tests" not in names:
                self.files[names] = file
        self.text = {names: without_tests(file.read_text()) for names, file in self.files.items()}
        self.handed_on = {names: self.reexports(names) for names in self.files}

    def reexports(self, names):
        """What a module hands on of its children, by name."""
        handed = {}
        for match in REEXPORT.finditer(self.text[names]):
            for path in expand(match[1].removeprefix("self::")):
                if names + path[:1] in self.files:
                    handed[path[-1]] = path
        return handed

    def home(self, path, depth=0):
        """The module that defines what a path from the root of the crate names."""
        module = ()
        for at, name in enumerate(path):
            if module + (name,) in self.files:
                module += (name,)
                continue
            handed = self.handed_on.get(module, {}).get(name)
            if handed and depth < 8:
                return self.home(module + handed + path[at + 1:], depth + 1)
            break
        return module

    def edges(self, names):
        """The modules that a module names."""
        paths = [path for match in USE.finditer(self.text[names]) for path in expand(match[1])]
        rest = USE.sub("", self.text[names])
        paths += [tuple(match.split("::")) for match in PATH.findall(rest)]
        found = set()
        for path in paths:
            module = names
            if path[0] == "crate":
                module, path = (), path[1:]
            while path and path[0] in ("super", "self"):
                module = module[:-1] if path[0] == "super" else module
                path = path[1:]
            target = self.home(module + tuple(name for name in path if name != "*"))
            # A module and what stands within it are one room.
            within = target[:len(names)] == names or names[:len(target)] == target
            if target in self.files and not within:
                found.add(target)
        return found

    def circles(self):
        """The sets of files that name each other, directly or by way of others (Tarjan 1972)."""
        graph = {names: self.edges(names) for names in self.files}
        index, low, stack, on_stack, circles = {}, {}, [], set(), []

        def visit(node):
            index[node] = low[node] = len(index)
            stack.append(node)
            on_stack.add(node)
            for target in sorted(graph[node]):
                if target not in index:
                    visit(target)
                    low[node] = min(low[node], low[target])
                elif target in on_stack:
                    low[node] = min(low[node], index[target])
            if low[node] == index[node]:
                circle = []
                while True:
                    last = stack.pop()
                    on_stack.discard(last)
                    circle.append(last)
                    if last == node:
                        break
                if len(circle) > 1:
                    circles.append(sorted(circle))

        sys.setrecursionlimit(10000)
        for node in sorted(graph):
            if node not in index:
                visit(node)
        return circles, graph


def main():
    grown = []
    for root in sorted(ROOT.glob("crates/*/src")):
        circles, graph = Crate(root).circles()
        name, files = root.parent.name, sum(map(len, circles))
        print(f"{name}: {files} files in {len(circles)} circles")
        if files > ALLOWED.get(name, 0):
            grown.append(f"{name} has {files} files in circles, where {ALLOWED.get(name, 0)} were")
        if "--list" in sys.argv:
            for circle in circles:
                for names in circle:
                    inside = ["/".join(target) for target in graph[names] if target in circle]
                    print("   ", "/".join(names) or "lib", "->", ", ".join(inside))
                print()
    if grown:
        sys.exit("; ".join(grown) + "; see --list")


if __name__ == "__main__":
    main()
