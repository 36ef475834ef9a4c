"""Training: events, early ends, errors, Ctrl-C, and the same weights as the program's."""

import json
import signal
import time

import numpy as np
import pytest
from conftest import in_process, program

import taper


def test_events_are_objects(trained):
    outcome, events = trained
    assert (outcome.reason, outcome.step) == ("max_updates", 30)
    assert outcome.results[0]["split"] == "test"
    names = [event.name for event in events]
    assert names.index("data") < names.index("begins") < names.index("log")
    assert {"validation", "checkpoint", "trained", "test"} <= set(names)
    logs = [event for event in events if event.name == "log"]
    assert [event.step for event in logs] == [5, 10, 15, 20, 25, 30]
    assert logs[-1].loss < logs[0].loss
    with pytest.raises(AttributeError, match="no 'perplexity'"):
        logs[0].perplexity


def test_the_program_trains_the_same_weights(trained, recipe, tmp_path):
    from taper._toml import toml_of

    (tmp_path / "recipe.toml").write_text(toml_of(recipe))
    program("train", tmp_path / "recipe.toml", "--run", tmp_path / "run")
    by_program = taper.Run.load(tmp_path / "run").weights()
    by_package = trained[0].load().weights()
    assert list(by_program) == list(by_package)
    assert all(np.array_equal(by_program[name], by_package[name]) for name in by_program)
    # A recipe in a file, and with other values.
    again = taper.train(
        tmp_path / "recipe.toml", tmp_path / "short", overrides={"training.max_updates": 10}
    )
    assert again.step == 10


def test_a_callback_ends_it_early_and_it_goes_on(recipe, trained, tmp_path):
    def after_ten(event):
        if event.name == "log" and event.step == 10:
            raise taper.StopTraining

    stopped = taper.train(recipe, tmp_path / "run", callbacks=[after_ten])
    assert stopped.reason == "interrupted" and 10 <= stopped.step < 30
    resumed = taper.resume(tmp_path / "run")
    assert (resumed.reason, resumed.step) == ("max_updates", 30)
    whole, halves = trained[0].load().weights(), resumed.load().weights()
    assert all(np.array_equal(whole[name], halves[name]) for name in whole)


def test_an_exception_of_a_callback_is_raised_again(recipe, tmp_path):
    def wrong(event):
        if event.name == "log":
            raise ZeroDivisionError("of mine")

    with pytest.raises(ZeroDivisionError, match="of mine"):
        taper.train(recipe, tmp_path / "run", callbacks=[wrong])
    assert list((tmp_path / "run/checkpoints").glob("step-*"))

    def early(event):
        if event.name == "data":
            raise ZeroDivisionError("early")

    with pytest.raises(ZeroDivisionError, match="early"):
        taper.train(recipe, tmp_path / "early", callbacks=[early])
    assert taper.resume(tmp_path / "early", overrides={"training.max_updates": 10}).step == 10


def test_a_training_that_was_stopped_ends_without_a_reader(recipe, tmp_path):
    from taper import _native
    from taper._toml import toml_of

    settings = json.dumps({"overrides": [], "device": None, "start_from": None})
    training = _native.train("recipe", toml_of(recipe), str(tmp_path / "run"), settings)
    while json.loads(training.next())["event"] != "log":
        pass
    training.stop()
    # The run is locked until the training has ended.
    assert taper.resume(tmp_path / "run").reason == "max_updates"
    assert json.loads(training.next())["event"]


def test_a_callback_may_use_a_run(recipe, run, tmp_path):
    found = []

    def translate(event):
        if event.name == "validation":
            found.append(run.translate(["red dog"])[0].text)

    taper.train(recipe, tmp_path / "run", callbacks=[translate])
    assert found == [run.translate(["red dog"])[0].text] * 3


def test_faults_are_told_in_the_programs_words(recipe, tmp_path):
    with pytest.raises(taper.TaperError, match="layerz.*did you mean|unknown"):
        taper.train({**recipe, "model": {"encoder_layerz": 2}}, tmp_path / "run")
    with pytest.raises(taper.TaperError, match="nowhere.toml"):
        taper.train("nowhere.toml", tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/file").write_text("mine")
    with pytest.raises(taper.TaperError, match="exists already"):
        taper.train(recipe, tmp_path / "run")
    with pytest.raises(taper.TaperError, match="run"):
        taper.resume(tmp_path / "run")
    with pytest.raises(TypeError, match="cannot stand in a recipe"):
        taper.train({"name": object()}, tmp_path / "run")


LONG = """
import json, sys, taper
recipe = json.loads(sys.argv[1])
def tell(event):
    if event.name == "log":
        print("log", flush=True)
try:
    taper.train(recipe, sys.argv[2], callbacks=[tell])
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(9)
"""


def test_ctrl_c_ends_training_with_a_checkpoint(recipe, tmp_path):
    long = json.loads(json.dumps(recipe, default=str))
    long["training"]["max_updates"] = 1_000_000
    with in_process(LONG, json.dumps(long), tmp_path / "run") as process:
        assert process.stdout.readline() == "log\n"
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=120)
    assert process.returncode == 9 and rest.endswith("interrupted\n")
    assert list((tmp_path / "run/checkpoints").glob("step-*"))


ENDLESS = """
import sys, taper
run = taper.Run.load(sys.argv[1])
print("begins", flush=True)
try:
    run.translate(["red dog runs here now"] * 1_000_000)
except KeyboardInterrupt:
    run.translate(["red"])
    sys.exit(9)
"""


def test_ctrl_c_ends_a_translation(run):
    with in_process(ENDLESS, run.path) as process:
        assert process.stdout.readline() == "begins\n"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert process.returncode == 9


FORKED = """
import os, sys, taper
run = taper.Run.load(sys.argv[1])
child = os.fork()
if child == 0:
    try:
        run.translate(["red"])
    except taper.TaperError as error:
        os._exit(9 if "spawn" in str(error) else 1)
    os._exit(1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_is_told_so(run):
    with in_process(FORKED, run.path) as process:
        assert process.wait(timeout=120) == 9


def test_a_training_that_breaks_off_is_an_error(tmp_path):
    from taper._training import _follow

    class Broken:
        def next(self):
            return None

    with pytest.raises(taper.TaperError, match="training failed"):
        _follow(Broken(), tmp_path, [])
