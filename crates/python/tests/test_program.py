"""The program that a wheel installs beside the package: exit codes, processes, Ctrl-C, a closed pipe."""

import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import PROGRAM, program

import taper
from taper._toml import toml_of


@pytest.fixture
def config(recipe, tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(toml_of(recipe))
    return path


def test_numbers_of_a_recipe_are_written_as_toml():
    class Named(float):
        def __repr__(self):
            return f"named({float(self)})"

    class Count(int):
        def __repr__(self):
            return f"count({int(self)})"

    recipe = {"a": Named(0.5), "b": {"c": Count(3), "d": [True, 1e300]}}
    assert toml_of(recipe) == '"a" = 0.5\n["b"]\n"c" = 3\n"d" = [true, 1e+300]\n'


def test_version_and_exit_codes():
    assert program("--version").split()[1] == taper.__version__
    wrong = subprocess.run([PROGRAM, "translate", "nowhere"], capture_output=True, text=True)
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: nowhere"), wrong.stderr
    unknown = subprocess.run([PROGRAM, "bleuu"], capture_output=True, text=True)
    assert unknown.returncode == 2 and "Usage: taper" in unknown.stderr


def test_it_starts_processes_of_its_own(config, tmp_path):
    again = ["--set", "training.accumulation=2", "--set", "training.max_updates=10"]
    program("train", config, "--run", tmp_path / "one", *again)
    program("train", config, "--run", tmp_path / "two", "--processes", 2, *again)
    one, two = (taper.Run.load(tmp_path / name).weights() for name in ("one", "two"))
    assert all((one[name] == two[name]).all() for name in one)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are another there")
def test_ctrl_c_ends_a_training_in_good_order(config, tmp_path):
    run = tmp_path / "run"
    command = [PROGRAM, "train", config, "--run", run, "--set", "training.max_updates=100000"]
    # As a shell starts it: ignored signals would stay ignored.
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    log = run / "metrics.jsonl"
    while not (log.exists() and '"loss"' in log.read_text()):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    assert list((run / "checkpoints").glob("step-*"))


@pytest.mark.skipif(sys.platform == "win32", reason="pipes are another there")
def test_a_reader_that_is_gone_ends_it_quietly():
    reader, writer = os.pipe()
    os.close(reader)
    command = [PROGRAM, "config", "explain", "--markdown"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_shell_gets_completions():
    asked = {"TAPER_COMPLETE": "fish"}
    said = subprocess.run(
        [PROGRAM, "--", "taper", "tra"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **asked},
    ).stdout
    assert {"train", "translate"} <= {line.split("\t")[0] for line in said.splitlines()}
