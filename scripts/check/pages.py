#!/usr/bin/env python3
"""Opens a report of 10,000 test sentences in headless Chromium, and uses it.

    scripts/check/pages.py [TAPER] [--run RUN] [--screenshots FOLDER]
                                            (TAPER is target/release/taper unless it is named)

Checks that the page opens within 2 seconds, that its policy blocks nothing of it, that sentences
come as they are scrolled to, are sorted, sifted and found, that figures tell their values under a
pointer and by keys, that the theme changes, and that nothing is wider than a telephone. With a
translation run, whose test sets were translated, it also looks at the attention of two sentences.

Needs Python 3.11, Chromium and chromedriver (Debian: chromium, chromium-driver), and nothing else.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from browser import Browser, check

ROOT = Path(__file__).resolve().parents[2]
SENTENCES = 10_000


def make_run(folder):
    """A run as training leaves it, with translations of invented sentences."""
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9)))
             for _ in range(4000)]
    sentence = lambda: " ".join(draw.choices(words, k=draw.randint(3, 40)))
    text = folder / "text"
    run = folder / "run"
    (run / "translations").mkdir(parents=True)
    text.mkdir()
    references = [sentence() for _ in range(SENTENCES)]
    def translate(reference):
        return " ".join(word for word in reference.split() if draw.random() > 0.2)
    lines = {"train.en": [sentence() for _ in range(5000)], "test.de": references,
             "train.de": [sentence() for _ in range(5000)],
             "test.en": [sentence() for _ in range(SENTENCES)]}
    lines["test.en"][17] = "我爱你 <b>needle</b> & co"
    for name, content in lines.items():
        (text / name).write_text("\n".join(content) + "\n")
    (run / "translations" / "test.txt").write_text("\n".join(map(translate, references)) + "\n")
    (run / "scores.json").write_text(json.dumps([{"split": "test", "sentences": SENTENCES}]))
    (run / "config.toml").write_text(
        f'[data]\ndir = "{text}"\nsource_language = "en"\ntarget_language = "de"\n'
        'train = "train"\nvalidation = ""\ntest = ["test"]\n')
    with open(run / "metrics.jsonl", "w") as log:
        for step in range(100, 100_001, 100):
            nll = 1.5 + 6 * step ** -0.3 + draw.gauss(0, 0.02)
            print(json.dumps({
                "event": "log", "step": step, "epoch": 0, "loss": nll + 1, "nll": nll,
                "accuracy": 0.5, "learning_rate": step ** -0.5, "gradient_norm": 1 + draw.random(),
                "tokens": step * 4000, "window_tokens": 400_000,
                "timing": {"elapsed_seconds": step / 10, "tokens_per_second": 4e4}}), file=log)
    return run


def use(browser, page, pictures):
    browser.open(page)
    timing = browser.run(
        "const one = performance.getEntriesByType('navigation')[0];"
        "return [one.loadEventEnd, one.transferSize, performance.now()];")
    # From the beginning of the navigation to the end of the load event, all scripts run.
    check(timing[0] < 2000, f"{SENTENCES} sentences open in {timing[0]:.0f} ms "
          f"({page.stat().st_size / 1e6:.1f} MB)")
    shown = "return document.querySelectorAll('.sentence').length;"
    first = browser.run(shown)
    check(0 < first < 200, f"{first} sentences are made at first")
    browser.run("document.querySelector('#sentence-list').lastElementChild.scrollIntoView();")
    # Scrolling is smooth, and takes a while.
    more = browser.wait(shown.replace("return", "return arguments[0] <", 1).replace(
        ";", " && document.querySelectorAll('.sentence').length;"), first, seconds=10)
    check(more and more > first, f"{more} after scrolling")
    find = ("const input = document.querySelector('#sentence-list input'); input.value = "
            "arguments[0]; input.dispatchEvent(new Event('input'));")
    browser.run(find, "needle")
    browser.wait(shown.replace(";", " === 1;"), seconds=10)
    text = browser.run("return document.querySelector('.sentence').innerText;")
    check(browser.run(shown) == 1 and "<b>needle</b>" in text, "a sentence is found, as text")
    browser.run(find, "")
    browser.wait(shown.replace(";", " > 1;"), seconds=10)
    scores = ("const select = document.querySelectorAll('#sentence-list select')[1];"
              "select.value = arguments[0]; select.dispatchEvent(new Event('change'));"
              "return [...document.querySelectorAll('.score')].map(one => "
              "Number(one.textContent.split(' ')[1]));")
    worst, best = browser.run(scores, "worst"), browser.run(scores, "best")
    check(worst == sorted(worst) and best == sorted(best, reverse=True) and worst[0] < best[0],
          f"sorted by score, from {worst[0]} and from {best[0]}")
    # The best ones differ in nothing.
    browser.run(scores, "worst")
    marked = "return document.querySelectorAll('.sentence ins, .sentence del').length;"
    check(browser.run(marked) > 0, "words that differ are marked")
    tip = ("const plot = document.querySelector('svg.plot'); plot.focus(); for (const key of "
           "arguments[0]) plot.dispatchEvent(new KeyboardEvent('keydown', {key}));"
           "return plot.parentElement.querySelector('.tip').innerText;")
    value = browser.run(tip, ["Home"])
    check("100\n" in value, f"keys tell values: {value!r}")
    check(browser.run(tip, ["Home", "End"]) != value, "and others at the end")
    moved = browser.run(
        "const plot = document.querySelector('svg.plot'); plot.scrollIntoView();"
        "const box = plot.getBoundingClientRect(); plot.dispatchEvent(new PointerEvent("
        "'pointermove', {clientX: box.left + box.width / 2, clientY: box.top + box.height / 2}));"
        "return plot.parentElement.querySelector('.tip').innerText;")
    check(moved.count("\n") >= 1, f"a pointer tells values: {moved!r}")
    pictures and browser.picture(pictures / "report.png")
    ground = "return getComputedStyle(document.body).backgroundColor;"
    before = browser.run(ground)
    browser.run("document.getElementById('theme').click();")
    check(browser.run(ground) != before, "light and dark")
    pictures and browser.picture(pictures / "report-dark.png")
    browser.resize(500, 900)
    time.sleep(0.3)
    wide = browser.run("return [document.documentElement.scrollWidth, innerWidth];")
    check(wide[0] <= wide[1], f"nothing is wider than a telephone: {wide}")
    browser.run("document.querySelector('#sentences').scrollIntoView();")
    pictures and browser.picture(pictures / "report-narrow.png")
    complaints = browser.complaints()
    check(not complaints, f"the browser complains of nothing {complaints}")


def look(browser, page, pictures):
    """Layers and heads of chosen sentences: by lists, and by keys where the focus is."""
    browser.open(page)
    shown = ("return [...document.querySelectorAll('.attention')].map(view => {"
             "const seen = [...view.querySelectorAll('figure')].filter(one => one.offsetParent);"
             "return seen.map(({dataset: {part, layer, head}}) => [part, layer, head].join(' '));"
             "});")
    first = browser.run(shown)
    check(first == [["cross 1 mean"]] * 2, f"one figure of each sentence: {first}")
    choose = ("const list = document.querySelectorAll('.attention select')[arguments[0]];"
              "list.value = arguments[1]; list.dispatchEvent(new Event('change'));" + shown)
    check(browser.run(choose, 2, "2") == [["cross 1 2"], ["cross 1 mean"]], "a head is chosen")
    check(browser.run(choose, 0, "encoder") == [["encoder 1 2"], ["cross 1 mean"]], "and a part")
    press = ("const plot = [...document.querySelectorAll('.attention')[1].querySelectorAll('svg')]"
             ".find(one => one.checkVisibility()); plot.focus(); for (const key of arguments[0])"
             "plot.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));" + shown)
    keyed = browser.run(press, ["l", "j"])
    check(keyed[0] == ["encoder 1 2"] and keyed[1][0].endswith(" 1"), f"keys: {keyed}")
    if pictures:
        browser.run("document.querySelector('#attention').scrollIntoView();")
        browser.picture(pictures / "report-attention.png")
    complaints = browser.complaints()
    check(not complaints, f"the browser complains of nothing {complaints}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("taper", nargs="?", default=ROOT / "target/release/taper", type=Path)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--screenshots", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder))
        subprocess.run([arguments.taper, "report", run], check=True, stdout=subprocess.DEVNULL)
        if arguments.screenshots:
            arguments.screenshots.mkdir(parents=True, exist_ok=True)
        browser = Browser(folder)
        try:
            use(browser, run / "report.html", arguments.screenshots)
            if arguments.run:
                page = Path(folder) / "attention.html"
                subprocess.run([arguments.taper, "report", arguments.run, "--attention", "1,2",
                                "-o", page], check=True, stdout=subprocess.DEVNULL)
                look(browser, page, arguments.screenshots)
        finally:
            browser.close()
    sys.exit(1 if check.failed else 0)


main()
