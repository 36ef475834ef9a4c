#!/usr/bin/env python3
"""Uses the page of `taper serve` in headless Chromium, as people do.

    scripts/check/serve/page.py RUN [--taper TAPER] [--screenshots FOLDER] [--figure FILE]

RUN is a run of configs/quickstart.toml. Checks that a translation follows what is typed, that stale
ones do not come, alternatives, alignments under the pointer and by keys, layers and heads, files
and documents in and out, chosen and dropped, two runs side by side, texts that grow, conversations,
labels and the words that speak for them, tags, answers to questions, captions and texts of
pictures, the other language and theme, a telephone, names of all controls for screen readers, and
that the browser complains of nothing.
--figure writes the picture of the page that the README has.

Needs Python 3.11, Chromium and chromedriver (Debian: chromium, chromium-driver), and nothing else.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from browser import Browser, check
from server import TAPER, Serving, copy_of, make_runs

TARGET = "return [...document.querySelectorAll(`#translations .card`)].map(card =>" \
         "card.classList.contains('is-old') ? null :" \
         "[...card.querySelectorAll('.target')].map(one => one.textContent).join('\\n'));"
RIGHT, HOME, ENTER = "\ue014", "\ue011", "\ue007"


def shown(browser, expected, cards=1, seconds=60):
    """Waits until every card shows a text; the texts."""
    script = TARGET.replace("return ", "const texts = ", 1) + \
        "return texts.length === arguments[1] && texts.every(text => text === arguments[0])" \
        " && texts;"
    return browser.wait(script, expected, cards, seconds=seconds) or browser.run(TARGET)


def translation(browser, pictures, folder, taper, run):
    browser.wait("return !document.getElementById('translation').hidden;")
    ready = browser.run("return performance.now();")
    check(ready < 5000, f"the page is ready {ready:.0f} ms after it was asked for")
    begun = time.monotonic()
    browser.type("#source", "I love you.")
    texts = shown(browser, "我爱你。", 2)
    check(texts == ["我爱你。"] * 2, f"typed, translated by both runs: {texts} "
          f"{time.monotonic() - begun:.2f} s after the first key")
    scores = browser.run("return [...document.querySelectorAll('#translations .card:first-child "
                         ".others li span:last-child')].map(one => Number(one.textContent));")
    check(len(scores) == 3 and scores == sorted(scores, reverse=True), f"alternatives {scores}")
    best = "const tokens = [...document.querySelectorAll('#translations .card:first-child .read " \
           ".token')]; const weight = one => Number(one.style.getPropertyValue('--weight'));" \
           "return tokens.sort((one, other) => weight(other) - weight(one))[0].textContent.trim();"
    pairs = {}
    for number, token in enumerate("我爱你", 1):
        browser.hover(f"#translations .card:first-child .target .token:nth-child({number})")
        pairs[token] = browser.wait(best)
    check(pairs == {"我": "I", "爱": "love", "你": "you"}, f"under the pointer: {pairs}")
    pictures and browser.picture(pictures / "hover.png")
    browser.run("document.querySelector('#translations .card:first-child .target').focus();")
    browser.keys(HOME, RIGHT)
    spoken = browser.run("return document.getElementById('spoken').textContent;")
    check("爱" in spoken and "love" in spoken, f"by keys, for screen readers: {spoken!r}")
    open_ = ("document.querySelector('#translations .card:first-child "
             "details:has(.choices) summary').click();")
    browser.run(open_)
    sizes = "const rows = [...document.querySelectorAll('.grid tbody tr')];" \
            "return rows.length && [rows.length, ...rows.map(row => [...row.children].slice(1)" \
            ".reduce((sum, cell) => sum + Number(cell.style.getPropertyValue('--weight')), 0))];"
    rows = browser.wait(sizes)
    check(bool(rows) and all(abs(one - 1) < 0.02 for one in rows[1:]),
          f"attention: {rows and rows[0]} rows of weights that sum to 1")
    cells = "return [...document.querySelectorAll('.grid td')].map(one => one.textContent).join();"
    choose = "const list = document.querySelector(`select[data-name=${arguments[0]}]`);" \
             "list.value = arguments[1]; list.dispatchEvent(new Event('change'));"
    seen = {browser.run(cells)}
    for name, value in [("head", "1"), ("head", "2"), ("layer", "2"), ("part", "encoder"),
                        ("part", "decoder")]:
        browser.run(choose, name, value)
        seen.add(browser.run(cells))
    check(len(seen) == 6, f"{len(seen)} views of parts, layers and heads")
    browser.run(choose, "part", "cross")
    pictures and browser.picture(pictures / "attention.png")
    browser.run(open_)
    # Each key takes back what was asked for the one before.
    browser.click("#clear")
    for key in "She loves him.":
        browser.type("#source", key)
    expected = subprocess.run([taper, "translate", run], input="She loves him.\n", text=True,
                              capture_output=True, check=True).stdout.strip()
    texts = shown(browser, expected, 2)
    check(texts == [expected] * 2, f"the last of many: {texts}")
    escaped = "<img src=x onerror=alert(1)>"
    browser.click("#clear")
    browser.type("#source", escaped)
    browser.wait("return document.querySelectorAll('.card:not(.is-old) .read').length === 2;")
    check(not browser.run("return document.querySelectorAll('#translations .card img').length;"),
          "what is typed is text")
    # One of the two is left out.
    browser.run("document.querySelectorAll('#runs input')[1].click();")
    lines = ["I love you.", "", "She loves him."] * 20
    (folder / "in.txt").write_text("\n".join(lines) + "\n")
    browser.type("#file", str(folder / "in.txt"))
    browser.wait("return document.getElementById('save').disabled;", seconds=5)
    browser.wait("return !document.getElementById('save').disabled;")
    browser.click("#save")
    saved = folder / f"{run.name}.zh.txt"
    for _ in range(200):
        if saved.exists():
            break
        time.sleep(0.05)
    expected = subprocess.run([taper, "translate", run, "--input", folder / "in.txt"], text=True,
                              capture_output=True, check=True).stdout
    check(saved.exists() and saved.read_text() == expected,
          f"a file of {len(lines)} lines in and out is what taper translate gives")
    document(browser, folder, taper, run)
    browser.run("document.querySelectorAll('#runs input')[1].click();")


def document(browser, folder, taper, run):
    """A document in and out."""
    page = folder / "page.html"
    page.write_text("<p>I love you.</p>\n<p>She <b>loves</b> him.</p>\n" * 30)
    browser.type("#document", str(page))
    browser.wait("return !!document.querySelector('#document-list a');")
    # By the keyboard: of the files that scripts ask for, Chromium saves the first alone.
    browser.run("document.querySelector('#document-list a').focus();")
    browser.keys(ENTER)
    saved = folder / "page.zh.html"
    for _ in range(200):
        if saved.exists():
            break
        time.sleep(0.05)
    expected = folder / "expected.html"
    subprocess.run([taper, "translate", run, "--file", page, "--output", expected], check=True,
                   capture_output=True)
    check(saved.exists() and saved.read_text() == expected.read_text(),
          "a document in and out is what taper translate --file gives")
    # Wherever a file is dropped: a document is translated, and a text goes into the field.
    drop = """
        const box = new DataTransfer(), place = document.querySelector(arguments[0]);
        box.items.add(new File([arguments[2]], arguments[1]));
        const event = name => new DragEvent(name,
          { dataTransfer: box, bubbles: true, cancelable: true });
        place.dispatchEvent(event('dragover'));
        const isMarked = getComputedStyle(document.getElementById('documents')).borderTopStyle;
        place.dispatchEvent(event('drop'));
        return isMarked;"""
    marked = browser.run(drop, "h1", "dropped.md", "# I love you.\n")
    names = browser.wait("const names = [...document.querySelectorAll('#document-list a')].map(one"
                         " => one.textContent); return names.length > 1 && names;")
    check(marked == "solid" and names and names[1] == "dropped.zh.md",
          f"a document is dropped on the page: {marked}, {names}")
    browser.run(drop, "h1", "strange.xyz", "?")
    said = browser.wait("return document.querySelector('#document-list .error')?.textContent;")
    check(said and "strange.xyz" in said or "xyz" in (said or ""), f"what is no document: {said}")
    browser.run(drop, "#translations", "two.txt", "She loves him.")
    text = browser.wait("return document.getElementById('source').value === 'She loves him.';")
    check(text, "a text is dropped into the field")


def words(browser, url, pictures):
    """Words of a translation that are replaced, terms, history and shared addresses."""
    browser.open("about:blank")
    browser.open(f"{url}/?lang=en#text=I+love+you.")
    texts = shown(browser, "我爱你。", 2)
    check(texts == ["我爱你。"] * 2, f"the text of an address is translated: {texts}")
    first = "document.querySelector('#translations .card:first-child {}')"
    browser.run(first.format(".target") + ".focus();")
    browser.keys(HOME, RIGHT, ENTER)
    offers = browser.wait("return [...document.querySelectorAll('.offers button')].map(one =>"
                          "one.firstChild.textContent);")
    check("爱" in offers and len(offers) > 1, f"words that could stand there: {offers}")
    pictures and browser.picture(pictures / "offers.png")
    browser.run("[...document.querySelectorAll('.offers button')].find(one =>"
                "one.firstChild.textContent !== '爱').click();")
    chosen = browser.run(f"return {first.format('.target')}.textContent;")
    check(chosen.startswith("我") and chosen != "我爱你。", f"the search goes on from there: {chosen}")
    marked = browser.run(f"return {first.format('.target')}.querySelectorAll('.is-new').length;")
    check(marked > 0, "and what is new is marked")
    browser.run("document.querySelector('details:has(#glossary)').open = true;")
    browser.type("#glossary", "you = 他们")
    texts = browser.wait("const texts = [...document.querySelectorAll('#translations .card:not("
                         ".is-old) .target')].map(one => one.textContent);"
                         "return texts.length === 2 && texts.every(one => one.includes('他们'))"
                         " && texts;", seconds=20)
    check(texts, f"a term is in the translation: {texts}")
    browser.click("#share")
    hash_ = browser.wait("return location.hash.includes('terms') && location.hash;")
    check(hash_ and "I+love+you." in hash_, f"an address is shared: {hash_}")
    kept = browser.wait("return document.querySelectorAll('#history li').length;", seconds=20)
    check(kept == 1, "what was translated is in the history")
    browser.run("document.querySelector('#history-of').open = true;")
    browser.run("document.querySelector('#forget').click();")
    check(browser.run("return document.querySelectorAll('#history li').length;") == 0,
          "and is forgotten")
    browser.open("about:blank")
    browser.open(f"{url}/?lang=en")
    browser.wait("return !document.getElementById('translation').hidden;")


def growing(browser, pictures):
    browser.run("document.querySelector('#tasks button[value=language-model]').click();")
    # The other language model has never seen some of these letters.
    browser.run("document.querySelectorAll('#runs input')[1].click();")
    browser.type("#prompt", "the quick")
    browser.run("document.getElementById('max-tokens').value = 400;"
                "document.getElementById('temperature').value = 0;")
    # The page itself looks at what it shows: between two looks from here a text is all written.
    # It is stopped once it has `arguments[0]` characters.
    watch = """
        const place = document.querySelector('#texts .text'), most = arguments[0];
        window.seen = new Set();
        new MutationObserver(() => {
          seen.add(place.textContent.length);
          if (place.textContent.length >= most) document.getElementById('stop').click();
        }).observe(place, { childList: true, subtree: true, characterData: true });
        document.getElementById('go').click();"""
    ended = "return !document.getElementById('go').disabled;"
    text = "return document.querySelector('#texts .text').textContent;"
    browser.run(watch, 1_000_000)
    browser.wait(ended)
    written, lengths = browser.run(text), browser.run("return seen.size;")
    check(lengths > 2 and written.startswith("the quick brown fox") and len(written) == 409,
          f"a text grows: {len(written)} characters, seen at {lengths} lengths")
    shades = browser.run("return document.querySelectorAll('#texts .written').length;")
    check(shades > 99, f"{shades} tokens in the shade of their probability")
    pictures and browser.picture(pictures / "text.png")
    browser.run("document.getElementById('max-tokens').value = 1000;")
    browser.run(watch, 40)
    browser.wait(ended)
    state = browser.run("return document.querySelector('#texts [role=status]').textContent;")
    written = browser.run(text)
    check(state == "stopped" and 40 <= len(written) < 1000,
          f"and is {state} at {len(written)} characters")


def asked(url, body):
    """Answer of the server to a request."""
    request = urllib.request.Request(url, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def said_by(url, *messages):
    """Answer of the server to a conversation, whose turns alternate."""
    roles = ["user", "assistant"] * len(messages)
    body = {"model": "chat", "max_tokens": 20, "temperature": 0, "messages": [
        {"role": role, "content": text} for role, text in zip(roles, messages)]}
    return asked(f"{url}/v1/chat/completions", body)["choices"][0]["message"]["content"]


def conversation(browser, url, pictures):
    """Turns with the chat template: each answer is that to all turns before it."""
    browser.run("document.querySelector('#tasks button[value=chat]').click();"
                "document.getElementById('chat-temperature').value = 0;"
                "document.getElementById('chat-tokens').value = 20;")
    turns = ("return !document.getElementById('send').disabled"
             " && [...document.querySelectorAll('#chats .turn p')].map(one => one.textContent);")
    first, second = said_by(url, "sky"), said_by(url, "sky", said_by(url, "sky"), "coal")
    browser.type("#said", "sky" + ENTER)
    check(browser.wait(turns) == ["sky", first] and first == "blue", f"a question: {first}")
    browser.type("#said", "coal" + ENTER)
    shown = browser.wait(turns)
    check(shown == ["sky", first, "coal", second], f"and another after it: {shown}")
    told = browser.run("return document.querySelector('#chats [role=status]').textContent;")
    check("at most 96" in told, f"tokens of the conversation: {told!r}")
    pictures and browser.picture(pictures / "chat.png")
    browser.run("document.getElementById('chat-scores').checked = true;")
    browser.click("#answer-again")
    shades = "return document.querySelectorAll('#chats .turn:last-child .written').length;"
    check(browser.wait(shades) == len(second) and browser.wait(turns)[3] == second,
          "answered again, with the probability of each token")
    browser.run("document.getElementById('chat-scores').checked = false;"
                "document.querySelectorAll('#chats .turn button')[1].click();")
    value = browser.run("return document.getElementById('said').value;")
    check(value == "coal" and browser.wait(turns) == ["sky", first], "a message is taken back")
    browser.run("document.getElementById('said').value = '';")
    browser.type("#said", "\ue008" + ENTER + "\ue000snow")
    value = browser.run("return document.getElementById('said').value;")
    check(value == "\nsnow", f"Shift and Enter begin a line: {value!r}")
    browser.run("document.getElementById('said').value = '';")
    browser.click("#chat-clear")
    check(not browser.wait(turns, seconds=1), "a new conversation")



def labels(browser, pictures):
    browser.run("document.querySelector('#tasks button[value=classification]').click();")
    browser.type("#to-label", "red birds sing 3")
    shown = "return [...document.querySelectorAll('#classification {}')].map(one =>" \
            "one.textContent);"
    label = browser.wait(shown.format(".chances tr:first-child th"))
    check(label == ["yes"], f"a text is labelled: {label}")
    words = browser.wait(shown.format(".evidence .token"))
    check(words == ["red", " birds", " sing", " 3"], f"its words: {words}")
    browser.run("document.querySelector('#classification .evidence').focus();")
    browser.keys(RIGHT)
    told = browser.run(shown.format(".evidence + .muted"))[0]
    check("red" in told and "without it" in told, f"by keys, for screen readers: {told!r}")
    pictures and browser.picture(pictures / "labels.png")


def spans(browser, url, pictures):
    """Tags of words and answers to questions, which stand in the text that was typed."""
    shown = "return [...document.querySelectorAll('.tagged .span')].map(one => one.innerText);"
    browser.run("document.querySelector('#tasks button[value=tagging]').click();")
    browser.type("#to-tag", "mr stone sings in red town")
    found = browser.wait(shown.replace("return", "const found =", 1)
                         + "return found.length > 1 && found;")
    check(found == ["stone\u00a0PER", "red town\u00a0LOC"], f"words are tagged: {found}")
    pictures and browser.picture(pictures / "tags.png")
    context, question = "amber has 23. <b>coal</b> has 41.", "coal?"
    browser.run("document.querySelector('#tasks button[value=question-answering]').click();")
    browser.type("#context", context)
    browser.type("#questions", question)
    expected = asked(f"{url}/api/answer", {"question": question, "context": context})
    expected = expected["answers"][0]["answer"]
    read = browser.wait("return document.querySelector('#question-answering .read')?.innerText;")
    span = browser.run("return document.querySelector('#question-answering .span').textContent;")
    check(read == context and expected and span == expected, f"a question is answered: {span}")
    pictures and browser.picture(pictures / "answers.png")


def of_pictures(browser, pictures):
    """Labels, captions and texts of a picture."""
    for task, shown in {"image-classification": ".chances th", "captions": ".target",
                        "image-text": ".chances th"}.items():
        browser.run(f"document.querySelector('#tasks button[value={task}]').click();")
        browser.give_picture(f"#{task} input")
        found = browser.wait(f"return document.querySelector('#{task} {shown}')?.textContent;")
        check(found in ("row", "column", "a bright row", "this row"), f"{task}: {found}")
        wide = browser.wait(f"return document.querySelector('#{task} .preview').naturalWidth;")
        check(wide == 64, "and the picture is shown")
        pictures and browser.picture(pictures / f"{task}.png")
    browser.type("#candidates", "this row\nthis column")
    found = browser.wait("const names = [...document.querySelectorAll('#image-text .chances th')]"
                         ".map(one => one.textContent).sort().join();"
                         "return names === 'this column,this row' && names;")
    check(found, f"and compared with texts: {found}")
    browser.run("document.querySelector('#tasks button[value=translation]').click();")


def looks(browser, pictures):
    browser.click("#clear")
    browser.type("#source", "I love you.\nShe loves him.")
    browser.wait("return document.querySelectorAll('.card:not(.is-old) .line').length === 4;")
    ground = "return getComputedStyle(document.body).backgroundColor;"
    before = browser.run(ground)
    browser.run("document.getElementById('theme').click();")
    check(browser.run(ground) != before, "light and dark")
    pictures and browser.picture(pictures / "dark.png")
    browser.run("document.getElementById('theme').click();")
    browser.telephone()
    tasks = browser.run("return [...document.querySelectorAll('#tasks button')].map(one =>"
                        "one.value);")
    check(len(tasks) == 9, f"{len(tasks)} tasks")
    for task in [*tasks[1:], "translation"]:
        browser.run(f"document.querySelector('#tasks button[value={task}]').click();")
        wide = browser.run("return [document.documentElement.scrollWidth, innerWidth];")
        check(wide[0] <= wide[1] == 375, f"{task} on a telephone: {wide}")
    pictures and browser.picture(pictures / "telephone.png")
    browser.desktop()
    nodes = browser.develop("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "textbox", "combobox", "checkbox", "link", "spinbutton", "img"}
    nameless = [node["role"]["value"] for node in nodes
                if not node.get("ignored") and node.get("role", {}).get("value") in roles
                and not node.get("name", {}).get("value")]
    check(not nameless, f"every control has a name {nameless}")
    # What is no document was refused.
    problems = [one for one in browser.complaints() if "/api/translate-file" not in one["message"]]
    check(not problems, f"the browser complains of nothing {problems}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--taper", type=Path, default=TAPER)
    parser.add_argument("--screenshots", type=Path)
    parser.add_argument("--figure", type=Path)
    arguments = parser.parse_args()
    pictures = arguments.screenshots
    pictures and pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = [arguments.run.resolve()]
        if not arguments.figure:
            runs += [copy_of(arguments.run, folder, "second"), *make_runs(arguments.taper, folder)]
        server = Serving(arguments.taper, runs)
        browser = Browser(folder)
        try:
            browser.open(f"{server.url}/?lang=en")
            if arguments.figure:
                figure(browser, arguments.figure)
            else:
                translation(browser, pictures, folder, arguments.taper, runs[0])
                words(browser, server.url, pictures)
                growing(browser, pictures)
                conversation(browser, server.url, pictures)
                labels(browser, pictures)
                spans(browser, server.url, pictures)
                of_pictures(browser, pictures)
                looks(browser, pictures)
                browser.open(f"{server.url}/?lang=zh")
                said = browser.wait("return document.querySelector('#tasks button')?.textContent;")
                check(said == "翻译", f"in Chinese: {said}")
                pictures and browser.picture(pictures / "chinese.png")
        finally:
            browser.close()
            code = server.end()
        check(code == 0, "the server ends when it is asked to")
    sys.exit(1 if check.failed else 0)


def figure(browser, path):
    browser.develop("Emulation.setDeviceMetricsOverride", width=1000, height=600,
                    deviceScaleFactor=1, mobile=False)
    browser.wait("return !document.getElementById('translation').hidden;")
    browser.type("#source", "I love you.")
    browser.wait("return document.querySelector('.card:not(.is-old) .others li');")
    browser.click("#translations .card:first-child .target .token:nth-child(2)")
    browser.wait("return document.querySelectorAll('.offers button').length;")
    browser.hover("#translations .card:first-child .target .token:nth-child(3)")
    time.sleep(0.5)
    browser.picture(path)


main()
