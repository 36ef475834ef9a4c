"""The interface of ``transformers.pipeline``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Union

from ._records import Prediction
from ._run import Run

Inputs = Union[str, Sequence[str]]


def pipeline(task: str, run: Run | str | PathLike[str]) -> Callable[..., list[dict[str, Any]]]:
    """A function from texts to records, as the library Transformers has it.

    Args:
        task: ``translation``, ``text-generation``, ``text-classification`` or
            ``feature-extraction``.
        run: A run, or its folder.

    Returns:
        A function of one text or a list of texts; further arguments are those of the method of
        :class:`Run` that does the work.

    Raises:
        TaperError: The run cannot be loaded.
    """
    loaded = run if isinstance(run, Run) else Run.load(run)

    def texts(inputs: Inputs) -> list[str]:
        return [inputs] if isinstance(inputs, str) else list(inputs)

    def translation(inputs: Inputs, **options: Any) -> list[dict[str, Any]]:
        found = loaded.translate(texts(inputs), **options)
        return [{"translation_text": line.text} for line in found]

    def generation(inputs: Inputs, **options: Any) -> list[dict[str, Any]]:
        prompts = texts(inputs)
        found = loaded.generate_all(prompts, **options)
        return [
            {"generated_text": prompt + text.text}
            for prompt, drawn in zip(prompts, found)
            for text in drawn
        ]

    def classification(inputs: Inputs, **options: Any) -> list[dict[str, Any]]:
        records = []
        for one in loaded.predict(texts(inputs), **options):
            if not isinstance(one, Prediction):
                raise ValueError(f"a run of the task {loaded.task} gives a text no label")
            records.append({"label": one.label, "score": one.probability})
        return records

    def features(inputs: Inputs, **options: Any) -> list[dict[str, Any]]:
        return [{"features": vector} for vector in loaded.embed(texts(inputs), **options)]

    known: dict[str, Callable[..., list[dict[str, Any]]]] = {
        "translation": translation,
        "text-generation": generation,
        "text-classification": classification,
        "feature-extraction": features,
    }
    if task not in known:
        raise ValueError(f"no pipeline {task!r}: there are {', '.join(known)}")
    return known[task]
