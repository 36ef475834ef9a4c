"""Every kind of page at four widths, in both themes: pictures, layout, accessibility."""

import base64
import json
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from pathlib import Path

from browser import check
from layouts import BOXES

sys.path.insert(0, str(Path(__file__).resolve().parent / "serve"))
from server import Serving, make_runs, write_picture

ROOT = Path(__file__).resolve().parents[2]
WIDTHS = [360, 800, 1200, 2000]
HEIGHT = 900
# Bytes of a page without its data.
MOST_BYTES = 400_000
# Share of a window of 1,200 pixels that may be empty.
MOST_EMPTY = 0.4
AXE = "axe-core@4"

# What may not lie over each other, in groups of siblings.
LAYOUT = """
const box = one => one.getBoundingClientRect();
const name = one => `${one.tagName.toLowerCase()}.${one.className?.baseVal ?? one.className}`
  + ` "${one.textContent.trim().slice(0, 30)}"`;
const isSeen = one => one.checkVisibility() && !one.closest('.unseen, .skip');
const problems = [];
const wide = document.documentElement.scrollWidth;
if (wide > innerWidth) problems.push(`the page is ${wide} pixels wide`);
const groups = ['.stats', '.figures', '.panels', 'header', '.toolbar', '.tools', '.legend',
  '.figure-head', '.wall-row', '.tokens', '.live', '.sentence-tools', '.tablist', 'main',
  '.transport', '.heads', '.lane', '.drawn', '.sides', '.cards', '.more', '.turns', '.turn',
  '.side', '.pictures'];
for (const group of document.querySelectorAll(groups.join())) {
  const own = [...group.children].filter(isSeen);
  own.forEach((one, at) => own.slice(at + 1).forEach(other => {
    if (getComputedStyle(one).position === 'sticky') return;
    const [left, right] = [box(one), box(other)];
    const across = Math.min(left.right, right.right) - Math.max(left.left, right.left);
    const down = Math.min(left.bottom, right.bottom) - Math.max(left.top, right.top);
    if (across > 1 && down > 1) problems.push(`${name(one)} lies over ${name(other)}`);
  }));
}
for (const one of document.querySelectorAll('main *, header *')) {
  const style = getComputedStyle(one);
  if (!isSeen(one) || !one.clientWidth || style.textOverflow === 'ellipsis') continue;
  const hides = ['hidden', 'clip'].includes(style.overflowX);
  if (hides && one.scrollWidth > one.clientWidth + 1) problems.push(`${name(one)} is cut`);
}
return problems;
"""
# The largest share that is empty of a window's height of the page, in squares of 20 pixels.
EMPTY = """
const parts = 'figure, .stat, table, pre, p, header, nav, .toolbar, .sentence-tools, .ribbons,'
  + '.wall-row, h2, h3, .parallel, .legend, details, .tablist, li, .drawn, textarea, .turns, .drop,'
  + '.text';
const seen = [...document.querySelectorAll(parts)].filter(one => one.checkVisibility());
const side = 20, high = document.documentElement.scrollHeight;
let boxes = [];
const covered = (x, y) => boxes.some(box => x >= box.left - side && x < box.right + side
  && y >= box.top + scrollY - side && y < box.bottom + scrollY + side);
let most = [0, 0];
for (let top = 0; top < Math.min(high, 20000); top += innerHeight) {
  const end = Math.min(high - 80, top + innerHeight);
  if (end - top < innerHeight / 2) continue;
  // Some parts follow the window.
  scrollTo({ top, behavior: 'instant' });
  boxes = seen.map(one => one.getBoundingClientRect());
  let empty = 0, all = 0;
  for (let y = top + side / 2; y < end; y += side) {
    for (let x = side / 2; x < innerWidth; x += side) { all++; if (!covered(x, y)) empty++; }
  }
  if (empty / all > most[0]) most = [empty / all, top];
}
scrollTo({ top: 0, behavior: 'instant' });
return most;
"""


# Waits until what a change of the window or the theme has moved is drawn.
SETTLED = """
return new Promise(done => requestAnimationFrame(() => setTimeout(() =>
  requestAnimationFrame(() => setTimeout(() => done(true), 60)))));
"""
# Addresses of what a page loaded from elsewhere: a file loads nothing, a served page of its server.
LOADED = """
return performance.getEntriesByType('resource').map(one => one.name).filter(name =>
  !/^(data|blob):/.test(name) && (location.protocol === 'file:'
    || !name.startsWith(`${location.origin}/`)));
"""


def accessibility_script(folder):
    """The script of axe-core, from npm."""
    subprocess.run(["npm", "pack", AXE, "--silent", "--pack-destination", folder], check=True,
                   stdout=subprocess.DEVNULL)
    with tarfile.open(next(Path(folder).glob("axe-core-*.tgz"))) as packed:
        return packed.extractfile("package/axe.min.js").read().decode()


# Runs that explain a text, or the picture of this name: a label, tags, a hidden token, a caption.
EXPLAINED = {"reviews": "red birds sing 3", "tags": "mr stone sings in red town",
             "masked": "the qu<mask>ck brown", "captions": "row.png"}


def explained_runs(taper, folder):
    """Runs of `EXPLAINED`, each with its text or the path of its picture."""
    folder.mkdir()
    picture = write_picture(folder / "row.png")
    texts = EXPLAINED | {"captions": picture}
    return [(run, texts[run.name]) for run in make_runs(taper, folder, list(EXPLAINED))]


def small_run(folder, name, updates, width):
    """A run as training leaves it, with layers, and three lines that were translated."""
    text, run = folder / "few", folder / name
    text.mkdir(exist_ok=True)
    (run / "translations").mkdir(parents=True)
    lines = {"train.en": ["a house", "a tree", "I love you"], "train.zh": ["房子", "树", "我爱你"],
             "test.en": ["I love you.", "<b>Houses</b> & trees", "It is late."] * 20,
             "test.zh": ["我爱你。", "房子和树", "很晚了。"] * 20}
    for file, content in lines.items():
        (text / file).write_text("\n".join(content) + "\n")
    told = ["我爱你。", "树树树树" if updates < 500 else "房子与树", "很晚" if width < 200 else "很晚了。"]
    (run / "translations/test.txt").write_text("\n".join(told * 20) + "\n")
    # Which characters of the first of three sentences are aligned.
    links = [[0, 1, 0, 1], [2, 6, 1, 2], [7, 10, 2, 3], [10, 11, 3, 4]]
    (run / "translations/test.links.jsonl").write_text(f"{links}\n[]\n[]\n" * 20)
    bleu = 20 + updates / 50
    (run / "scores.json").write_text(json.dumps([{
        "split": "test", "sentences": 60, "bleu": {"score": bleu}, "chrf": {"score": bleu + 9}}]))
    (run / "config.toml").write_text(
        f'name = "{name}"\n[data]\ndir = "{text}"\nsource_language = "en"\n'
        f'target_language = "zh"\ntrain = "train"\nvalidation = ""\ntest = ["test"]\n'
        f'[model]\nd_model = {width}\nheads = 4\n[training]\nmax_updates = {updates}\n'
        '[evaluation]\ntokenize = "zh"\n')
    with open(run / "metrics.jsonl", "w") as log:
        for step in range(10, updates + 1, 10):
            nll = 0.5 + 8 * step ** -0.5 + 0.1 * (step * 7919 % 13) / 13
            norms = lambda layer: {"gradient": nll / (layer + 1), "weight": 3 + layer}
            layers = {f"encoder.layers.{layer}": norms(layer) for layer in range(6)}
            print(json.dumps({
                "event": "log", "step": step, "epoch": 0, "loss": nll + 1, "nll": nll,
                "accuracy": 1 - nll / 9, "learning_rate": 0.1 * step ** -0.5, "gradient_norm": nll,
                "layers": layers, "tokens": step * 4000, "window_tokens": 40_000,
                "timing": {"elapsed_seconds": step * width / 100, "tokens_per_second": 4e6 / width}
            }), file=log)
            if step % 50 == 0:
                print(json.dumps({
                    "event": "validation", "step": step, "epoch": 0, "improved": True,
                    "scores": {"loss": nll + 1, "nll": nll + 0.1, "bleu": 20 + step / 50,
                               "chrf": 29 + step / 50, "accuracy": 1 - nll / 9},
                    "timing": {"elapsed_seconds": step}}), file=log)
    return run


def pages_of_gallery(folder, trained, make, taper):
    """Pages of each kind: the components, a report, a comparison, and of a trained run more."""
    subprocess.run(["cargo", "run", "--release", "--offline", "--quiet", "-p", "taper-plots",
                    "--example", "gallery", "--", folder], check=True, cwd=ROOT)
    pages = [folder / "gallery-en.html", folder / "gallery-zh.html"]
    runs = [small_run(folder, *one) for one in
            [("small", 400, 128), ("wide", 400, 256), ("long", 900, 128), ("large", 900, 256)]]
    for language in ("en", "zh"):
        make("report", runs[0], "--language", language, "-o", folder / f"report-{language}.html")
        make("compare", *runs, "--language", language, "--html",
             folder / f"compare-{language}.html")
        pages += [folder / f"report-{language}.html", folder / f"compare-{language}.html"]
        if trained:
            text = "I love you."
            make("attention", trained, text, "--language", language, "--html",
                 folder / f"attention-{language}.html")
            make("explain", trained, text, "--language", language, "--html",
                 folder / f"explain-{language}.html")
            # With what training recorded of the data, and two chosen sentences.
            make("report", trained, "--attention", "1,2", "--language", language, "-o",
                 folder / f"report-trained-{language}.html")
            pages += [folder / f"{kind}-{language}.html"
                      for kind in ("attention", "explain", "report-trained")]
    for run, text in explained_runs(taper, folder / "small-runs"):
        pages.append(folder / f"explain-{run.name}.html")
        make("explain", run, text, "--html", pages[-1])
    return pages


# What is shown of the answers of tasks that read a picture.
PICTURED = {"captions": ".target", "image-text": ".chances", "image-classification": ".chances"}
# What is shown of each task, and what says that it is.
SHOWN = {
    "chat": ("document.getElementById('chat-temperature').value = 0;"
             "document.getElementById('chat-tokens').value = 20;"
             "document.getElementById('said').value = 'sky';"
             "document.getElementById('chat-form').requestSubmit();",
             "return !document.getElementById('send').disabled"
             " && document.querySelector('#chats .is-assistant');"),
    "language-model": ("document.querySelectorAll('#runs input')[1].click();"
                       "document.getElementById('prompt').value = 'the quick';"
                       "document.getElementById('go').click();",
                       "return document.querySelector('#texts .written');"),
    "classification": ("const field = document.getElementById('to-label');"
                       "field.value = 'red birds sing 3\\nold stones fall 4';"
                       "field.dispatchEvent(new Event('input'));",
                       "return document.querySelectorAll('.evidence .token').length > 7;"),
    "tagging": ("const field = document.getElementById('to-tag');"
                "field.value = 'mr stone sings in red town\\nred town sings in mr stone';"
                "field.dispatchEvent(new Event('input'));",
                "return document.querySelector('#tagging .span');"),
    "question-answering": ("document.getElementById('context').value = 'amber has 23.';"
                           "const field = document.getElementById('questions');"
                           "field.value = 'amber?'; field.dispatchEvent(new Event('input'));",
                           "return document.querySelector('#question-answering .target');"),
    **{task: ("", f"return document.querySelector('#{task} {shown}');") for task, shown in PICTURED
       .items()},
}


def hang_served(gallery, taper, run):
    """Hangs the page of `taper serve`: in both languages with a text that was translated, and with
    each other task."""
    with tempfile.TemporaryDirectory() as made:
        server = Serving(taper, [run, *make_runs(taper, Path(made))])
        try:
            hang_pages(gallery, server)
        finally:
            server.end()


def hang_pages(gallery, server):
    """Hangs the page of a server."""
    browser = gallery.browser

    def opening(language):
        # The same address again would only scroll.
        browser.open("about:blank")
        browser.open(f"{server.url}/?lang={language}#text=I+love+you.&terms=tea+%3D+%E8%8C%B6")
        browser.wait("return document.querySelector('.card:not(.is-old) .target .token');")

    def showing(task):
        act, is_shown = SHOWN[task]
        browser.open("about:blank")
        browser.open(f"{server.url}/?lang=en")
        browser.wait("return document.querySelector('#tasks button');")
        browser.run(f"document.querySelector('#tasks button[value={task}]').click();" + act)
        if task in PICTURED:
            browser.give_picture(f"#{task} input")
        browser.wait(is_shown)

    for language in ("en", "zh"):
        with urllib.request.urlopen(f"{server.url}/?lang={language}") as answer:
            size = len(answer.read())
        check(size < MOST_BYTES, f"serve-{language} has {size / 1000:.0f} KB")
        gallery.hang(f"serve-{language}", lambda: opening(language))
    for task in SHOWN:
        gallery.hang(f"serve-{task}", lambda: showing(task))


# What axe-core checks in a theme: all, or what its colours can change.
RULES = {"light": {"resultTypes": ["violations"]},
         "dark": {"resultTypes": ["violations"],
                  "runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}}
AXE_RUN = """
return axe.run(document, arguments[0]).then(found => found.violations.map(one => one.id + ': '
  + one.nodes.slice(0, 3).map(node => node.html.slice(0, 120) + ' '
  + (node.any[0]?.message ?? '')).join(' | ')));
"""


class Gallery:
    """Where pages are hung, and what they are checked with."""

    def __init__(self, browser, folder, axe, layouts):
        self.browser, self.folder, self.axe, self.layouts = browser, folder, axe, layouts

    def hang(self, name, opening):
        """Photographs a page, and checks its layout, what axe-core says of it, and that it is
        alone. It is loaded once for each width, and changes its theme while it is open."""
        for width in WIDTHS:
            self.browser.develop("Emulation.setDeviceMetricsOverride", width=width, height=HEIGHT,
                                 deviceScaleFactor=1, mobile=width < 500)
            opening()
            has_axe = self.axe and width in (360, 1200)
            if has_axe:
                self.browser.run(self.axe)
            for theme in ("light", "dark"):
                self.hang_theme(name, theme, width, has_axe)
        loaded = self.browser.run(LOADED)
        check(not loaded, f"{name}: nothing is loaded from elsewhere {loaded}")
        self.browser.desktop()
        self.browser.develop("Emulation.setEmulatedMedia", features=[])
        complaints = self.browser.complaints()
        check(not complaints, f"{name}: the browser complains of nothing {complaints}")

    def hang_theme(self, name, theme, width, has_axe):
        """Checks an open page in a theme."""
        browser, what = self.browser, f"{name}, {theme}, {width}"
        browser.develop("Emulation.setEmulatedMedia",
                        features=[{"name": "prefers-color-scheme", "value": theme}])
        # Figures are drawn after the page, and anew in another theme.
        browser.wait("return !document.querySelector('svg.plot[data-plot]')"
                     " && matchMedia(`(prefers-color-scheme: ${arguments[0]})`).matches;", theme,
                     seconds=20)
        browser.run(SETTLED)
        problems = browser.run(LAYOUT)
        check(not problems, f"{what}: {'; '.join(problems[:4]) or 'in its place'}")
        self.layouts.check(check, name, width, theme, browser.run(BOXES))
        if width == 1200 and theme == "dark":
            share, top = browser.run(EMPTY)
            check(share <= MOST_EMPTY, f"{what}: {share:.0%} empty at {top}")
        if has_axe:
            said = browser.run(AXE_RUN, RULES[theme])
            check(not said, f"{what}: {'; '.join(said) or 'axe-core finds nothing'}")
        high = min(6000, browser.run("return document.documentElement.scrollHeight;"))
        clip = {"x": 0, "y": 0, "width": width, "height": high, "scale": 1}
        shot = browser.develop("Page.captureScreenshot", captureBeyondViewport=True, clip=clip,
                               optimizeForSpeed=True)
        (self.folder / f"{name}-{theme}-{width}.png").write_bytes(base64.b64decode(shot["data"]))

    def hang_file(self, page):
        """Hangs a page that is a file."""
        size = page.stat().st_size
        check(size < MOST_BYTES, f"{page.stem} has {size / 1000:.0f} KB")

        def opening():
            # The same address again would keep what was done to the page.
            self.browser.open("about:blank")
            self.browser.open(page)

        self.hang(page.stem, opening)
