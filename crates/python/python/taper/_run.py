"""Trained runs: what their models write, tell and hold."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from . import _native
from ._arrays import array
from ._attention import Attention
from ._records import (
    Alignment,
    Answer,
    GeneratedText,
    LineTranslations,
    Prediction,
    SpanAnswer,
    TaggedText,
    TextScore,
    Translation,
)
from ._tokenizer import Tokenizer
from ._toml import value_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def set_threads(threads: int) -> None:
    """Sets the number of threads that compute in this process, before anything has been computed;
    0 takes one for each core. No result depends on it.

    Raises:
        TaperError: There are too many, or the pool exists already.
    """
    _native.choose_threads(threads)


def overrides_of(overrides: Mapping[str, Any] | None) -> list[str]:
    """Keys with values as the program's ``--set`` takes them."""
    return [f"{key}={value_of(one)}" for key, one in (overrides or {}).items()]


class Generation:
    """Pieces of a text, in order, as they are generated.

    Raises:
        TaperError: While pieces are taken: the prompt or a setting cannot be used.
    """

    def __init__(self, native: _native.Stream) -> None:
        self._native = native

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        piece = self._native.next()
        if piece is None:
            raise StopIteration
        return piece

    def close(self) -> None:
        """Ends the text; so does letting go of this object."""
        self._native.close()

    @property
    def result(self) -> GeneratedText:
        """The whole text; waits for its end.

        Raises:
            TaperError: The text was closed before it began.
        """
        for _ in self:
            pass
        record = self._native.record
        if record is None:
            raise _native.TaperError("the text was closed before it began")
        return GeneratedText(**json.loads(record))


def _records(found: str, strict: bool) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = json.loads(found)
    if strict:
        for record in records:
            if isinstance(record, dict) and "error" in record:
                raise _native.TaperError(record["error"])
    return records


def _texts(texts: Sequence[str], what: str = "texts") -> list[str]:
    if isinstance(texts, str):
        raise TypeError(f"{what} is a list of texts, not a text: [{texts!r}]")
    return list(texts)


def _translation(record: dict[str, Any]) -> Translation:
    aligned = record.pop("alignment", None)
    if aligned is None:
        return Translation(**record)
    size = (len(aligned["target_tokens"]), len(aligned["source_tokens"]))
    has_weights = len(aligned["weights"]) == size[0]
    weights = array(aligned["weights"] if has_weights else [])
    aligned["weights"] = weights.reshape(size if has_weights else (0, size[1]))
    aligned["pairs"] = [(source, target) for source, target in aligned["pairs"]]
    return Translation(**record, alignment=Alignment(**aligned))


class Run:
    """A trained run with its model in memory. Methods may be called from any thread; they compute
    one after the other, each on all cores."""

    def __init__(self, native: _native.Run, path: Path) -> None:
        self._native = native
        self.path = path
        """Folder of the run."""

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        checkpoint: str | None = None,
        device: str | None = None,
        weights: Literal["f32", "bf16", "int8"] | None = None,
        overrides: Mapping[str, Any] | None = None,
        to: str | None = None,
        from_: str | None = None,
    ) -> Run:
        """Loads a run.

        Args:
            path: Folder of the run.
            checkpoint: ``best``, ``last``, ``average``, a name such as ``step-00001000``, or the
                path of a checkpoint; ``None``: ``average`` if it is there and not older than
                ``last``, else ``best``, else ``last``.
            device: ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``metal``; ``None``: the run's.
            weights: Type that matrices are multiplied in; ``None``: int8 if the weights were saved
                so, else the run's.
            overrides: Keys of the recipe with other values, such as ``{"threads": 2}``.
            to: Target language, for a run with several; ``None``: each call names one.
            from_: Source language, for a run with several.

        Raises:
            TaperError: A file is missing or damaged.
        """
        settings = {
            "checkpoint": checkpoint,
            "device": device,
            "weights": weights,
            "overrides": overrides_of(overrides),
            "to": to,
            "from": from_,
        }
        return cls(_native.Run.load(fspath(path), json.dumps(settings)), Path(path))

    @property
    def task(self) -> str:
        """Task of its model, such as ``translation``."""
        return self._native.task

    @property
    def recipe(self) -> str:
        """Its recipe as TOML, every default written out."""
        return self._native.recipe

    @property
    def checkpoint(self) -> Path:
        """Folder of its weights."""
        return Path(self._native.checkpoint)

    @property
    def step(self) -> int:
        """Updates by which the weights were trained."""
        return self._native.step

    @property
    def source_tokenizer(self) -> Tokenizer:
        """Tokenizer of sources; of other models than translation ones, of texts.

        Raises:
            TaperError: The model reads no text.
        """
        return Tokenizer(self._native.tokenizer(False))

    @property
    def target_tokenizer(self) -> Tokenizer:
        """Tokenizer of translations.

        Raises:
            TaperError: The model writes no text.
        """
        return Tokenizer(self._native.tokenizer(True))

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, task={self.task!r}, step={self.step})"

    def translate(
        self,
        lines: Sequence[str],
        *,
        beam: int | None = None,
        n_best: int | None = None,
        alignment: bool = False,
        length_penalty: float | None = None,
        prefixes: Sequence[str] | None = None,
        ensemble: Sequence[str | PathLike[str]] = (),
        overlong: Literal["split", "cut", "error"] = "split",
        max_source_tokens: int | None = None,
        decoding: Mapping[str, Any] | None = None,
        to: str | None = None,
        from_: str | None = None,
        strict: bool = True,
    ) -> list[LineTranslations]:
        """Translates lines, as ``taper translate`` does.

        Args:
            lines: Texts, one sentence each.
            beam: Hypotheses kept at each step; 1 is greedy search. ``None``: the run's.
            n_best: Number of translations of each line. ``None``: the best alone.
            alignment: Whether to align each translation with its source.
            length_penalty: Exponent of the length penalty. ``None``: the run's.
            prefixes: Beginnings of the translations, one for each line.
            ensemble: More runs or checkpoints that decide together with this one.
            overlong: Treatment of a line with too many tokens.
            max_source_tokens: Largest number of tokens of a line. ``None``: as in training.
            decoding: Keys of the recipe's ``[decoding]`` with other values, such as
                ``{"sampling": {"temperature": 0.8, "seed": 7}}``.
            to: Target language, for a run with several. ``None``: the one given at loading, or
                the only one.
            from_: Source language, for a run with several.
            strict: Whether a line that cannot be translated is an exception; else it has an
                ``error``.

        Returns:
            For each line its translations.

        Raises:
            TaperError: The run does not translate, a setting cannot be used, or (``strict``) a
                line cannot be translated.
        """
        keys: dict[str, Any] = dict(decoding or {})
        if length_penalty is not None:
            keys["length_penalty"] = length_penalty
        settings = {
            "decoding": keys,
            "beam": beam,
            "n_best": n_best,
            "alignment": alignment,
            "overlong": overlong,
            "max_source_tokens": max_source_tokens,
            "ensemble": [fspath(path) for path in ensemble],
            "prefixes": [] if prefixes is None else _texts(prefixes, "prefixes"),
            "to": to,
            "from": from_,
        }
        sources = _texts(lines, "lines")
        records = _records(self._native.translate(sources, json.dumps(settings)), strict)
        return [
            LineTranslations(
                source,
                [_translation(one) for one in record.get("translations", [])],
                record.get("overlong"),
                record.get("error"),
            )
            for source, record in zip(sources, records)
        ]

    def generate(
        self,
        prompt: str | None = None,
        *,
        max_tokens: int = 256,
        context: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        decoding: Mapping[str, Any] | None = None,
    ) -> Generation:
        """Continues a text, as ``taper generate`` does, and gives its pieces as they come.

        Args:
            prompt: Text to continue. ``None``: the beginning of a line or a document.
            max_tokens: Largest number of tokens that are added.
            context: Largest number of tokens that a prediction depends on. ``None``: as in
                training.
            temperature: Divisor of logits before drawing; 0 takes the likeliest token. ``None``:
                the run's.
            top_k: Draws among so many of the likeliest tokens; 0: all.
            top_p: Draws among the fewest tokens of this probability.
            seed: Seed of the draws.
            decoding: Keys of the recipe's ``[decoding]`` with other values.

        Returns:
            An iterator over pieces of text, with the whole as ``result``.
        """
        settings = {
            "decoding": dict(decoding or {}),
            "max_tokens": max_tokens,
            "context": context,
            "samples": 1,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "seed": seed,
        }
        return Generation(self._native.generate(prompt, json.dumps(settings)))

    def generate_all(
        self,
        prompts: Sequence[str],
        *,
        samples: int = 1,
        max_tokens: int = 256,
        context: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        decoding: Mapping[str, Any] | None = None,
    ) -> list[list[GeneratedText]]:
        """Continues each prompt by ``samples`` texts; settings are those of :meth:`generate`.

        Raises:
            TaperError: A prompt or a setting cannot be used.
        """
        settings = {
            "decoding": dict(decoding or {}),
            "max_tokens": max_tokens,
            "context": context,
            "samples": samples,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "seed": seed,
        }
        found = self._native.generate_all(_texts(prompts, "prompts"), json.dumps(settings))
        records: list[Any] = _records(found, True)
        return [[GeneratedText(**text) for text in drawn] for drawn in records]

    def score(
        self, texts: Sequence[str], targets: Sequence[str] | None = None, *, strict: bool = True
    ) -> list[TextScore]:
        """Log-probabilities of texts by a language model, or of ``targets`` as the translations of
        ``texts`` by a translation model, as ``taper score`` has them.

        Raises:
            TaperError: The run is of another task, or (``strict``) a text cannot be scored.
        """
        given = None if targets is None else _texts(targets, "targets")
        records = _records(self._native.score(_texts(texts), given), strict)
        none = {"log_probability": float("nan"), "token_log_probabilities": []}
        return [TextScore(**{**none, **record}) for record in records]

    def predict(
        self,
        items: Sequence[str | PathLike[str] | Mapping[str, str]],
        *,
        prompts: Sequence[str] = (),
        strict: bool = True,
    ) -> list[Answer]:
        """Labels, tags, captions or answers, by the run's task, as ``taper predict`` gives them.

        Args:
            items: Texts (a pair has a tab between its texts), paths of images, or questions:
                ``{"question": ..., "context": ...}``.
            prompts: Texts from which a run of the task ``image-text`` chooses one for each image.
            strict: Whether an item without an answer is an exception; else it has an ``error``.

        Returns:
            A :class:`Prediction` for labels and captions, a :class:`TaggedText` or a
            :class:`SpanAnswer` for each item.

        Raises:
            TaperError: The run is of another task, or (``strict``) an item cannot be answered.
        """
        if isinstance(items, str):
            raise TypeError(f"items is a list, not a text: [{items!r}]")
        plain = [json.dumps(one) if isinstance(one, Mapping) else fspath(one) for one in items]
        found = self._native.predict(plain, _texts(prompts, "prompts"))
        return [_answer(self.task, record) for record in _records(found, strict)]

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Vectors of N texts, ``(N, D)``: the mean of the last states of their tokens, of the
        encoder if the model has one.

        Raises:
            TaperError: The run's model has no such states, or a text is empty or too long.
        """
        return array(self._native.embed(_texts(texts)))

    def attention(self, text: str, target: str | None = None) -> Attention:
        """Attention of every layer and head on a text; a translation model reads it together with
        ``target``, or with its own translation.

        Raises:
            TaperError: The model shows no attention, or the text is empty or too long.
        """
        return Attention(self._native.attention(text, target))

    def weights(self) -> dict[str, npt.NDArray[np.float32]]:
        """A copy of every parameter in f32, by its full name, in order. The arrays cannot be
        written to."""
        return {name: array(values) for name, values in self._native.weights()}


def _answer(task: str, record: dict[str, Any]) -> Answer:
    if task == "tagging":
        entities = [(name, first, last) for name, first, last in record.get("entities", [])]
        none: dict[str, Any] = {"words": [], "tags": []}
        return TaggedText(**{**none, **record, "entities": entities})
    if task == "question-answering":
        none = {"answer": "", "start": None, "end": None, "probability": float("nan")}
        return SpanAnswer(**{**none, **record})
    if task == "captions":
        probability = math.exp(record.get("log_probability", float("nan")))
        return Prediction(record.get("text", ""), probability, error=record.get("error"))
    none = {"label": "", "probability": float("nan")}
    return Prediction(**{**none, **record})
