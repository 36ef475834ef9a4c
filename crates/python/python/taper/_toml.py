"""Recipes as TOML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any


def value_of(value: Any) -> str:
    """A value in one line of TOML. Strings of JSON are strings of TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    # Subclasses, such as enumerations and the floats of NumPy, have another `repr`.
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, PathLike):
        value = fspath(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        pairs = (f"{value_of(str(key))} = {value_of(one)}" for key, one in value.items())
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(value_of(one) for one in value) + "]"
    raise TypeError(f"{value!r} cannot stand in a recipe: {type(value).__name__}")


def toml_of(recipe: Mapping[str, Any]) -> str:
    """A recipe, one section or key a line; keys that are ``None`` are left out."""
    plain = {key: one for key, one in recipe.items() if one is not None}
    keys = [(key, one) for key, one in plain.items() if not isinstance(one, Mapping)]
    sections = [(key, one) for key, one in plain.items() if isinstance(one, Mapping)]
    lines = [f"{value_of(key)} = {value_of(one)}" for key, one in keys]
    for name, section in sections:
        lines.append(f"[{value_of(name)}]")
        lines += [
            f"{value_of(key)} = {value_of(one)}" for key, one in section.items() if one is not None
        ]
    return "\n".join(lines) + "\n"
