"""Training, with events as objects."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Union

from . import _native
from ._run import Run, overrides_of
from ._toml import toml_of

_LOG = logging.getLogger("taper")

Recipe = Union[str, "PathLike[str]", Mapping[str, Any]]


@dataclass(frozen=True)
class Event:
    """Something that happened in a training; its fields are attributes, such as ``event.loss``.

    Names and fields: ``data`` (the corpus), ``begins``, ``log`` (``step``, ``loss``, ``nll``,
    ``accuracy``, ``learning_rate``, ``gradient_norm``, ``tokens``), ``validation`` (``step``,
    ``scores``, ``improved``, ``samples``), ``skipped``, ``checkpoint`` (``step``, ``path``,
    ``best``), ``averaged``, ``stopped``, ``trained`` (``reason``, ``step``, ``seconds``), ``test``
    (``results``), ``interrupted`` and ``notice`` (``text``: what a person should know).
    """

    name: str
    """Kind of the event."""
    fields: dict[str, Any] = field(repr=False)
    """Data of the event, as in ``metrics.jsonl``."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["fields"][name]
        except KeyError:
            raise AttributeError(f"an event {self.name!r} has no {name!r}") from None


class StopTraining(Exception):
    """Raised by a callback to end training early. A checkpoint is saved, and :func:`train`
    returns; :func:`resume` could go on."""


Callback = Callable[[Event], object]


@dataclass(frozen=True)
class Trained:
    """The outcome of a training."""

    path: Path
    """Folder of the run."""
    reason: str
    """Why it ended: ``max_updates``, ``max_epochs``, ``max_minutes``, ``early_stopping`` or
    ``interrupted``."""
    step: int
    """Updates made."""
    results: list[dict[str, Any]] = field(repr=False)
    """Scores of the test sets, as ``scores.json`` has them."""

    def load(self) -> Run:
        """The trained run, to be used."""
        return Run.load(self.path)


def train(
    recipe: Recipe,
    run: str | PathLike[str],
    *,
    callbacks: Iterable[Callback] = (),
    overrides: Mapping[str, Any] | None = None,
    device: str | None = None,
    start_from: str | PathLike[str] | None = None,
) -> Trained:
    """Trains a model, as ``taper train`` does.

    Ctrl-C ends training with a checkpoint, and raises ``KeyboardInterrupt`` then; a second one
    does not wait for the checkpoint.

    Args:
        recipe: Path of a recipe, or its sections as a dictionary; paths in it are relative to the
            recipe, or to the current folder.
        run: Folder of the new run.
        callbacks: Functions that are given each event, one after the other; training waits for
            them. :class:`StopTraining` ends it early, and any other exception ends it likewise and
            is raised again.
        overrides: Keys of the recipe with other values: ``{"training.max_updates": 100}``.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``metal``; ``None``: the recipe's.
        start_from: Run or checkpoint with whose weights the new run begins.

    Raises:
        TaperError: The recipe, the data, the device or the disk has a fault.
    """
    text = None if not isinstance(recipe, Mapping) else toml_of(recipe)
    path = "recipe" if isinstance(recipe, Mapping) else fspath(recipe)
    settings = {
        "overrides": overrides_of(overrides),
        "device": device,
        "start_from": None if start_from is None else fspath(start_from),
    }
    training = _native.train(path, text, fspath(run), json.dumps(settings))
    return _follow(training, Path(run), list(callbacks))


def resume(
    run: str | PathLike[str],
    *,
    callbacks: Iterable[Callback] = (),
    overrides: Mapping[str, Any] | None = None,
    device: str | None = None,
    checkpoint: str | None = None,
) -> Trained:
    """Continues a run exactly where its last checkpoint stands, as ``taper resume`` does.

    Args:
        run: Folder of the run.
        callbacks: See :func:`train`.
        overrides: Keys of the recipe with other values.
        device: See :func:`train`.
        checkpoint: Name of another checkpoint, such as ``step-00001000``.

    Raises:
        TaperError: The run has no checkpoint, or something has a fault.
    """
    settings = {"overrides": overrides_of(overrides), "device": device, "start_from": None}
    training = _native.resume(fspath(run), checkpoint, json.dumps(settings))
    return _follow(training, Path(run), list(callbacks))


def _follow(training: _native.Training, run: Path, callbacks: list[Callback]) -> Trained:
    raised: BaseException | None = None
    outcome: dict[str, Any] = {}
    while True:
        try:
            record = training.next()
            if record is None:
                break
            fields = json.loads(record)
            event = Event(fields.pop("event"), fields)
            if event.name == "outcome":
                outcome = fields
                continue
            if event.name == "notice":
                _LOG.warning("%s", event.text)
            if raised is None:
                for callback in callbacks:
                    callback(event)
        except _native.TaperError as error:
            # A callback or Ctrl-C that came before the first update ends training by an error.
            if raised is None:
                raise
            raise (error if isinstance(raised, StopTraining) else raised) from None
        except BaseException as exception:
            if isinstance(raised, KeyboardInterrupt):
                raise
            raised = exception
            training.stop()
    if raised is not None and not isinstance(raised, StopTraining):
        raise raised
    if not outcome:
        raise _native.TaperError("training failed; standard error says where: please report it")
    return Trained(run, outcome["reason"], outcome["step"], outcome["results"])
