"""What things are and cost, where things and people are, and when: places, dates, weather.

Each function draws one sentence; `PATTERNS` at the end gives their weights.
"""

from . import lexicon
from .phrases import (
    ADJECTIVES,
    COLORED,
    COLORS,
    clock,
    counted,
    destination,
    future_time,
    habit_time,
    name,
    other_person,
    own,
    past_time,
    person,
    place,
    pointed,
    pronoun,
    relative,
    things,
    weekday,
)
from .sentence import say
from .words import (
    NOUNS,
    PEOPLE,
    PRONOUNS,
    Phrase,
    be,
    do,
    number_chinese,
    number_english,
    rows,
)

SPOTS = rows(lexicon.SPOTS)
TRANSPORT = rows(lexicon.TRANSPORT)
WEATHER = rows(lexicon.WEATHER)
MONTHS = lexicon.MONTHS.split()
NEGATED_BE = {"am": "am not", "is": "isn't", "are": "aren't"}
POSSESSIVES = {"my": "mine", "your": "yours", "his": "his", "her": "hers", "our": "ours", "their": "theirs"}


# ---------------------------------------------------------------------------- what things are


def quality_of_thing(source):
    """This book is very expensive. Those shirts are too small. Is your car new?"""
    english, _, _, chinese, _, groups = source.pick(ADJECTIVES)
    noun = source.pick([noun for noun in NOUNS if noun.group in groups.split(",")])
    what = pointed(source, noun, adjective=False)
    part = Phrase("", "", (("adjective+noun", english, noun.english),))
    kind = source.below(6)
    if kind == 0:
        return say(f"{what.english} {NEGATED_BE[be(what)]} {english}", f"{what.chinese}不{chinese}", part)
    if kind == 1:
        return say(f"{be(what)} {what.english} {english}", f"{what.chinese}{chinese}吗", part, end="?")
    if kind == 2:
        return say(f"{what.english} {be(what)} too {english}", f"{what.chinese}太{chinese}了", part)
    if kind == 3:
        return say(f"{what.english} {be(what)} very {english}", f"{what.chinese}非常{chinese}", part)
    if kind == 4:
        thinker = pronoun(source, "I you we they")
        return say(
            f"{thinker.english} think {what.english} {be(what)} {english}",
            f"{thinker.chinese}觉得{what.chinese}很{chinese}",
            part,
        )
    return say(f"{what.english} {be(what)} {english}", f"{what.chinese}很{chinese}", part)


def color_of_thing(source):
    """This hat is red. What color is your car?"""
    english, chinese = source.pick(COLORS)
    noun = source.pick([noun for noun in NOUNS if noun.group in COLORED])
    what = pointed(source, noun, adjective=False)
    part = Phrase("", "", (("adjective+noun", english, noun.english),))
    kind = source.below(5)
    if kind == 0:
        return say(f"what color {be(what)} {what.english}", f"{what.chinese}是什么颜色的", end="?")
    if kind == 1:
        return say(f"{what.english} {NEGATED_BE[be(what)]} {english}", f"{what.chinese}不是{chinese}的", part)
    if kind == 2:
        return say(f"{be(what)} {what.english} {english}", f"{what.chinese}是{chinese}的吗", part, end="?")
    return say(f"{what.english} {be(what)} {english}", f"{what.chinese}是{chinese}的", part)


def compare_things(source):
    """This book is cheaper than that one. My car is as old as yours. This is my newest coat."""
    english, comparative, superlative, chinese, before, groups = source.pick(ADJECTIVES)
    noun = source.pick([noun for noun in NOUNS if noun.group in groups.split(",")])
    part = Phrase("", "", (("adjective+noun", english, noun.english),))
    kind = source.below(6)
    if kind in (0, 5):
        owner = source.pick(PRONOUNS)
        near, this = source.pick([("this", "这"), ("that", "那")])
        return say(
            f"{near} is {owner[2]} {superlative} {noun.english}",
            f"{this}是{owner[3]}最{chinese}的{noun.chinese}",
            part,
        )
    if kind == 1:
        near = source.pick([("this", "that", "这", "那"), ("that", "this", "那", "这")])
        left = Phrase(f"{near[0]} {noun.english}", f"{near[2]}{noun.measure}{noun.chinese}")
        right = Phrase(f"{near[1]} one", f"{near[3]}{noun.measure}")
    else:
        first, second = source.shuffled(PRONOUNS)[:2]
        left = Phrase(f"{first[2]} {noun.english}", f"{first[3]}的{noun.chinese}")
        right = Phrase(POSSESSIVES[second[2]], f"{second[3]}的")
    if kind == 2:
        return say(
            f"{left.english} is as {english} as {right.english}",
            f"{left.chinese}跟{right.chinese}一样{chinese}",
            part,
        )
    if kind == 3:
        return say(
            f"{left.english} is not as {english} as {right.english}",
            f"{left.chinese}没有{right.chinese}{chinese}",
            part,
        )
    return say(
        f"{left.english} is {comparative} than {right.english}", f"{left.chinese}比{right.chinese}{chinese}", part
    )


def price(source):
    """This coat costs fifty yuan. How much is that hat?"""
    noun = source.pick([noun for noun in things() if noun.group not in ("writing", "song", "movie", "plant")])
    what = pointed(source, noun)
    if source.chance(0.35):
        return say(f"how much {be(what)} {what.english}", f"{what.chinese}多少钱", what, end="?")
    amount = 2 + source.below(98)
    verb = "cost" if what.agreement == "plural" else "costs"
    return say(
        f"{what.english} {verb} {number_english(amount)} yuan",
        f"{what.chinese}{number_chinese(amount, counting=True)}块钱",
        what,
    )


def whose(source):
    """Whose umbrella is this? This is my umbrella. That hat is not mine."""
    noun, near, kind = source.pick(things()), source.chance(0.5), source.below(5)
    this, chinese = ("this", "这") if near else ("that", "那")
    thing, owner = own(source, noun), source.pick(PRONOUNS)
    if kind == 0:
        return say(f"whose {noun.english} is {this}", f"{chinese}是谁的{noun.chinese}", end="?")
    if kind == 1:
        return say(f"is {this} {thing.english}", f"{chinese}是{thing.chinese}吗", end="?")
    if kind == 2:
        return say(f"{this} isn't {thing.english}", f"{chinese}不是{thing.chinese}")
    if kind == 3:
        return say(
            f"{this} {noun.english} is {POSSESSIVES[owner[2]]}",
            f"{chinese}{noun.measure}{noun.chinese}是{owner[3]}的",
        )
    return say(f"{this} is {thing.english}", f"{chinese}是{thing.chinese}")


# ---------------------------------------------------------------------------- where


def small_things():
    """Things that fit on or under furniture."""
    return [
        noun
        for noun in NOUNS
        if noun.group
        in ("reading", "stationery", "toy", "container", "food", "accessory", "device", "picture", "clothes")
        and noun.english not in ("box", "bag")
    ]


def existence(source):
    """There are three cats under the table. Is there a key in the bag?"""
    spot, noun, kind = source.pick(SPOTS), source.pick(small_things()), source.below(5)
    where = f"{spot[0]} {spot[1]}"
    if kind == 0:
        return say(f"there aren't any {noun.plural} {where}", f"{spot[2]}没有{noun.chinese}")
    if kind == 1:
        return say(
            f"how many {noun.plural} are there {where}", f"{spot[2]}有多少{noun.measure}{noun.chinese}", end="?"
        )
    what = counted(source, noun)
    verb = "are" if what.agreement == "plural" else "is"
    if kind == 2:
        return say(f"{verb} there {what.english} {where}", f"{spot[2]}有{what.chinese}吗", what, end="?")
    return say(f"there {verb} {what.english} {where}", f"{spot[2]}有{what.chinese}", what)


def people_somewhere(source):
    """There are five students in the classroom."""
    noun, where = (
        source.pick(PEOPLE),
        place(
            source, source.pick(["park", "classroom", "library", "shop", "restaurant", "office", "museum", "factory"])
        ),
    )
    if source.chance(0.2):
        return say(
            f"how many {noun.plural} are there {where.english}",
            f"{where.chinese.removeprefix('在')}里有多少{noun.measure}{noun.chinese}",
            end="?",
        )
    what = counted(source, noun, adjective=False)
    verb = "are" if what.agreement == "plural" else "is"
    return say(
        f"there {verb} {what.english} {where.english}", f"{where.chinese.removeprefix('在')}里有{what.chinese}", what
    )


def location(source):
    """The key is on the table. Where is my phone? My mother isn't at the hospital."""
    kind = source.below(6)
    if kind < 3:
        thing, spot = own(source, source.pick(small_things())), source.pick(SPOTS)
        where = f"{spot[0]} {spot[1]}"
        if kind == 0:
            return say(f"where is {thing.english}", f"{thing.chinese}在哪里", end="?")
        if kind == 1:
            return say(f"{thing.english} isn't {where}", f"{thing.chinese}不在{spot[2]}")
        return say(f"{thing.english} is {where}", f"{thing.chinese}在{spot[2]}")
    who, where = person(source), place(source)
    if kind == 3:
        return say(f"{who.english} {NEGATED_BE[be(who)]} {where.english}", f"{who.chinese}不{where.chinese}")
    if kind == 4:
        return say(f"{be(who)} {who.english} {where.english}", f"{who.chinese}{where.chinese}吗", end="?")
    when = past_time(source)
    return say(
        f"{who.english} {be(who, past=True)} {where.english} {when.english}",
        f"{who.chinese}{when.chinese}{where.chinese}",
    )


def travel(source):
    """He goes to school by bus. How does she go to the office? We went to Paris with Tom last year."""
    who, kind, (english, chinese, reach) = person(source), source.below(5), source.pick(TRANSPORT)
    where = destination(source, reach)
    go = "goes" if who.agreement == "third" else "go"
    if kind == 0:
        return say(f"how {do(who)} {who.english} go {where.english}", f"{who.chinese}怎么去{where.chinese}", end="?")
    if kind == 1:
        when, whom = past_time(source), other_person(source, who)
        return say(
            f"{who.english} went {where.english} with {whom.english} {when.english}",
            f"{who.chinese}{when.chinese}跟{whom.chinese}去了{where.chinese}",
        )
    if kind == 2:
        when = future_time(source)
        return say(
            f"{who.english} will go {where.english} {english} {when.english}",
            f"{who.chinese}{when.chinese}会{chinese}去{where.chinese}",
        )
    when = habit_time(source)
    return say(
        f"{who.english} {go} {where.english} {english} {when.english}",
        f"{who.chinese}{when.chinese}{chinese}去{where.chinese}",
    )


# ---------------------------------------------------------------------------- when


def calendar(source):
    """Today is Monday. Tomorrow is May third. My birthday is ... It is half past two."""
    kind = source.below(6)
    month = source.below(12)
    day = 1 + source.below(30 if month != 1 else 28)
    date, chinese_date = f"{MONTHS[month]} {day}", f"{month_chinese(month)}{number_chinese(day)}号"
    english, digit = weekday(source)
    day_name, chinese_day = source.pick([("today", "今天"), ("tomorrow", "明天")])
    if kind == 0:
        return say(f"{day_name} is {english}", f"{chinese_day}是星期{digit}")
    if kind == 1:
        return say(f"{day_name} is {english}, {date}", f"{chinese_day}是{chinese_date}，星期{digit}")
    if kind == 2:
        return say(f"{day_name} is {date}", f"{chinese_day}是{chinese_date}")
    if kind == 3:
        time = clock(source)
        return say(f"it is {time.english} now", f"现在{time.chinese}")
    if kind == 4:
        who = source.pick(PRONOUNS)
        return say(f"{who[2]} birthday is {date}", f"{who[3]}的生日是{chinese_date}")
    who = relative(source) if source.chance(0.6) else name(source)
    return say(f"{who.english} will come on {date}", f"{who.chinese}{chinese_date}会来")


def month_chinese(index):
    """January is 一月."""
    return f"{number_chinese(index + 1)}月"


def weather(source):
    """It rained yesterday. It is raining. It is colder in Beijing than in Shanghai."""
    english, comparative, chinese = source.pick(WEATHER)
    base, past, gerund, falling = source.pick(
        [("rain", "rained", "raining", "下雨"), ("snow", "snowed", "snowing", "下雪")]
    )
    kind, before, after = source.below(10), past_time(source), future_time(source)
    where, other = place(source, "town"), place(source, "town")
    if kind == 9 or where == other:
        return say(f"it is {comparative} today than yesterday", f"今天比昨天{chinese}")
    return [
        lambda: say(f"it {past} {before.english}", f"{before.chinese}{falling}了"),
        lambda: say(f"it is {gerund} {where.english}", f"{where.chinese.removeprefix('在')}正在{falling}"),
        lambda: say(f"it will {base} {after.english}", f"{after.chinese}会{falling}"),
        lambda: say(f"did it {base} {before.english}", f"{before.chinese}{falling}了吗", end="?"),
        lambda: say(f"it was {english} {before.english}", f"{before.chinese}很{chinese}"),
        lambda: say(f"it is {english} {where.english} today", f"{where.chinese.removeprefix('在')}今天很{chinese}"),
        lambda: say(
            f"it is {comparative} {where.english} than {other.english}",
            f"{where.chinese.removeprefix('在')}比{other.chinese.removeprefix('在')}{chinese}",
        ),
        lambda: say(f"it won't {base} {after.english}", f"{after.chinese}不会{falling}"),
        lambda: say(
            f"it didn't {base} {where.english} {before.english}",
            f"{where.chinese.removeprefix('在')}{before.chinese}没{falling}",
        ),
    ][kind]()


PATTERNS = {
    quality_of_thing: 9,
    color_of_thing: 4,
    compare_things: 10,
    price: 4,
    whose: 5,
    existence: 9,
    people_somewhere: 6,
    location: 5,
    travel: 6,
    calendar: 8,
    weather: 7,
}
