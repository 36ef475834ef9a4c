#!/usr/bin/env python3
"""Measures what the package for Python takes beside the program, for the same translations.

    scripts/bench/python.py RUN LINES [TIMES]      (with the Python that has the package)

Both start, load the run and translate the file LINES, in turn, TIMES times (3). Printed are the
medians of the seconds by the clock and of the processor's, which other programs disturb less.
"""

import os
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

PACKAGE = """
import sys, taper
lines = open(sys.argv[2], encoding="utf-8").read().splitlines()
found = taper.Run.load(sys.argv[1]).translate(lines)
open(sys.argv[3], "w", encoding="utf-8").write("".join(line.text + "\\n" for line in found))
"""


def measure(command):
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - began, used


def main():
    run, lines, times = sys.argv[1], sys.argv[2], int((sys.argv[3:] or [3])[0])
    program = Path(sysconfig.get_path("scripts")) / "taper"
    with tempfile.TemporaryDirectory() as folder:
        one, other = os.path.join(folder, "one"), os.path.join(folder, "other")
        commands = {
            "program": [program, "translate", run, "--input", lines, "--output", one],
            "package": [sys.executable, "-c", PACKAGE, run, lines, other],
        }
        found = {name: [] for name in commands}
        for _ in range(times):
            for name, command in commands.items():
                found[name].append(measure(command))
            assert Path(one).read_bytes() == Path(other).read_bytes(), "other translations"
            os.remove(one)
    for name, seconds in found.items():
        clock, used = (statistics.median(one) for one in zip(*seconds))
        print(f"{name}: {clock:.2f} s by the clock, {used:.2f} s of the processor")


if __name__ == "__main__":
    main()
