"""Tokenizers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike

from . import _native


class Tokenizer:
    """A trained tokenizer: text to token ids and back. Special tokens are never added."""

    def __init__(self, native: _native.Tokenizer) -> None:
        self._native = native

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Tokenizer:
        """Reads a ``tokenizer.json``.

        Raises:
            TaperError: It is missing or not a tokenizer.
        """
        return cls(_native.Tokenizer.load(path))

    def encode(self, text: str) -> list[int]:
        """Token ids of a text."""
        return self._native.encode([text])[0]

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Token ids of each text, on all cores."""
        return self._native.encode(list(texts))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids; special tokens are left out."""
        return self._native.decode([list(ids)])[0]

    def decode_batch(self, rows: Iterable[Sequence[int]]) -> list[str]:
        """Text of each row of token ids, on all cores."""
        return self._native.decode([list(row) for row in rows])

    def tokens(self, text: str) -> list[str]:
        """Tokens of a text, as the vocabulary spells them."""
        return [self._native.token(id) or "" for id in self.encode(text)]

    def token(self, id: int) -> str | None:
        """Token of an id; ``None`` if there is none."""
        return self._native.token(id)

    def id(self, token: str) -> int | None:
        """Id of a token; ``None`` if the vocabulary lacks it."""
        return self._native.id(token)

    def __len__(self) -> int:
        """Size of the vocabulary."""
        return self._native.vocabulary_size

    def __repr__(self) -> str:
        return f"Tokenizer({len(self)} tokens)"
