"""Habits, abilities, wishes, commands, experience, and sentences of two clauses.

Each function draws one sentence; `PATTERNS` at the end gives their weights.
"""

from . import lexicon
from .phrases import (
    activity,
    bare_action,
    clock,
    counted_action,
    destination,
    habit_time,
    near_time,
    person,
    place,
    pointed_action,
    pronoun,
    recent_time,
    third,
)
from .sentence import say
from .tenses import any_action
from .words import (
    Phrase,
    be,
    do,
    have,
    present,
    rows,
)

FREQUENCIES = rows(lexicon.FREQUENCIES)


# ---------------------------------------------------------------------------- habits


def habit(source):
    """She drinks tea every day."""
    who, when = person(source), habit_time(source)
    what = activity(source) if source.chance(0.45) else bare_action(source)
    return say(
        f"{who.english} {present(what.verb, who)} {what.tail} {when.english}",
        f"{who.chinese}{when.chinese}{what.plain}",
        who,
        what,
    )


def habit_negative(source):
    """He doesn't drink coffee."""
    who, what = person(source), bare_action(source)
    return say(f"{who.english} {do(who)}n't {what.base}", f"{who.chinese}不{what.plain}", who, what)


def habit_question(source):
    """Do you drink coffee every day?"""
    who, when = person(source), habit_time(source)
    what = activity(source) if source.chance(0.5) else bare_action(source)
    return say(
        f"{do(who)} {who.english} {what.base} {when.english}",
        f"{who.chinese}{when.chinese}{what.plain}吗",
        who,
        what,
        end="?",
    )


def frequency(source):
    """My father often plays chess in the park."""
    who, how = person(source), source.pick(FREQUENCIES)
    what = activity(source) if source.chance(0.5) else bare_action(source)
    where = place(source) if not what.tail and source.chance(0.5) else Phrase("", "")
    return say(
        f"{who.english} {how[0]} {present(what.verb, who)} {what.tail} {where.english}",
        f"{who.chinese}{how[1]}{where.chinese}{what.plain}",
        who,
        what,
    )


def at_clock(source):
    """He gets up at seven o'clock every day."""
    who, time = person(source), clock(source)
    base, form, chinese = source.pick(
        [
            ("get up", "gets up", "起床"),
            ("go to bed", "goes to bed", "上床"),
            ("go home", "goes home", "回家"),
            ("eat breakfast", "eats breakfast", "吃早饭"),
            ("eat lunch", "eats lunch", "吃午饭"),
            ("eat dinner", "eats dinner", "吃晚饭"),
        ]
    )
    if source.chance(0.2):
        return say(f"what time {do(who)} {who.english} {base}", f"{who.chinese}几点{chinese}", end="?")
    verb = form if who.agreement == "third" else base
    return say(f"{who.english} {verb} at {time.english} every day", f"{who.chinese}每天{time.chinese}{chinese}")


def before_bed(source):
    """He always takes a bath before going to bed."""
    who, what, how = person(source), activity(source), source.pick(FREQUENCIES)
    return say(
        f"{who.english} {how[0]} {present(what.verb, who)} before going to bed",
        f"{who.chinese}睡觉前{how[1]}{what.plain}",
    )


# ---------------------------------------------------------------------------- modals and commands


def skill(source):
    """She can swim. Can you play the piano?"""
    who, what, kind = person(source), activity(source, flag="s"), source.below(4)
    if kind == 0:
        return say(f"{who.english} can't {what.base}", f"{who.chinese}不会{what.plain}", who)
    if kind == 1:
        return say(f"can {who.english} {what.base}", f"{who.chinese}会{what.plain}吗", who, end="?")
    return say(f"{who.english} can {what.base}", f"{who.chinese}会{what.plain}", who)


def modal(source):
    """You should read this book. He doesn't have to work."""
    who = person(source)
    what = activity(source) if source.chance(0.3) else source.pick([counted_action, pointed_action])(source)
    third_form = who.agreement == "third"
    english, chinese = source.pick(
        [
            ("must", "必须"),
            ("should", "应该"),
            ("shouldn't", "不应该"),
            ("may", "可以"),
            ("wants to" if third_form else "want to", "想"),
            (f"{do(who)}n't want to", "不想"),
            ("likes to" if third_form else "like to", "喜欢"),
            (f"{have(who)} to", "得"),
            (f"{do(who)}n't have to", "不用"),
        ]
    )
    if "like" in english and what.counted:
        what = activity(source)
    return say(f"{who.english} {english} {what.base}", f"{who.chinese}{chinese}{what.plain}", who, what)


def wish_question(source):
    """Do you want to buy this car? What do you want to eat?"""
    who, what = person(source), source.pick([activity, pointed_action])(source)
    return say(f"{do(who)} {who.english} want to {what.base}", f"{who.chinese}想{what.plain}吗", what, end="?")


def command(source):
    """Please move this table. Don't read my letter. Let's play chess."""
    kind = source.below(3)
    what = activity(source) if source.chance(0.3) else pointed_action(source)
    if kind == 0:
        return say(f"please {what.base}", f"请{what.plain}", what)
    if kind == 1:
        return say(f"don't {what.base}", f"别{what.plain}", what)
    return say(f"let's {what.base}", f"我们{what.plain}吧", what)


# ---------------------------------------------------------------------------- experience


def experience(source):
    """I have read this book. Have you ever eaten a cake?"""
    who, what, kind = person(source), pointed_action(source), source.below(3)
    if kind == 0:
        return say(
            f"{who.english} {have(who)} never {what.participle}", f"{who.chinese}从来没{what.experienced}", who, what
        )
    if kind == 1:
        return say(
            f"{have(who)} {who.english} ever {what.participle}", f"{who.chinese}{what.experienced}吗", what, end="?"
        )
    return say(
        f"{who.english} {have(who)} {what.participle} before", f"{who.chinese}以前{what.experienced}", who, what
    )


def visited(source):
    """I have been to Beijing three times."""
    who, where, kind = person(source), destination(source), source.below(3)
    if kind == 0:
        return say(f"{who.english} {have(who)} never been {where.english}", f"{who.chinese}从来没去过{where.chinese}")
    if kind == 1:
        return say(
            f"{have(who)} {who.english} ever been {where.english}", f"{who.chinese}去过{where.chinese}吗", end="?"
        )
    times, chinese = source.pick(
        [
            ("once", "一次"),
            ("twice", "两次"),
            ("three times", "三次"),
            ("four times", "四次"),
            ("many times", "很多次"),
        ]
    )
    return say(
        f"{who.english} {have(who)} been {where.english} {times}", f"{who.chinese}去过{chinese}{where.chinese}"
    )


# ---------------------------------------------------------------------------- two clauses


def because(source):
    """She is tired because she worked yesterday."""
    who, when = pronoun(source), recent_time(source)
    if source.chance(0.6):
        what, (english, chinese) = (
            activity(source, flag="e"),
            source.pick([("tired", "累"), ("hungry", "饿"), ("thirsty", "渴")]),
        )
    else:
        what, (english, chinese) = (
            counted_action(source, True, small=True),
            source.pick([("happy", "高兴"), ("busy", "忙")]),
        )
    return say(
        f"{who.english} {be(who)} {english} because {who.english} {what.past} {when.english}",
        f"因为{who.chinese}{when.chinese}{what.done}，所以{who.chinese}很{chinese}",
        what,
    )


def condition(source):
    """If it rains tomorrow, I will watch TV."""
    who, what = pronoun(source), any_action(source, small=True)
    if source.chance(0.6):
        event, when = source.pick([("rains", "下雨"), ("snows", "下雪")]), near_time(source)
        english, chinese = f"it {event[0]} {when.english}", when.chinese + event[1]
    else:
        other = third(source)
        english, chinese = source.pick(
            [
                (f"{other.english} comes", f"{other.chinese}来"),
                (f"{other.english} has time", f"{other.chinese}有时间"),
                (f"{other.english} doesn't come", f"{other.chinese}不来"),
            ]
        )
    return say(f"if {english}, {who.english} will {what.base}", f"如果{chinese}，{who.chinese}就{what.plain}", what)


def childhood(source):
    """When I was young, I often played chess."""
    who, what = pronoun(source), activity(source)
    return say(
        f"when {who.english} {be(who, past=True)} young, {who.english} often {what.past}",
        f"{who.chinese}年轻的时候经常{what.plain}",
        what,
    )


PATTERNS = {
    habit: 9,
    habit_negative: 4,
    habit_question: 4,
    frequency: 7,
    at_clock: 4,
    before_bed: 2,
    skill: 4,
    modal: 9,
    wish_question: 4,
    command: 5,
    experience: 6,
    visited: 3,
    because: 5,
    condition: 5,
    childhood: 1,
}
