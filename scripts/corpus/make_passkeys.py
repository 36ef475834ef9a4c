#!/usr/bin/env python3
"""Writes texts with hidden keys to data/passkeys, for configs/passkeys.toml.

    scripts/corpus/make_passkeys.py [FOLDER]

A line is a text of a few random words. Within it a sentence states a key of five characters, and its
end asks for the key and repeats it, in the words of `taper extrapolate --passkeys` (Mohtashami and
Jaggi 2023, "Landmark Attention", section 4.2). In the training text every second line is a string of
different characters, said twice: from these a small model learns to copy within minutes. A line has
at most 124 characters, fewer than a block of the recipe. Each line is a function of the split's seed
and its number: the same files each time.
"""

import random
import sys
from pathlib import Path

# None is a word of the sentences around the key.
WORDS = (
    "again air all always among ball bank bear bell below bird blue boat book bread bring build burn "
    "call care carry chair child city clean cloud coat cold come corn count cover dance dark day deep "
    "door down draw dream drink drive dry early earth east eat egg fall far farm fast field fill find "
    "fire fish floor flower fly fold follow food foot forest free fresh full game garden gate gather "
    "give glass glove go gold good grass green grow hair half hand happy hat hear heart heavy hill hold "
    "home honey horse hot house hunt ice iron island join jump kind kitchen lake lamp land large late "
    "laugh leaf learn leave letter light line lion list live long look love low make many map market "
    "meat meet milk mind moon more morning mountain mouth move music name near night noise north nose "
    "oil old open orange order over own paint paper park path pay peace pen plant play pull push quick "
    "quiet rain read red rest rich ride river road roof room rope round run safe salt sand sea seed "
    "sell send shape sheep ship shoe shop short show silver sing sit sleep slow small smile snow soft "
    "song south spoon spring stand star stone storm street strong sugar summer sun sweet table talk "
    "tall tea tell thick thin time town train tree turn under valley visit voice wait walk wall warm "
    "wash watch water wave west wheel white wide wind window winter wise wood word work write year "
    "yellow young"
).split()
# Those of `Passkey::default` in crates/run.
STATEMENT, QUESTION = " The pass key is {key}. Remember it.", " What is the pass key? The pass key is {key}"
# Of keys; no word has them.
CHARACTERS = "BCDFGHJKLMNPQSVXZ0123456789"
MOST = 124
# Different words of a line: those that come again teach a model to look back.
DIFFERENT = 6
# Of each split: its seed and its number of lines.
SPLITS = {"train": (1, 20000), "test": (2, 1200)}


def line(seed: int, number: int) -> str:
    draw = random.Random(f"{seed} {number}")
    key = "".join(draw.choice(CHARACTERS) for _ in range(5))
    sentences = [text.format(key=key) for text in (STATEMENT, QUESTION)]
    few = draw.sample(WORDS, DIFFERENT)
    # As many short fillers as long ones, so that a key is often near.
    filler, room = "", draw.randrange(MOST - len("".join(sentences)))
    while True:
        longer = f"{filler} {draw.choice(few)}".lstrip()
        if len(longer) > room:
            break
        filler = longer
    words = filler.split(" ")
    at = draw.randrange(len(words) + 1)
    return " ".join(words[:at]) + sentences[0] + "".join(f" {word}" for word in words[at:]) + sentences[1]


def twice(seed: int, number: int) -> str:
    draw = random.Random(f"{seed} {number}")
    said = "".join(draw.sample(CHARACTERS, draw.randrange(5, len(CHARACTERS) + 1)))
    return f"{said} {said}"


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2] / "data" / "passkeys"
    folder.mkdir(parents=True, exist_ok=True)
    for name, (seed, lines) in SPLITS.items():
        is_drill = lambda number: name == "train" and number % 2 == 1
        made = (twice(seed, number) if is_drill(number) else line(seed, number) for number in range(lines))
        text = "\n".join(text.strip() for text in made)
        (folder / f"{name}.txt").write_text(text + "\n")
    print(folder)


if __name__ == "__main__":
    main()
