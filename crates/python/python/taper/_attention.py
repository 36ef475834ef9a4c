"""Attention of a model on a text."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from . import _native
from ._arrays import array
from ._page import framed

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class AttentionLayer:
    """One layer of attention on a text."""

    part: Literal["encoder", "decoder", "cross"]
    """Tokens of an encoder to each other, of a decoder to themselves, or of it to an encoder."""
    layer: int
    """Number in its stack, from 1."""
    queries: list[str]
    """Tokens that attend, Q of them."""
    keys: list[str]
    """Tokens attended to, K of them."""
    weights: npt.NDArray[np.float32] = field(repr=False)
    """Weights ``(heads, Q, K)``; each row adds up to 1. A view that cannot be written to."""

    def mean(self) -> npt.NDArray[np.float32]:
        """Mean over the heads, ``(Q, K)``."""
        mean: npt.NDArray[np.float32] = self.weights.mean(axis=0)
        return mean


class Attention:
    """Attention of every layer and head on one text; a notebook shows it as a page."""

    text: str
    """Text that was read."""
    translation: str
    """Its translation; empty if the model does not translate."""
    layers: list[AttentionLayer]
    """Layers in order, grouped by part."""

    def __init__(self, native: _native.AttentionMap) -> None:
        self._native = native
        record = json.loads(native.record)
        self.text, self.translation = record["text"], record["translation"]
        self.layers = [
            AttentionLayer(**layer, weights=array(native.weights(index)))
            for index, layer in enumerate(record["layers"])
        ]

    def page(self, language: Literal["en", "zh"] = "en") -> str:
        """A page of HTML on which every layer and head can be chosen; it loads nothing."""
        return self._native.page(language)

    def _repr_html_(self) -> str:
        return framed(self.page())

    def __repr__(self) -> str:
        return f"Attention({self.text!r}, {len(self.layers)} layers)"
