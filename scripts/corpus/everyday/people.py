"""What people feel, have, give and are, and how they compare.

Each function draws one sentence; `PATTERNS` at the end gives their weights.
"""

from . import lexicon
from .phrases import (
    bare,
    counted,
    future_time,
    habit_time,
    name,
    other_person,
    own,
    past_time,
    person,
    place,
    pointed,
    portion,
    pronoun,
    relative,
    things,
    third,
)
from .sentence import say
from .words import (
    NOUNS,
    OCCUPATIONS,
    PERSON_VERBS,
    PRONOUNS,
    STATES,
    SUBSTANCES,
    Noun,
    Phrase,
    be,
    do,
    number_chinese,
    number_english,
    present,
    rows,
    with_article,
)

PERSON_ADJECTIVES = rows(lexicon.PERSON_ADJECTIVES)
SPOTS = rows(lexicon.SPOTS)
NEGATED_BE = {"am": "am not", "is": "isn't", "are": "aren't"}


# ---------------------------------------------------------------------------- feelings, wishes, possession


def feeling(source):
    """I love you. She doesn't know my mother."""
    verb = source.pick([verb for verb in PERSON_VERBS if "s" in verb.flags])
    who, kind = person(source), source.below(4)
    whom = other_person(source, who)
    if kind == 0:
        return say(
            f"{who.english} {do(who)}n't {verb.base} {whom.english}", f"{who.chinese}不{verb.chinese}{whom.chinese}"
        )
    if kind == 1:
        return say(
            f"{do(who)} {who.english} {verb.base} {whom.english}",
            f"{who.chinese}{verb.chinese}{whom.chinese}吗",
            end="?",
        )
    return say(f"{who.english} {present(verb, who)} {whom.english}", f"{who.chinese}{verb.chinese}{whom.chinese}")


def liking(source):
    """I like cats. He doesn't like tea. They all like this song. Which car do you like?"""
    verb = source.pick([verb for verb in STATES if verb.flags == "bare"])
    who, kind = person(source), source.below(8)
    noun = source.pick(
        [noun for noun in NOUNS + SUBSTANCES if noun.group not in ("question", "ticket", "container", "furniture")]
    )
    what = bare(noun) if source.chance(0.7) or not isinstance(noun, Noun) else pointed(source, noun)
    if kind == 0:
        return say(
            f"{who.english} {do(who)}n't {verb.base} {what.english}",
            f"{who.chinese}不{verb.chinese}{what.chinese}",
            what,
        )
    if kind == 1:
        return say(
            f"{do(who)} {who.english} {verb.base} {what.english}",
            f"{who.chinese}{verb.chinese}{what.chinese}吗",
            what,
            end="?",
        )
    if kind == 2:
        who = pronoun(source, "we they")
        return say(
            f"{who.english} all {verb.base} {what.english}", f"{who.chinese}都{verb.chinese}{what.chinese}", what
        )
    if kind == 3:
        return say(
            f"{who.english} {present(verb, who)} {what.english}, too",
            f"{who.chinese}也{verb.chinese}{what.chinese}",
            what,
        )
    if kind == 4 and isinstance(noun, Noun):
        return say(
            f"which {noun.english} {do(who)} {who.english} like",
            f"{who.chinese}喜欢哪{noun.measure}{noun.chinese}",
            end="?",
        )
    return say(
        f"{who.english} {present(verb, who)} {what.english}", f"{who.chinese}{verb.chinese}{what.chinese}", what
    )


def having(source):
    """I have three cats. She wants two cups of tea. How many books do you have?"""
    verb = source.pick([verb for verb in STATES if verb.flags == "count"])
    who, kind, noun = person(source), source.below(7), source.pick(things())
    if kind == 0:
        chinese = "没有" if verb.base == "have" else f"不{verb.chinese}"
        return say(
            f"{who.english} {do(who)}n't {verb.base} any {noun.plural}", f"{who.chinese}{chinese}{noun.chinese}"
        )
    if kind == 1:
        return say(
            f"how many {noun.plural} {do(who)} {who.english} {verb.base}",
            f"{who.chinese}{verb.chinese}多少{noun.measure}{noun.chinese}",
            end="?",
        )
    what = counted(source, noun if source.chance(0.75) else source.pick(SUBSTANCES))
    if kind == 2:
        return say(
            f"{do(who)} {who.english} {verb.base} {what.english}",
            f"{who.chinese}{verb.chinese}{what.chinese}吗",
            what,
            end="?",
        )
    return say(
        f"{who.english} {present(verb, who)} {what.english}", f"{who.chinese}{verb.chinese}{what.chinese}", what
    )


def giving(source):
    """He gave me three books yesterday."""
    who = person(source)
    whom = other_person(source, who)
    present_noun = source.pick(
        [noun for noun in things() if noun.group not in ("writing", "building", "movie", "song")]
    )
    kind = source.below(6)
    when = past_time(source) if source.chance(0.5) else Phrase("", "")
    letter = source.pick([noun for noun in NOUNS if noun.group == "writing"])
    english, before, after, noun = [
        ("gave", "给了", "", present_noun),
        ("gave", "给了", "", present_noun),
        ("bought", "给", "买了", present_noun),
        ("wrote", "给", "写了", letter),
        ("showed", "给", "看了", present_noun),
        ("lent", "借给了", "", present_noun),
    ][kind]
    what = counted(source, noun)
    return say(
        f"{who.english} {english} {whom.english} {what.english} {when.english}",
        f"{who.chinese}{when.chinese}{before}{whom.chinese}{after}{what.chinese}",
        what,
    )


def will_give(source):
    """I will give you this book tomorrow. Please give me two cups of tea."""
    who = person(source)
    whom, when = other_person(source, who), future_time(source)
    if source.chance(0.5):
        what = (
            portion(source, source.pick(SUBSTANCES)) if source.chance(0.4) else counted(source, source.pick(things()))
        )
        receiver = source.pick([row for row in PRONOUNS if row[0] != "you"])
        return say(f"please give {receiver[1]} {what.english}", f"请给{receiver[3]}{what.chinese}", what)
    noun = source.pick([noun for noun in things() if noun.group not in ("building", "movie", "song", "animal")])
    what = counted(source, noun)
    return say(
        f"{who.english} will give {whom.english} {what.english} {when.english}",
        f"{who.chinese}{when.chinese}会给{whom.chinese}{what.chinese}",
        what,
    )


def teaching(source):
    """My aunt teaches us English every Monday."""
    who, when = third(source), habit_time(source)
    whom = other_person(source, who)
    subject = source.pick([("English", "英语"), ("Chinese", "中文"), ("Japanese", "日语"), ("music", "音乐")])
    return say(
        f"{who.english} teaches {whom.english} {subject[0]} {when.english}",
        f"{who.chinese}{when.chinese}教{whom.chinese}{subject[1]}",
    )


def disposal(source):
    """Tom put the key on the table. He ate my cake."""
    who = person(source)
    movable = [
        noun for noun in NOUNS if noun.group in ("reading", "stationery", "container", "toy", "accessory", "device")
    ]
    if source.chance(0.55):
        noun = source.pick([noun for noun in movable if noun.english not in ("box", "bag")])
        what, spot = (
            own(source, noun),
            source.pick([row for row in SPOTS if row[0] in ("on", "under", "in", "behind")]),
        )
        tail = past_time(source)
        return say(
            f"{who.english} put {what.english} {spot[0]} {spot[1]} {tail.english}",
            f"{who.chinese}{tail.chinese}把{what.chinese}放在了{spot[2]}",
        )
    english, chinese, groups = source.pick(
        [
            ("ate", "吃了", ("food",)),
            ("sold", "卖了", ("vehicle", "device", "furniture", "building")),
            ("washed", "洗了", ("clothes", "vehicle", "container")),
            ("broke", "弄坏了", ("device", "toy", "furniture", "accessory")),
            ("lost", "弄丢了", ("stationery", "device", "ticket", "toy")),
        ]
    )
    what = own(source, source.pick([noun for noun in NOUNS if noun.group in groups]))
    return say(f"{who.english} {english} {what.english}", f"{who.chinese}把{what.chinese}{chinese}")


# ---------------------------------------------------------------------------- what people are


def occupation(source):
    """She is a teacher. Is your father a doctor?"""
    who, noun, kind = (
        source.pick([lambda s: pronoun(s, "I you he she"), name, relative])(source),
        source.pick(OCCUPATIONS),
        source.below(6),
    )
    # "You" names one person here, so the occupation is singular although the verb is plural.
    role = with_article(noun.english)
    if kind == 0:
        return say(f"{who.english} {NEGATED_BE[be(who)]} {role}", f"{who.chinese}不是{noun.chinese}")
    if kind == 1:
        return say(f"{be(who)} {who.english} {role}", f"{who.chinese}是{noun.chinese}吗", end="?")
    if kind == 2:
        return say(
            f"{who.english} {'want' if who.agreement != 'third' else 'wants'} to be {role}",
            f"{who.chinese}想当{noun.chinese}",
        )
    return say(f"{who.english} {be(who)} {role}", f"{who.chinese}是{noun.chinese}")


def quality_of_person(source):
    """She is very tall. Are you tired? Yesterday he was happy."""
    who, (english, _, _, chinese, kind_of) = person(source), source.pick(PERSON_ADJECTIVES)
    kind = source.below(7)
    if kind == 0:
        return say(f"{who.english} {NEGATED_BE[be(who)]} {english}", f"{who.chinese}不{chinese}")
    if kind == 1:
        return say(f"{be(who)} {who.english} {english}", f"{who.chinese}{chinese}吗", end="?")
    if kind == 2:
        return say(f"{who.english} {be(who)} too {english}", f"{who.chinese}太{chinese}了")
    if kind == 3:
        return say(f"{who.english} {be(who)} very {english}", f"{who.chinese}非常{chinese}")
    if kind == 4:
        thinker = pronoun(source, "I you we they")
        return say(
            f"{thinker.english} think {who.english} {be(who)} {english}",
            f"{thinker.chinese}觉得{who.chinese}很{chinese}",
        )
    if kind == 5 and kind_of == "mood":
        when = past_time(source)
        return say(
            f"{who.english} {be(who, past=True)} {english} {when.english}", f"{who.chinese}{when.chinese}很{chinese}"
        )
    return say(f"{who.english} {be(who)} {english}", f"{who.chinese}很{chinese}")


def compare_people(source):
    """Tom is taller than Mary. I am not as tall as my father. Anna is three years older than me."""
    who = person(source)
    whom = other_person(source, who)
    english, comparative, superlative, chinese, lasting = source.pick(PERSON_ADJECTIVES)
    kind = source.below(7)
    if kind == 0:
        return say(
            f"{who.english} {be(who)} as {english} as {whom.english}", f"{who.chinese}跟{whom.chinese}一样{chinese}"
        )
    if kind == 1:
        return say(
            f"{who.english} {be(who)} not as {english} as {whom.english}", f"{who.chinese}没有{whom.chinese}{chinese}"
        )
    if kind == 2:
        return say(
            f"{who.english} {be(who)} much {comparative} than {whom.english}",
            f"{who.chinese}比{whom.chinese}{chinese}得多",
        )
    if kind == 3:
        years = 2 + source.below(11)
        return say(
            f"{who.english} {be(who)} {number_english(years)} years older than {whom.english}",
            f"{who.chinese}比{whom.chinese}大{number_chinese(years, True)}岁",
        )
    if kind == 4 and lasting == "permanent":
        group = source.pick([("class", "班"), ("school", "学校"), ("family", "家")])
        owner = source.pick(PRONOUNS)
        return say(
            f"{who.english} {be(who)} the {superlative} in {owner[2]} {group[0]}",
            f"{who.chinese}是{owner[3]}{group[1]}最{chinese}的",
        )
    return say(
        f"{who.english} {be(who)} {comparative} than {whom.english}", f"{who.chinese}比{whom.chinese}{chinese}"
    )


def age(source):
    """My son is ten years old. How old is she?"""
    who = person(source)
    if source.chance(0.1):
        return say(f"how old {be(who)} {who.english}", f"{who.chinese}多大", end="?")
    years = 3 + source.below(85)
    return say(
        f"{who.english} {be(who)} {number_english(years)} years old", f"{who.chinese}{number_chinese(years)}岁"
    )


def origin(source):
    """She comes from China. Where does your father live?"""
    who, kind = person(source), source.below(5)
    where = place(source, "town")
    town = where.english.removeprefix("in ")
    if kind == 0:
        return say(
            f"{who.english} {present_of('come', who)} from {town}",
            f"{who.chinese}来自{where.chinese.removeprefix('在')}",
        )
    if kind == 1:
        return say(f"where {do(who)} {who.english} live", f"{who.chinese}住在哪里", end="?")
    if kind == 2:
        return say(f"{who.english} {present_of('live', who)} {where.english}", f"{who.chinese}住{where.chinese}")
    if kind == 3:
        verb, chinese = source.pick([("work", "工作"), ("study", "学习"), ("rest", "休息")])
        return say(f"where {do(who)} {who.english} {verb}", f"{who.chinese}在哪里{chinese}", end="?")
    years = 2 + source.below(20)
    verb, chinese = source.pick([("lived", "住"), ("worked", "工作"), ("studied", "学习")])
    return say(
        f"{who.english} {verb} {where.english} for {number_english(years)} years",
        f"{who.chinese}{where.chinese}{chinese}了{number_chinese(years, True)}年",
    )


def present_of(verb, subject):
    """come or comes."""
    return verb + ("s" if subject.agreement == "third" else "")


PATTERNS = {
    feeling: 6,
    liking: 8,
    having: 10,
    giving: 9,
    will_give: 7,
    teaching: 2,
    disposal: 5,
    occupation: 4,
    quality_of_person: 6,
    compare_people: 8,
    age: 3,
    origin: 4,
}
