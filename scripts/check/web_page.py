#!/usr/bin/env python3
"""Translates in headless Chromium, by a page of one file without a network.

    scripts/check/web_page.py RUN LINES [--taper TAPER] [--module MODULE] [--picture FILE]

Writes a page of the translation run RUN with `taper page`, types the first lines of the file LINES,
and has all of them translated: each translation must be that of `taper translate`, with the weights
in int8. Prints the size of the page, the time until it is ready, and the words of the source a
second, line by line and all lines at once.

MODULE is what scripts/package/web.sh makes, target/taper.wasm by default. Needs Chromium and
chromedriver (Debian: chromium, chromium-driver).
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from browser import Browser, check

# Seconds until the page must be ready, on a machine whose cores are all busy.
PATIENCE = 120
TYPED = 3
LINES = "[...document.querySelectorAll('#target p')].map(line => line.textContent)"
ASK = """
const done = arguments[arguments.length - 1], began = performance.now();
taper.translate({ lines: arguments[0] }).then(
  answer => done({ answer, seconds: (performance.now() - began) / 1000 }),
  error => done({ answer: { error: error.message } }));
"""


def translations(answer):
    if isinstance(answer, dict):
        return answer["error"]
    return [line["translations"][0]["text"] for line in answer]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("lines", type=Path)
    parser.add_argument("--taper", default="target/release/taper")
    parser.add_argument("--module", default="target/taper.wasm")
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    text = arguments.lines.read_text()
    lines = text.splitlines()
    words = sum(len(line.split()) for line in lines)
    command = [arguments.taper, "translate", arguments.run, "--weights", "int8"]
    told = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    expected = told.stdout.splitlines()

    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        subprocess.run([arguments.taper, "page", arguments.run, page, "--module", arguments.module],
                       check=True)
        browser = Browser(Path(folder))
        try:
            began = time.monotonic()
            browser.open(page)
            ready = browser.wait("return document.body.dataset.ready === 'true'", seconds=PATIENCE)
            state = browser.run("return document.getElementById('state').textContent")
            check(ready, f"the page is ready after {time.monotonic() - began:.1f} s: {state}")
            typed = "\n".join(lines[:TYPED])
            browser.type("#source", typed)
            done = f"return {LINES}.join('\\n') === arguments[0].join('\\n')"
            check(browser.wait(done, expected[:TYPED], seconds=PATIENCE), "typed lines are translated")
            if arguments.picture:
                browser.picture(arguments.picture)
            one_by_one, seconds = [], 0.0
            for line in lines[:100]:
                told = browser.run_async(ASK, [line])
                one_by_one += translations(told["answer"])
                seconds += told["seconds"]
            rate = sum(len(line.split()) for line in lines[:100]) / seconds
            check(one_by_one == expected[:100],
                  f"line by line as `taper translate`: {rate:.0f} words a second")
            told = browser.run_async(ASK, lines)
            check(translations(told["answer"]) == expected,
                  f"{len(lines)} lines at once: {words / told['seconds']:.0f} words a second")
            complaints = [one["message"] for one in browser.complaints()]
            check(not complaints, f"the browser complains of nothing {complaints or ''}")
        finally:
            browser.close()
    sys.exit(check.failed)


if __name__ == "__main__":
    main()
