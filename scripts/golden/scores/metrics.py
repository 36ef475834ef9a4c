#!/usr/bin/env python3
"""Scores made-up corpora with sacreBLEU, for the tests of taper-metrics to compare with.

Needs `sacrebleu` 2.x. Every corpus is invented here from a fixed seed, so the output
depends only on the versions that it records:

    python scripts/golden/scores/metrics.py crates/metrics/tests/golden/metrics.json.gz
"""

import gzip
import json
import platform
import random
import sys
import unicodedata

import sacrebleu
from sacrebleu.metrics import BLEU, CHRF

SEED = 20240229
TOKENIZERS = ["13a", "none", "char", "zh", "intl"]

ENGLISH = (
    "the a old harbour clerk gardener violin kettle never quietly carried opened painted "
    "behind under seven lamps because of rain and snow her brother's window isn't well-known "
    "train left at dawn while ships waited near bridge some letters were lost again today "
    "Margaret Dublin Tuesday they we it has been seen no one could say why"
).split()
GERMAN = (
    "der die das alte Gärtner Straße Größe Fußgängerübergang öffnete nie leise trug hinter "
    "sieben Lampen weil Regen und Schnee ihrem Bruder Fenster Zug fuhr ab während Schiffe "
    "warteten Brücke einige Briefe gingen verloren heute wieder Übung Äpfel Öl niemand wusste "
    "warum Donaudampfer Kindergarten-Kinder nicht mehr über für MASSE"
).split()
CHINESE = list("我们昨天在河边看见一只白色的鸟它很快飞走了老师说今年冬天比去年冷请把窗户关上谢谢你")
CHINESE_MARKS = list("，。！？：；「」（）、…—") + ["《", "》", "１２", "ＡＢＣ", "km", "3.5", "㎏", "〇"]
MARKS = [".", ",", "!", "?", ";", ":", "...", "--", "-", "'", '"', "(", ")", "[", "]", "/", "%", "&"]
MARKS += ["$", "+", "=", "<", ">", "@", "#", "*", "_", "{", "}", "|", "~", "^", "`", "\\", "“", "”"]
MARKS += ["’", "–", "—", "…", "«", "»", "€", "£", "°", "¿", "¡", "·", "§", "©", "×", "±", "→", "№"]
NUMBERS = ["7", "42", "3.14", "1,000", "1,000.50", "10-12", "2019-2020", "5%", "$9.99", "12:30", "½"]
NUMBERS += ["٣٫١٤", "１，０００", "४२", "Ⅷ", "²", "3.", ".5", "4,", "-6", "6-", "a1.b2", "1.a", "a.1"]
EMOJI = ["😀", "👍🏽", "👩‍🚀", "🇮🇪", "❤️", "🎻", "🏳️‍🌈", "1️⃣", "♞", "☃"]
SPACES = [" ", "  ", "\t", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\xa0", "\u1680"]
SPACES += ["\u2000", "\u2009", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\u200b", "\ufeff"]
CONTROLS = ["\x00", "\x07", "\x1b", "\x7f", "\xad", "\u200d", "\u200e", "\u2060", "\ufffd", "e\u0301"]
CASES = ["ΟΔΟΣ", "ΣΑΣ", "Σ", "ΑΣ.", "ΑΣ'Β", "İstanbul", "IŞIK", "ẞ", "Straße", "ǅ", "ﬁ", "Ǆ", "\u212a", "\u2126"]
ENTITIES = ["&quot;", "&amp;", "&lt;", "&gt;", "&amp;lt;", "&apos;", "<skipped>", "a&b", "AT&amp;T", "-\n", "\n"]
EVERYTHING = MARKS + NUMBERS + EMOJI + SPACES + CONTROLS + CASES + ENTITIES


def western(rng, words):
    """A sentence of a language with spaces."""
    count = rng.randint(3, 22)
    chosen = [rng.choice(words) for _ in range(count)]
    for _ in range(count // 6):
        chosen.insert(rng.randrange(len(chosen)), rng.choice(NUMBERS))
    sentence = " ".join(chosen)
    for _ in range(count // 5):
        index = rng.randrange(len(sentence) + 1)
        if sentence[index : index + 1] == " ":
            sentence = sentence[:index] + rng.choice(MARKS[:8]) + sentence[index:]
    return sentence[0].upper() + sentence[1:] + rng.choice([".", ".", "!", "?", "", " .", "…"])


def chinese(rng):
    """A sentence without spaces, mostly."""
    pieces = [rng.choice(CHINESE) for _ in range(rng.randint(4, 30))]
    for _ in range(len(pieces) // 5):
        pieces.insert(rng.randrange(len(pieces)), rng.choice(CHINESE_MARKS))
    return "".join(pieces) + rng.choice(["。", "！", "", " .", "\u3000"])


def mixture(rng):
    """Marks, numbers, emoji, odd spaces, controls, entities and words, joined at random."""
    pieces = []
    for _ in range(rng.randint(2, 25)):
        pieces.append(rng.choice(rng.choice([ENGLISH, GERMAN, CHINESE, EVERYTHING, EVERYTHING])))
        pieces.append(rng.choice(["", " ", " ", rng.choice(SPACES)]))
    return "".join(pieces)


def code_points(rng):
    """Characters from all over Unicode, assigned in the interpreter's version."""
    pieces = []
    while len(pieces) < 24:
        limit = rng.choice([0x80, 0x250, 0x3100, 0x10000, 0x20000, 0x30000])
        character = chr(rng.randrange(limit))
        if unicodedata.category(character) not in ("Cn", "Cs", "Co"):
            pieces.append(character * rng.choice([1, 1, 2]))
            pieces.append(rng.choice(["", "", " ", "1", "a", ".", ","]))
    return "".join(pieces)


def perturb(rng, sentence, strength):
    """The sentence with some words (or characters) dropped, swapped, repeated or replaced."""
    spaced = " " in sentence
    units = sentence.split(" ") if spaced else list(sentence)
    result = []
    for unit in units:
        if rng.random() >= strength:
            result.append(unit)
            continue
        action = rng.randrange(6)
        if action == 0:
            continue
        if action == 1:
            result += [unit, unit]
        elif action == 2 and result:
            result.insert(len(result) - 1, unit)
        elif action == 3:
            result.append(rng.choice(units))
        elif action == 4:
            result.append(unit.upper())
        else:
            result.append(rng.choice(ENGLISH if spaced else CHINESE))
    return (" " if spaced else "").join(result)


MAKERS = {
    "english": lambda rng: western(rng, ENGLISH),
    "german": lambda rng: western(rng, GERMAN),
    "chinese": chinese,
    "mixture": mixture,
    "code points": code_points,
}


def random_corpora(rng):
    """Corpora of each kind over sizes, strengths of perturbation and numbers of references."""
    for kind, make in MAKERS.items():
        for number in range(40):
            size = rng.choice([1, 1, 2, 3, 5, 12])
            strength = rng.choice([0.0, 0.1, 0.3, 0.6, 0.95])
            count = rng.choice([1, 1, 1, 2, 3, 5])
            originals = [make(rng) for _ in range(size)]
            references = [
                [perturb(rng, line, 0.2 if index else 0.0) for line in originals]
                for index in range(count)
            ]
            if count > 1 and number % 4 == 0:
                for stream in references[1:]:
                    stream[rng.randrange(size)] = None
            hypotheses = [perturb(rng, line, strength) for line in originals]
            yield f"{kind} {number}", hypotheses, references


def special_corpora():
    """Corpora at the edges of the definitions."""
    cat = "the cat sat on the mat ."
    yield "identical", [cat, "A second line, here."], [[cat, "A second line, here."]]
    yield "no matches", ["red green blue pink"], [["one two three four"]]
    yield "unigrams only", ["mat the on sat"], [["the sat mat on"]]
    yield "one token", ["word"], [["word"]]
    yield "one token differs", ["word"], [["sword"]]
    yield "one character", ["x"], [["x"]]
    yield "two tokens", ["two words"], [["two words"]]
    yield "three tokens", ["now three words"], [["now three more words"]]
    yield "all empty", ["", ""], [["", ""]]
    yield "empty hypotheses", ["", ""], [["a b c d", "e f g h i"]]
    yield "empty references", ["a b c d", "e f g h i"], [["", ""]]
    yield "some empty lines", ["", cat, ""], [[cat, cat, ""]]
    yield "only spaces", [" \t\u2028\x0b", "\x85\xa0"], [["\u3000", " "]]
    yield "only marks", ["... --- !!!", ".,.,.,"], [["... -- !!", ".,.,.,."]]
    yield "repeats", ["the the the the the the the"], [["the cat is on the mat"]]
    yield "long hypothesis", [cat * 7], [[cat]]
    yield "short hypothesis", ["the cat"], [[cat * 5]]
    yield "tie in length", ["a b c d e"], [["a b c d"], ["a b c d e f"]]
    yield "tie in length reversed", ["a b c d e"], [["a b c d e f"], ["a b c d"]]
    yield "tie in score", ["abc", cat], [["xyz uvw", cat], ["vwxyz uqr s", "the mat"]]
    yield "tie in score reversed", ["abc", cat], [["vwxyz uqr s", "the mat"], ["xyz uvw", cat]]
    yield "many references", [cat], [[cat[:n]] for n in range(1, 25)]
    yield "first reference empty", [cat], [[""], [cat], ["the mat"]]
    yield "trailing spaces", [cat + " \x1f\u2029"], [[cat + "\n"]]
    yield "tokenized endings", ["It rained ."] * 120, [["It rained ."] * 120]
    yield "quarters", ["a b c d e f g h i j k l m n o p"], [["a x b y c z d w e v f u g t h s"]]
    yield "upper case", [text.lower() for text in CASES], [CASES]
    yield "entities", [" ".join(ENTITIES), "&amp;lt;"], [["".join(ENTITIES), "<"]]
    yield "brackets", ["(hi) [there] 'you' -x- !"], [["( hi ) [ there ] 'you' - x - !!"]]


def bleu_options(rng, index):
    """Options of BLEU for a case; every tokenizer and smoothing comes round."""
    smoothing, value = [
        ("exp", None), ("floor", 0.1), ("floor", 0.37), ("add-k", 1.0), ("add-k", 2.5),
        ("none", None), ("floor", 0.0), ("add-k", 0.0),
    ][index % 8 if index % 3 else 0]  # fmt: skip
    return {
        "tokenizer": TOKENIZERS[index % 5],
        "smoothing": smoothing if value is None else {smoothing: value},
        "effective_order": rng.random() < 0.4,
        "lowercase": rng.random() < 0.3,
        "force": rng.random() < 0.2,
        "max_order": rng.choice([4, 4, 4, 1, 2, 3, 6]),
    }


def chrf_options(rng, index):
    """Options of chrF for a case."""
    return {
        "char_order": rng.choice([6, 6, 6, 1, 3, 8, 0]) if index % 2 else 6,
        "word_order": [0, 2, 1, 3][index % 4],
        "beta": rng.choice([2, 2, 2, 1, 3, 0]),
        "lowercase": rng.random() < 0.3,
        "whitespace": rng.random() < 0.3,
        "eps_smoothing": rng.random() < 0.4,
    }


def usable(options):
    """Whether some order is counted at all; sacreBLEU divides by zero otherwise."""
    return options["char_order"] + options["word_order"] > 0


def score_bleu(hypotheses, references, options):
    """One expected BLEU result."""
    smoothing = options["smoothing"]
    name, value = (smoothing, None) if isinstance(smoothing, str) else next(iter(smoothing.items()))
    metric = BLEU(
        lowercase=options["lowercase"],
        force=options["force"],
        tokenize=options["tokenizer"],
        smooth_method=name,
        smooth_value=value,
        max_ngram_order=options["max_order"],
        effective_order=options["effective_order"],
    )
    return expected(metric, hypotheses, references, options)


def score_chrf(hypotheses, references, options):
    """One expected chrF result."""
    return expected(CHRF(**options), hypotheses, references, options)


def expected(metric, hypotheses, references, options):
    """What a metric says of a corpus."""
    score = metric.corpus_score(hypotheses, references)
    return {
        "options": options,
        "score": score.score,
        "line": score.format(width=2),
        "signature": metric.get_signature().format(),
    }


def tokenized_lines(rng):
    """Lines with their tokens under each tokenizer."""
    metrics = {name: BLEU(tokenize=name) for name in TOKENIZERS}
    makers = list(MAKERS.values())
    lines = [makers[index % len(makers)](rng).rstrip() for index in range(400)]
    # Around the ends of the ranges that zh tests, those it means and those it selects.
    for end in "2000 2001 2a6d 2a6e 2e7f 2e80 2fdf 2fe0 2fef 2ff0 303f 3040 30ff 3100".split():
        lines.append(f"a{chr(int(end, 16))}b")
    for end in "312f 3130 319f 31a0 31bf 31c0 31ef 31f0 31ff 3200 4db5 4db6 4dff 4e00".split():
        lines.append(f"a{chr(int(end, 16))}b")
    for end in "9fbb 9fbc f8ff f900 fa2d fa2e fa2f fa30 fa6a fa6b fa6f fa70 fad9 fada".split():
        lines.append(f"a{chr(int(end, 16))}b")
    for end in "fe0f fe10 fe1f fe20 fe2f fe30 fe4f fe50 feff ff00 ffef fff0 20000 2f800".split():
        lines.append(f"a{chr(int(end, 16))}b")
    for line in lines:
        yield {"line": line, "tokens": {n: m.tokenizer(line).split() for n, m in metrics.items()}}


def write(path, content):
    """Writes a golden file, with the versions that made it."""
    versions = {
        "sacrebleu": sacrebleu.__version__,
        "python": platform.python_version(),
        "unicode": unicodedata.unidata_version,
    }
    text = json.dumps({**versions, **content}, ensure_ascii=True, separators=(",", ":"))
    with open(path, "wb") as file:
        # A fixed time stamp, so that the same scores make the same bytes.
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as stream:
            stream.write(text.encode())
    print(f"{path}: {len(text)} bytes before compression")


def main():
    """Writes the golden file."""
    rng = random.Random(SEED)
    corpora = []
    everything = list(special_corpora()) + list(random_corpora(rng))
    for index, (name, hypotheses, references) in enumerate(everything):
        bleu, chrf = [], []
        for turn in range(4):
            case = bleu_options(rng, index + turn * 7)
            bleu.append(score_bleu(hypotheses, references, case))
            case = chrf_options(rng, index + turn)
            if usable(case):
                chrf.append(score_chrf(hypotheses, references, case))
        corpora.append(
            {
                "name": name,
                "hypotheses": hypotheses,
                "references": references,
                "bleu": bleu,
                "chrf": chrf,
            }
        )
    write(sys.argv[1], {"seed": SEED, "corpora": corpora, "tokenized": list(tokenized_lines(rng))})


if __name__ == "__main__":
    main()
