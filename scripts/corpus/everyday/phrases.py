"""Noun phrases, predicates and time phrases, each built in both languages at once."""

from dataclasses import dataclass

from . import lexicon
from .words import (
    ACTIVITIES,
    AMBIGUOUS_VERBS,
    CONTAINERS,
    NOUNS,
    OCCUPATIONS,
    PEOPLE,
    PRONOUNS,
    SUBSTANCES,
    VERBS,
    Noun,
    Phrase,
    Verb,
    number_chinese,
    number_english,
    rows,
    with_article,
)

ADJECTIVES = rows(lexicon.ADJECTIVES)
COLORS = rows(lexicon.COLORS)
COLORED = lexicon.COLORED_GROUPS.split()
PLACES = rows(lexicon.PLACES)
WEEKDAYS = lexicon.WEEKDAYS.split()
FIRST_PERSON = ("I", "we")


@dataclass(frozen=True)
class Predicate:
    """A verb with its object: `head` and `rest` are the Chinese verb and what follows it."""

    verb: Verb
    tail: str
    head: str
    rest: str
    counted: bool
    combinations: tuple = ()

    @property
    def base(self):
        """The English base form with its object."""
        return f"{self.verb.base} {self.tail}"

    @property
    def past(self):
        """The English past with its object."""
        return f"{self.verb.past} {self.tail}"

    @property
    def participle(self):
        """The English past participle with its object."""
        return f"{self.verb.participle} {self.tail}"

    @property
    def gerund(self):
        """The English -ing form with its object."""
        return f"{self.verb.gerund} {self.tail}"

    @property
    def plain(self):
        """Chinese without an aspect particle."""
        return self.head + self.rest

    @property
    def ongoing(self):
        """Chinese progressive: 正在看书, but 穿着大衣 for a lasting state."""
        return f"{self.head}着{self.rest}" if self.verb.base == "wear" else f"正在{self.plain}"

    @property
    def done(self):
        """Chinese completed action: 买了三本书, but 踢足球了."""
        return f"{self.head}了{self.rest}" if self.counted else f"{self.plain}了"

    @property
    def experienced(self):
        """Chinese experience: 看过这本书."""
        return f"{self.head}过{self.rest}"


# ---------------------------------------------------------------------------- people


def pronoun(source, persons="I you he she we they"):
    """A pronoun as subject."""
    row = source.pick([row for row in PRONOUNS if row[0] in persons.split()])
    return Phrase(row[0], row[3], (), row[4], True)


def relative(source, avoid=""):
    """my mother, his older brother."""
    owner = source.pick([row for row in PRONOUNS if row[0] != avoid])
    english, chinese = source.pick(rows(lexicon.RELATIVES))
    return Phrase(f"{owner[2]} {english}", owner[3] + chinese, (), "third", True)


def name(source):
    """A given name."""
    english, chinese = source.pick(rows(lexicon.NAMES))
    return Phrase(english, chinese, (), "third", True)


def known_person(source):
    """the teacher, my friend."""
    noun = source.pick(PEOPLE)
    if noun in OCCUPATIONS:
        return Phrase(f"the {noun.english}", noun.chinese, (), "third", True)
    if noun.english in ("friend", "neighbor", "classmate"):
        owner = source.pick(PRONOUNS)
        return Phrase(f"{owner[2]} {noun.english}", f"{owner[3]}的{noun.chinese}", (), "third", True)
    near = source.chance(0.5)
    return Phrase(
        f"{'this' if near else 'that'} {noun.english}",
        f"{'这' if near else '那'}{noun.measure}{noun.chinese}",
        (),
        "third",
        True,
    )


def person(source):
    """Any single person, or a plural pronoun."""
    return source.pick([pronoun, pronoun, name, relative, known_person])(source)


def third(source):
    """Any single third person but a pronoun."""
    return source.pick([name, relative, known_person])(source)


def other_person(source, subject):
    """A person as object; never the subject itself."""
    if source.chance(0.5):
        choices = [
            row
            for row in PRONOUNS
            if row[0] != subject.english and not (row[0] in FIRST_PERSON and subject.english in FIRST_PERSON)
        ]
        row = source.pick(choices)
        return Phrase(row[1], row[3])
    while True:
        other = source.pick([name, relative])(source)
        if other.english != subject.english:
            return other


# ---------------------------------------------------------------------------- things


def adjective_for(source, noun):
    """An adjective that suits the noun: English, Chinese before the noun."""
    choices = [(row[0], row[4]) for row in ADJECTIVES if noun.group in row[5].split(",")]
    if noun.group in COLORED:
        choices += [(english, f"{chinese}的") for english, chinese in COLORS]
    return source.pick(choices) if choices else None


def amount(source, small=False):
    """A number word: English, Chinese, and whether the noun is plural."""
    kind = source.below(10)
    if small or kind < 4:
        return ("a", "一", False) if not small or kind < 5 else ("two", "两", True)
    if kind < 8:
        number = 2 + source.below(11)
    elif kind == 8:
        number = source.pick([13, 15, 20, 24, 30, 36, 40, 50, 60, 72, 80, 90])
    else:
        return source.pick([("some", "一些", True), ("many", "很多", True), ("a few", "几", True)])
    return number_english(number), number_chinese(number, counting=True), True


def counted(source, noun, small=False, adjective=True):
    """three red apples: 三个红色的苹果."""
    if not isinstance(noun, Noun):
        return portion(source, noun, small)
    english, chinese, plural = amount(source, small)
    combinations = [("number+noun", english, noun.english)]
    described, description = noun.plural if plural else noun.english, ""
    chosen = adjective_for(source, noun) if adjective and source.chance(0.35) else None
    if chosen:
        described, description = f"{chosen[0]} {described}", chosen[1]
        combinations.append(("adjective+noun", chosen[0], noun.english))
    full = with_article(described) if english == "a" else f"{english} {described}"
    measure = "" if chinese in ("一些", "很多") else noun.measure
    return Phrase(
        full, chinese + measure + description + noun.chinese, tuple(combinations), "plural" if plural else "third"
    )


def portion(source, substance, small=False):
    """two cups of tea: 两杯茶; a pair of shoes: 一双鞋."""
    single, many, measure = CONTAINERS[source.pick(substance.containers)]
    english, chinese, plural = amount(source, small)
    if english in ("some", "many"):
        english, chinese, plural = "a", "一", False
    return Phrase(
        f"{english} {many if plural else single} of {substance.english}",
        chinese + measure + substance.chinese,
        (("number+noun", english, substance.english),),
        "plural" if plural else "third",
    )


def bare(noun):
    """A generic object: books, tea."""
    english = noun.plural if isinstance(noun, Noun) else noun.english
    return Phrase(english, noun.chinese)


def pointed(source, noun, adjective=True):
    """this red car, these cars, my car: a definite phrase."""
    kind = source.pick(["this", "that", "these", "own"])
    combinations, described, description = (), "", ""
    chosen = adjective_for(source, noun) if adjective and source.chance(0.25) else None
    if chosen:
        described, description = f"{chosen[0]} ", chosen[1]
        combinations = (("adjective+noun", chosen[0], noun.english),)
    if kind == "own":
        return own(source, noun)  # without an adjective: 我的漂亮的大衣 has one 的 too many
    if kind == "these":
        near = source.chance(0.5)
        return Phrase(
            f"{'these' if near else 'those'} {described}{noun.plural}",
            f"{'这' if near else '那'}些{description}{noun.chinese}",
            combinations,
            "plural",
        )
    return Phrase(
        f"{kind} {described}{noun.english}",
        f"{'这' if kind == 'this' else '那'}{noun.measure}{description}{noun.chinese}",
        combinations,
    )


def own(source, noun):
    """my key: 我的钥匙."""
    owner = source.pick(PRONOUNS)
    return Phrase(f"{owner[2]} {noun.english}", f"{owner[3]}的{noun.chinese}")


def things():
    """Countable nouns that one can own and point at."""
    return [noun for noun in NOUNS if noun.group not in ("bridge", "question")]


# ---------------------------------------------------------------------------- predicates


def objects_of(verb):
    """Every noun and substance that the verb takes."""
    return [noun for noun in NOUNS + SUBSTANCES if noun.group in verb.groups]


def verb_object(verb, noun):
    """The combination to withhold; none for verbs whose translation hangs on the object."""
    return () if verb.base in AMBIGUOUS_VERBS else (("verb+noun", verb.base, noun.english),)


def with_object(verb, noun, phrase, is_counted):
    """Joins a verb and a noun phrase."""
    return Predicate(
        verb, phrase.english, verb.chinese, phrase.chinese, is_counted, verb_object(verb, noun) + phrase.combinations
    )


def counted_action(source, instant=False, small=False):
    """buy three books; `instant` also allows find, lose..., which suit the past only."""
    verb = source.pick([verb for verb in VERBS if instant or "n" not in verb.flags])
    noun = source.pick(objects_of(verb))
    return with_object(verb, noun, counted(source, noun, small), True)


def pointed_action(source):
    """read this book."""
    verb = source.pick([verb for verb in VERBS if "n" not in verb.flags and "drink" not in verb.groups])
    noun = source.pick([noun for noun in objects_of(verb) if isinstance(noun, Noun)])
    return with_object(verb, noun, pointed(source, noun), True)


def bare_action(source, instant=False, prefix=""):
    """read novels, drink tea; with the prefix "any " for a negated past."""
    verb = source.pick([verb for verb in VERBS if instant or "n" not in verb.flags])
    noun = source.pick(objects_of(verb))
    phrase = bare(noun)
    return with_object(verb, noun, Phrase(prefix + phrase.english, phrase.chinese), False)


def activity(source, flag=""):
    """swim, play football; only those with the given flag, if any."""
    verb = source.pick([verb for verb in ACTIVITIES if flag in verb.flags])
    head, rest = verb.chinese.split("|")
    return Predicate(verb, "", head, rest, False)


# ---------------------------------------------------------------------------- places and times


def place(source, kind=None):
    """in the park: 在公园."""
    row = source.pick([row for row in PLACES if kind in (None, row[1], row[3])])
    return Phrase(f"{row[0]} {row[1]}", f"在{row[2]}")


def destination(source, kind=None):
    """to the park, to Beijing: 公园, 北京."""
    row = source.pick([row for row in PLACES if kind in (None, row[3])])
    article = "the " if row[0].endswith("the") else ""
    return Phrase(f"to {article}{row[1]}", row[2])


def weekday(source):
    """Monday: 一."""
    index = source.below(7)
    return WEEKDAYS[index], lexicon.WEEKDAY_DIGITS[index]


def past_time(source):
    """yesterday, three days ago, last Friday."""
    kind = source.below(10)
    if kind < 6:
        return Phrase(*source.pick(rows(lexicon.PAST_TIMES)))
    if kind < 8:
        number = 2 + source.below(9)
        unit, chinese = source.pick([("days", "天"), ("weeks", "个星期"), ("months", "个月"), ("years", "年")])
        return Phrase(f"{number_english(number)} {unit} ago", f"{number_chinese(number, True)}{chinese}前")
    english, chinese = weekday(source)
    return Phrase(f"last {english}", f"上周{chinese}")


def recent_time(source):
    """yesterday, last night: near enough to explain how one feels now."""
    return Phrase(*source.pick(rows(lexicon.PAST_TIMES)[:4]))


def near_time(source):
    """tomorrow, tonight: near enough for plans that hang on the weather."""
    return Phrase(*source.pick(rows(lexicon.FUTURE_TIMES)[:4]))


def future_time(source):
    """tomorrow, next Friday, in three days."""
    kind = source.below(10)
    if kind < 6:
        return Phrase(*source.pick(rows(lexicon.FUTURE_TIMES)))
    if kind < 8:
        number = 2 + source.below(9)
        unit, chinese = source.pick([("days", "天"), ("weeks", "个星期")])
        return Phrase(f"in {number_english(number)} {unit}", f"{number_chinese(number, True)}{chinese}后")
    english, chinese = weekday(source)
    return Phrase(f"next {english}", f"下周{chinese}")


def habit_time(source):
    """every day, every Monday."""
    if source.chance(0.6):
        return Phrase(*source.pick(rows(lexicon.HABIT_TIMES)))
    english, chinese = weekday(source)
    return Phrase(f"every {english}", f"每个星期{chinese}")


def clock(source):
    """seven o'clock, half past two, ten past eight."""
    hour = 1 + source.below(12)
    chinese = f"{number_chinese(hour, counting=True)}点"
    kind = source.below(5)
    if kind < 2:
        return Phrase(f"{number_english(hour)} o'clock", chinese)
    if kind == 2:
        return Phrase(f"half past {number_english(hour)}", f"{chinese}半")
    if kind == 3:
        return Phrase(f"a quarter past {number_english(hour)}", f"{chinese}一刻")
    minutes = source.pick([10, 20])
    return Phrase(f"{number_english(minutes)} past {number_english(hour)}", f"{chinese}{number_chinese(minutes)}分")
