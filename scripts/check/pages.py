#!/usr/bin/env python3
"""Opens a report of 10,000 test sentences in headless Chromium, and uses it.

    scripts/check/pages.py [TAPER] [--run RUN] [--screenshots FOLDER]
                                            (TAPER is target/release/taper unless it is named)
    scripts/check/pages.py [TAPER] [--run RUN] --gallery FOLDER [--keep-layouts]

Checks that the page is painted within half a second, that its policy blocks nothing of it, that
sentences come as they are scrolled to, are sorted, sifted and found, that figures tell their values
under a pointer and by keys, that the theme changes, and that nothing is wider than a telephone.
With a translation run, whose test sets were translated, it also looks at the attention of two
sentences, and travels with another through the model. Classifiers, taggers, masked models and one
of captions that are trained for it explain what they answer. A machine whose cores are busy takes
longer.

With --gallery it photographs every kind of page at four widths in both themes, and checks the
layout, also beside the kept ones (layouts.py), and, with axe-core, that everybody can use them
(gallery.py). --keep-layouts keeps the layouts as they are now.

Needs Python 3.11, Chromium and chromedriver (Debian: chromium, chromium-driver); for --gallery also
npm, which brings axe-core, and cargo.
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
from gallery import Gallery, accessibility_script, explained_runs, hang_served, pages_of_gallery
from layouts import Layouts

ROOT = Path(__file__).resolve().parents[2]
SENTENCES = 10_000
# Milliseconds to the first paint, and of a filter; and how often they are measured.
PAINT, FILTER, LOADS = 500, 50, 3
ENTER, END, HOME, ESCAPE = "\ue007", "\ue010", "\ue011", "\ue00c"
ARROW_LEFT, ARROW_RIGHT = "\ue012", "\ue014"


def word_places(text):
    """Where each word of a text begins and ends, in characters."""
    places, at = [], 0
    for word in text.split(" "):
        places.append([at, at + len(word)])
        at += len(word) + 1
    return places


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
    translations = list(map(translate, references))
    (run / "translations" / "test.txt").write_text("\n".join(translations) + "\n")
    # Each word of a translation is linked with one of the source.
    links = [[draw.choice(word_places(source)) + target for target in word_places(text)]
             if text else [] for source, text in zip(lines["test.en"], translations)]
    needle = lines["test.en"][17].index("needle")
    links[17] = [[needle, needle + len("needle"), *word_places(translations[17])[0]]]
    (run / "translations" / "test.links.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in links))
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


# Rows that are made.
ROWS = "return document.querySelectorAll('.sentences tbody tr').length;"
# Milliseconds until a change of a control has been laid out: of the search, words or flaws.
CHANGE = """
const [kind, value] = arguments;
const list = document.getElementById('sentence-list');
const control = { find: 'input[type=search]', words: 'input[type=number]',
  flaw: 'select' }[kind];
const own = [...list.querySelectorAll(control)].at(-1);
own.value = value;
const begun = performance.now();
own.dispatchEvent(new Event(kind === 'flaw' ? 'change' : 'input'));
document.body.offsetHeight;
return performance.now() - begun;
"""
FILTERS = [("find", "ab"), ("find", "abc"), ("find", "abcd"), ("find", "b"), ("find", "ba"),
           ("find", ""), ("words", "12"), ("words", ""), ("flaw", "too_short"), ("flaw", "")]


def time_page(browser, page):
    """Milliseconds to the first paint, until a page is loaded, and of each of `FILTERS`."""
    browser.open("about:blank")
    browser.open(page)
    # From the beginning of the navigation, all scripts run.
    paint, loaded = browser.run(
        "return [performance.getEntriesByName('first-contentful-paint')[0].startTime,"
        "performance.getEntriesByType('navigation')[0].loadEventEnd];")
    browser.wait(ROWS)
    # Nobody types within a second.
    time.sleep(1)
    return [paint, loaded, *(browser.run(CHANGE, *one) for one in FILTERS)]


def use(browser, page, pictures):
    # The better of several, since other programs take turns on the cores.
    paint, loaded, *times = map(min, zip(*(time_page(browser, page) for _ in range(LOADS))))
    check(paint <= PAINT, f"{SENTENCES} sentences are painted after {paint:.0f} ms, loaded after "
          f"{loaded:.0f} ms ({page.stat().st_size / 1e6:.1f} MB)")
    told = ", ".join(f"{kind} {value!r} {one:.0f}" for (kind, value), one in zip(FILTERS, times))
    check(max(times) <= FILTER, f"sentences are filtered within {FILTER} ms: {told}")
    browser.open("about:blank")
    browser.open(page)
    shown = ROWS
    first = browser.wait(shown)
    check(0 < first < 200, f"{first} sentences are made at first")
    browser.run("document.querySelector('.sentences tbody').lastElementChild.scrollIntoView();")
    # Scrolling is smooth, and takes a while.
    more = browser.wait(shown.replace("return", "return arguments[0] <", 1).replace(
        ";", " && document.querySelectorAll('.sentences tbody tr').length;"), first, seconds=10)
    check(more and more > first, f"{more} after scrolling")
    find = ("const input = document.querySelector('#sentence-list input'); input.value = "
            "arguments[0]; input.dispatchEvent(new Event('input'));")
    browser.run(find, "needle")
    text = browser.run("return document.querySelector('.sentences tbody tr').innerText;")
    check(browser.run(shown) == 1 and "<b>needle</b>" in text, "a sentence is found, as text")
    aligned(browser, text)
    browser.run(find, "")
    # By the keyboard alone: sorted by chrF2, from the lowest and from the highest.
    sort = ("document.querySelector('.sentences thead button[data-key=\"chrf 0\"]').focus();")
    scores = ("return [...document.querySelectorAll('.sentences tbody .score')].map(one =>"
              "Number(one.lastChild.textContent));")
    worst = browser.run(scores)
    browser.run(sort)
    browser.keys(ENTER)
    best = browser.run(scores)
    check(worst == sorted(worst) and best == sorted(best, reverse=True) and worst[0] < best[0],
          f"sorted by score, from {worst[0]} and from {best[0]}")
    # The best ones differ in nothing.
    browser.keys(ENTER)
    marked = "return document.querySelectorAll('.sentences ins, .sentences del').length;"
    check(browser.run(marked) > 0, "words that differ are marked")
    sift = ("const list = [...document.querySelectorAll('#sentence-list select')].at(-1);"
            "list.value = arguments[0]; list.dispatchEvent(new Event('change'));"
            "return document.querySelector('#sentence-list output').textContent;")
    check(browser.run(sift, "too_long") != browser.run(sift, ""), "sifted by flaw")
    browser.run("scrollTo(0, 0); document.querySelector('.chart').focus();")
    told = "return document.querySelector('.live .readout').textContent;"
    browser.keys(HOME)
    value = browser.run(told)
    check(value.endswith(" 100"), f"keys tell values: {value!r}")
    browser.keys(END)
    check(browser.run(told) != value, "and others at the end")
    spoken = browser.run("return document.querySelector('.live .unseen').textContent;")
    check("training" in spoken, f"for screen readers: {spoken!r}")
    browser.run("document.activeElement.blur();")
    browser.hover(".chart canvas")
    moved = browser.wait("return [...document.querySelectorAll('.live .readout')].filter(one =>"
                         "one.textContent).length;")
    check(moved > 1, f"a pointer tells values in {moved} charts at once")
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
    browser.resize(1280, 900)
    complaints = browser.complaints()
    check(not complaints, f"the browser complains of nothing {complaints}")


def aligned(browser, shown):
    """Words of the sentence that is shown and of its translation: by keys, and under a pointer."""
    marked = ("return ['is-own', 'is-linked'].map(name => [...document.querySelectorAll("
              "`.sentences .${name}`)].map(one => one.textContent));")
    browser.run("document.querySelector('.sentences .text[tabindex=\"0\"]').focus();")
    # 我, 爱, 你, <, b, > and needle.
    browser.keys(*[ARROW_RIGHT] * 7)
    own, linked = browser.run(marked)
    check(own == ["needle"] and len(linked) == 1 and linked[0] in shown,
          f"a word is shown with the one that it is aligned with: {own}, {linked}")
    spoken = browser.run("return document.querySelector('#sentence-list > .unseen').textContent;")
    check(spoken == f"needle: {linked[0]}", f"for screen readers: {spoken!r}")
    browser.keys(ESCAPE)
    check(browser.run(marked) == [[], []], "and hidden again")
    first = ".sentences tbody td:nth-of-type(3) .word"
    browser.run("document.querySelector(arguments[0]).scrollIntoView({ block: 'center',"
                "behavior: 'instant' });", first)
    browser.hover(first)
    told = browser.wait("const shown = (() => {" + marked + "})();"
                        "return shown[0].length && shown;", seconds=2)
    check(told == [linked, own], f"and from the translation, under the pointer: {told}")
    browser.run("scrollTo({ top: 0, behavior: 'instant' });")
    browser.hover("h1")


def look(browser, page, pictures):
    """Layers and heads of chosen sentences: by lists, on the wall, and by keys."""
    browser.open(page)
    shown = ("return [...document.querySelectorAll('.attention')].map(view =>"
             "[...view.querySelectorAll('.toolbar select')].map(list =>"
             "list.selectedOptions[0].text).join(' '));")
    first = browser.run(shown)
    check(first == ["cross 1 mean"] * 2, f"one choice for each sentence: {first}")
    choose = ("const list = document.querySelectorAll('.attention .toolbar select')[arguments[0]];"
              "list.value = arguments[1]; list.dispatchEvent(new Event('change'));" + shown)
    check(browser.run(choose, 2, "2") == ["cross 1 2", "cross 1 mean"], "a head is chosen")
    check(browser.run(choose, 0, "1") == ["encoder 1 2", "cross 1 mean"], "and a part")
    browser.run("document.querySelectorAll('.attention')[1].querySelector('.matrix').focus();")
    browser.keys("l", "j")
    keyed = browser.run(shown)
    check(keyed[0] == "encoder 1 2" and keyed[1] != first[1], f"keys: {keyed}")
    browser.run("document.querySelectorAll('.attention')[1].querySelectorAll('.thumb')[1].click();")
    check(browser.run(shown)[1] == "cross 1 2", "the wall")
    sums = browser.run(
        "return [...document.querySelectorAll('.attention .matrix tbody tr')].map(row =>"
        "[...row.querySelectorAll('td')].reduce((sum, cell) => sum +"
        "Number(cell.style.getPropertyValue('--weight')), 0));")
    check(all(0.9 < one < 1.02 for one in sums), "rows of weights sum to 1")
    browser.run("document.querySelector('.attention button.token').focus();")
    spoken = browser.run("return document.querySelector('.ribbons .unseen').textContent;")
    check(":" in spoken, f"ribbons for screen readers: {spoken!r}")
    if pictures:
        browser.run("document.querySelector('#attention').scrollIntoView();")
        browser.picture(pictures / "report-attention.png")
    complaints = browser.complaints()
    check(not complaints, f"the browser complains of nothing {complaints}")


def travel(browser, page, pictures):
    """The journey of a sentence: played, scrubbed, and followed by the keyboard alone."""
    browser.open(page)
    place = "return document.querySelector('.where').textContent;"
    count = int(browser.run(place).split("/")[1])
    shown = "return document.querySelectorAll('.station:not(.is-ahead)').length;"
    check(count > 8 and browser.run(shown) == count, f"{count} stations, all drawn at first")
    slide = ("const one = document.querySelector(arguments[0]); one.value = arguments[1];"
             "one.dispatchEvent(new Event('input', {bubbles: true}));")
    browser.run(slide, ".transport input", 0)
    check(browser.run(shown) == 1, "drawn up to where it is")
    browser.run("document.activeElement.blur();")
    browser.keys(ARROW_RIGHT, ARROW_RIGHT, ARROW_LEFT)
    check(browser.run(place).startswith("2 /"), f"stepped by keys: {browser.run(place)}")
    browser.keys(" ")
    moved = browser.wait(place.replace("return", "return arguments[0] !==", 1), "2 / " + str(count),
                         seconds=10)
    browser.keys(" ")
    check(moved and browser.run("return document.querySelector('.play').textContent;") == "▶",
          "played and paused by the space bar")
    browser.run("document.querySelector('.station:has(.attention-field) .station-name').click();"
                "document.activeElement.blur();")
    browser.keys("l")
    head = ("return document.querySelector('.station.is-now .heads [aria-pressed=true]')"
            ".textContent;")
    check(browser.run(head).startswith("1"), f"a head by its key: {browser.run(head)}")
    sums = browser.run(
        "const rows = [...document.querySelectorAll('.inside tbody tr')];"
        "return [rows.length, rows.reduce((sum, row) => sum + Number(row.querySelector('.meter')"
        ".style.getPropertyValue('--share')), 0)];")
    check(sums[0] > 2 and abs(sums[1] - 1) < 0.01, f"softmax of q·k over {sums[0]} keys is 1")
    browser.run("document.querySelector('button.token').focus();")
    browser.keys(ENTER)
    followed = "return document.querySelectorAll('.ribbon.is-own').length;"
    check(browser.run(followed) > 1, "a token is followed")
    browser.keys(ESCAPE)
    check(browser.run(followed) == 0, "and no more")
    best = "return document.querySelector('.choice .is-chosen small').textContent;"
    before = browser.run(best)
    browser.run(slide, ".station:has(.choices) input", 20)
    hot = browser.run(best)
    check(hot != before and float(hot.split()[0]) < float(before.split()[0]),
          f"at a higher temperature {before} is {hot}")
    dropped = "return document.querySelectorAll('.beam text.is-dropped').length;"
    few = browser.run(dropped)
    browser.run(slide, ".station:has(.beam) input", 1)
    check(browser.run(dropped) > few, "a narrower beam drops more")
    pictures and browser.picture(pictures / "explain.png")
    complaints = browser.complaints()
    check(not complaints, f"the browser complains of nothing {complaints}")


def explained(browser, folder, make, taper, pictures):
    """Journeys to a label with its words, to tags, to hidden tokens, and to a caption."""
    last = ("return [...document.querySelectorAll('.station')].at(-1).querySelector('.choices');")
    cards = last.replace("return ", "return [...", 1).replace(";", ".children].map(card =>"
                                                              "card.innerText.split('\\n'));")
    for run, text in explained_runs(taper, folder / "small"):
        name, page = run.name, folder / f"explain-{run.name}.html"
        make("explain", run, text, "--html", page)
        browser.open(page)
        if name == "captions":
            caption = subprocess.run([taper, "predict", run, text], check=True, text=True,
                                     capture_output=True).stdout.strip().split("\t")[1]
            written = browser.run("return [...document.querySelectorAll('.the-text')].at(-1)"
                                  ".textContent;")
            patches = browser.run("return document.querySelectorAll('.token .image').length;")
            check(written == caption and patches == 8, f"a caption from 4 patches: {written!r}")
            shown = None
        else:
            shown = browser.run(cards)
        if name == "reviews":
            words = [card[0] for card in shown]
            check(words == text.split(), f"evidence of each word for a label: {words}")
        elif name == "tags":
            tags = [card[:2] for card in shown]
            check(tags[1] == ["stone", "B-PER"] and len(tags) == 6, f"a tag for each word: {tags}")
        elif name == "masked":
            told = subprocess.run([taper, "explain", run, text, "--json"], check=True, text=True,
                                  capture_output=True).stdout
            likeliest = json.loads(told)["choices"][0]["token"]
            check(len(shown) == 1 and shown[0][:2] == ["u … c", likeliest],
                  f"a token in place of a mask: {shown}")
        browser.run("document.querySelectorAll('.station-name')[2].click();")
        focus = browser.run("return document.querySelector('.inspector').innerText;")
        check(len(focus) > 40, "and its stations are told")
        pictures and browser.picture(pictures / f"explain-{name}.png")
        complaints = browser.complaints()
        check(not complaints, f"the browser complains of nothing {complaints}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("taper", nargs="?", default=ROOT / "target/release/taper", type=Path)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--screenshots", type=Path)
    parser.add_argument("--gallery", type=Path, metavar="FOLDER")
    parser.add_argument("--keep-layouts", action="store_true")
    arguments = parser.parse_args()
    begun = time.monotonic()
    for folder in (arguments.screenshots, arguments.gallery):
        folder and folder.mkdir(parents=True, exist_ok=True)

    def make(*words):
        subprocess.run([arguments.taper, *words], check=True, stdout=subprocess.DEVNULL)

    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        if arguments.gallery:
            made = pages_of_gallery(folder, arguments.run, make, arguments.taper)
            axe = accessibility_script(folder)
        else:
            run = make_run(folder)
            make("report", run)
        browser = Browser(folder)
        try:
            if arguments.gallery:
                layouts = Layouts(arguments.keep_layouts)
                gallery = Gallery(browser, arguments.gallery, axe, layouts)
                for page in made:
                    gallery.hang_file(page)
                if arguments.run:
                    hang_served(gallery, arguments.taper, arguments.run)
                arguments.keep_layouts and layouts.write()
            else:
                use(browser, run / "report.html", arguments.screenshots)
                explained(browser, folder, make, arguments.taper, arguments.screenshots)
                if arguments.run:
                    page = folder / "attention.html"
                    make("report", arguments.run, "--attention", "1,2", "-o", page)
                    look(browser, page, arguments.screenshots)
                    page = folder / "explain.html"
                    make("explain", arguments.run, "I love you.", "--html", page)
                    travel(browser, page, arguments.screenshots)
        finally:
            browser.close()
    print(f"in {(time.monotonic() - begun) / 60:.1f} minutes")
    sys.exit(1 if check.failed else 0)


main()
