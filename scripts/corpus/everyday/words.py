"""Morphology, agreement and the small value types that the sentence patterns are built from."""

import re
from dataclasses import dataclass, field

from . import lexicon

DIGITS = "零一二三四五六七八九十"


def rows(table):
    """Splits a lexicon table into rows of columns, turning underscores into spaces."""
    return [[column.replace("_", " ") for column in line.split()] for line in table.strip().splitlines()]


class Source:
    """Random choices that stay the same on every version of Python.

    Only `random()` of the generator is promised to be stable, so the choices are made from it.
    """

    def __init__(self, generator):
        self.generator = generator

    def pick(self, items):
        """One item of a sequence."""
        return items[int(self.generator.random() * len(items))]

    def below(self, limit):
        """An integer in 0..limit."""
        return int(self.generator.random() * limit)

    def chance(self, probability):
        """True with the given probability."""
        return self.generator.random() < probability

    def shuffled(self, items):
        """A shuffled copy (Fisher-Yates)."""
        items = list(items)
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]
        return items


@dataclass(frozen=True)
class Phrase:
    """A pair of translations and the word combinations that they contain."""

    english: str
    chinese: str
    combinations: tuple = ()
    agreement: str = "third"
    animate: bool = False


@dataclass(frozen=True)
class Noun:
    """A countable noun."""

    english: str
    plural: str
    chinese: str
    measure: str
    group: str


@dataclass(frozen=True)
class Substance:
    """An uncountable noun, or one counted in pairs."""

    english: str
    chinese: str
    group: str
    containers: tuple = field(default=())


@dataclass(frozen=True)
class Verb:
    """A verb with the forms that cannot be derived; `head|rest` splits the Chinese verb."""

    base: str
    past: str
    participle: str
    chinese: str
    groups: tuple = ()
    flags: str = ""

    @property
    def third(self):
        """Third person singular: he buys, he does homework."""
        head, _, rest = self.base.partition(" ")
        return f"{third_person(head)} {rest}".strip()

    @property
    def gerund(self):
        """The -ing form."""
        head, _, rest = self.base.partition(" ")
        return f"{gerund(head)} {rest}".strip()


def third_person(verb):
    """go -> goes, study -> studies, buy -> buys."""
    if verb == "have":
        return "has"
    if verb.endswith(("s", "sh", "ch", "x", "z", "o")):
        return verb + "es"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + "s"


def gerund(verb):
    """run -> running, write -> writing, see -> seeing."""
    if verb in ("run", "swim", "get", "put"):
        return verb + verb[-1] + "ing"
    if verb.endswith("e") and not verb.endswith("ee"):
        return verb[:-1] + "ing"
    return verb + "ing"


def with_article(english):
    """Puts a or an before a noun phrase."""
    return f"{'an' if english[0] in 'aeiou' else 'a'} {english}"


def number_english(number):
    """1..99 in words."""
    units, tens = lexicon.UNITS.split(), lexicon.TENS.split()
    if number < 20:
        return units[number]
    rest = number % 10
    return tens[number // 10 - 2] + (f"-{units[rest]}" if rest else "")


def number_chinese(number, counting=False):
    """1..99 in characters; before a measure word a lone two is 两."""
    if number == 2 and counting:
        return "两"
    if number <= 10:
        return DIGITS[number]
    tens, rest = divmod(number, 10)
    return ("" if tens == 1 else DIGITS[tens]) + "十" + (DIGITS[rest] if rest else "")


def be(subject, past=False):
    """The form of be that agrees with the subject."""
    if past:
        return "were" if subject.agreement == "plural" else "was"
    return {"first": "am", "plural": "are", "third": "is"}[subject.agreement]


def do(subject):
    """do or does."""
    return "does" if subject.agreement == "third" else "do"


def have(subject):
    """have or has."""
    return "has" if subject.agreement == "third" else "have"


def present(verb, subject):
    """The simple present that agrees with the subject."""
    return verb.third if subject.agreement == "third" else verb.base


def sentence_case(english):
    """A capital first letter and a single space between words."""
    english = re.sub(r"\s+", " ", english.strip())
    return english[0].upper() + english[1:]


NOUNS = [Noun(*row) for row in rows(lexicon.NOUNS)]
PEOPLE = [Noun(*row[:4], "people") for row in rows(lexicon.PEOPLE)]
OCCUPATIONS = [noun for noun, row in zip(PEOPLE, rows(lexicon.PEOPLE)) if row[4] == "1"]
SUBSTANCES = [Substance(*row[:3], tuple(row[3].split(","))) for row in rows(lexicon.SUBSTANCES)]
CONTAINERS = {row[0]: row for row in rows(lexicon.CONTAINERS)}
VERBS = [Verb(*row[:4], tuple(row[4].split(",")), row[5]) for row in rows(lexicon.VERBS)]
ACTIVITIES = [Verb(*row[:4], (), row[4]) for row in rows(lexicon.ACTIVITIES)]
STATES = [Verb(*row[:4], (), row[4]) for row in rows(lexicon.STATES)]
PERSON_VERBS = [Verb(*row[:4], (), row[4]) for row in rows(lexicon.PERSON_VERBS)]
PRONOUNS = rows(lexicon.PRONOUNS)
# A verb with two translations (wear a coat, wear a hat) cannot be guessed for an unseen object.
AMBIGUOUS_VERBS = {
    verb.base for verb in VERBS for other in VERBS if verb.base == other.base and verb.chinese != other.chinese
}
