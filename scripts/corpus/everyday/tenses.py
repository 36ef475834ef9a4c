"""Actions in the past, the future and the present progressive: statements, negations and questions.

Each function draws one sentence; `PATTERNS` at the end gives their weights.
"""

from .phrases import (
    activity,
    bare_action,
    counted_action,
    destination,
    future_time,
    other_person,
    past_time,
    person,
    place,
    pointed_action,
)
from .sentence import say
from .words import PERSON_VERBS, VERBS, Phrase, be


def any_action(source, small=False):
    """An action for most tenses."""
    if source.chance(0.35):
        return activity(source)
    return counted_action(source, small=small)


def past_action(source):
    """An action in the past."""
    return activity(source) if source.chance(0.3) else counted_action(source, instant=True)


def needs_time(predicate):
    """True when the past looks like the present: "I read a book"."""
    return predicate.verb.past == predicate.verb.base


# ---------------------------------------------------------------------------- past


def past(source):
    """I bought three books yesterday."""
    who, what = person(source), past_action(source)
    when = past_time(source) if needs_time(what) or source.chance(0.8) else Phrase("", "")
    return say(f"{who.english} {what.past} {when.english}", who.chinese + when.chinese + what.done, who, what)


def past_at_place(source):
    """She danced in the park last night."""
    who, what, where, when = person(source), activity(source), place(source), past_time(source)
    return say(
        f"{who.english} {what.past} {where.english} {when.english}",
        f"{who.chinese}{when.chinese}{where.chinese}{what.done}",
        who,
    )


def past_negative(source):
    """He didn't buy any books yesterday."""
    who, when = person(source), past_time(source)
    what = activity(source) if source.chance(0.35) else bare_action(source, True, "any ")
    return say(
        f"{who.english} didn't {what.base} {when.english}", f"{who.chinese}{when.chinese}没{what.plain}", who, what
    )


def past_question(source):
    """Did you buy three books yesterday?"""
    who, what, when = person(source), past_action(source), past_time(source)
    return say(
        f"did {who.english} {what.base} {when.english}",
        f"{who.chinese}{when.chinese}{what.done}吗",
        who,
        what,
        end="?",
    )


def past_what(source):
    """What did you buy yesterday?"""
    who, verb, when = person(source), source.pick(VERBS), past_time(source)
    while verb.base == "wear" or "song" in verb.groups:
        verb = source.pick(VERBS)
    return say(
        f"what did {who.english} {verb.base} {when.english}",
        f"{who.chinese}{when.chinese}{verb.chinese}了什么",
        end="?",
    )


def past_who(source):
    """Who bought three books yesterday?"""
    what, when = past_action(source), past_time(source)
    return say(f"who {what.past} {when.english}", f"谁{when.chinese}{what.done}", what, end="?")


def past_why(source):
    """Why did she cry last night?"""
    who, what, when = person(source), activity(source), past_time(source)
    if source.chance(0.5):
        return say(
            f"why didn't {who.english} {what.base} {when.english}",
            f"{who.chinese}{when.chinese}为什么没{what.plain}",
            end="?",
        )
    return say(
        f"why did {who.english} {what.base} {when.english}", f"{who.chinese}{when.chinese}为什么{what.plain}", end="?"
    )


def person_past(source):
    """He met my mother in the park yesterday."""
    verb = source.pick([verb for verb in PERSON_VERBS if "s" not in verb.flags])
    who, when = person(source), past_time(source)
    whom = other_person(source, who)
    if source.chance(0.3):
        return say(
            f"{who.english} didn't {verb.base} {whom.english} {when.english}",
            f"{who.chinese}{when.chinese}没{verb.chinese}{whom.chinese}",
            who,
        )
    where = place(source) if source.chance(0.4) and verb.base != "visit" else Phrase("", "")
    return say(
        f"{who.english} {verb.past} {whom.english} {where.english} {when.english}",
        f"{who.chinese}{when.chinese}{where.chinese}{verb.chinese}了{whom.chinese}",
        who,
    )


def duration(source):
    """She slept for eight hours last night."""
    who, when = person(source), past_time(source)
    verb = source.pick(
        [
            ("slept", "睡了"),
            ("worked", "工作了"),
            ("studied", "学习了"),
            ("danced", "跳了"),
            ("rested", "休息了"),
            ("waited", "等了"),
            ("swam", "游了"),
            ("ran", "跑了"),
        ]
    )
    number = Phrase(
        *source.pick(
            [
                ("an hour", "一个小时"),
                ("two hours", "两个小时"),
                ("three hours", "三个小时"),
                ("eight hours", "八个小时"),
                ("ten minutes", "十分钟"),
                ("half an hour", "半个小时"),
                ("twenty minutes", "二十分钟"),
            ]
        )
    )
    return say(
        f"{who.english} {verb[0]} for {number.english} {when.english}",
        f"{who.chinese}{when.chinese}{verb[1]}{number.chinese}",
    )


def opening(source):
    """She opened the window last night. Don't close the door."""
    english, past_form, chinese = source.pick([("open", "opened", "打开"), ("close", "closed", "关上")])
    noun = source.pick([("door", "门"), ("window", "窗户"), ("box", "盒子"), ("bag", "包"), ("book", "书")])
    who, when, kind = person(source), past_time(source), source.below(8)
    if kind == 0:
        return say(f"please {english} the {noun[0]}", f"请{chinese}{noun[1]}")
    if kind == 1:
        return say(f"don't {english} the {noun[0]}", f"别{chinese}{noun[1]}")
    if kind == 2:
        return say(
            f"did {who.english} {english} the {noun[0]} {when.english}",
            f"{who.chinese}{when.chinese}{chinese}{noun[1]}了吗",
            end="?",
        )
    if kind == 3:
        return say(f"who {past_form} the {noun[0]} {when.english}", f"谁{when.chinese}{chinese}了{noun[1]}", end="?")
    return say(
        f"{who.english} {past_form} the {noun[0]} {when.english}", f"{who.chinese}{when.chinese}{chinese}了{noun[1]}"
    )


# ---------------------------------------------------------------------------- future


def future(source):
    """I will buy a book tomorrow."""
    who, what, when = person(source), any_action(source), future_time(source)
    return say(
        f"{who.english} will {what.base} {when.english}", f"{who.chinese}{when.chinese}会{what.plain}", who, what
    )


def going_to(source):
    """I am going to buy a book tomorrow."""
    who, what, when = person(source), any_action(source), future_time(source)
    return say(
        f"{who.english} {be(who)} going to {what.base} {when.english}",
        f"{who.chinese}{when.chinese}要{what.plain}",
        who,
        what,
    )


def future_negative(source):
    """They won't play football tomorrow."""
    who, when = person(source), future_time(source)
    what = activity(source) if source.chance(0.5) else bare_action(source)
    return say(
        f"{who.english} won't {what.base} {when.english}", f"{who.chinese}{when.chinese}不会{what.plain}", who, what
    )


def future_question(source):
    """Will you help me tomorrow?"""
    who, what, when = person(source), any_action(source), future_time(source)
    return say(
        f"will {who.english} {what.base} {when.english}",
        f"{who.chinese}{when.chinese}会{what.plain}吗",
        who,
        what,
        end="?",
    )


def future_when(source):
    """When will you go to Beijing?"""
    who = person(source)
    if source.chance(0.5):
        where = destination(source)
        return say(f"when will {who.english} go {where.english}", f"{who.chinese}什么时候去{where.chinese}", end="?")
    what = pointed_action(source)
    return say(f"when will {who.english} {what.base}", f"{who.chinese}什么时候{what.plain}", what, end="?")


# ---------------------------------------------------------------------------- progressive


def progressive(source):
    """He is reading a book."""
    who, what = person(source), any_action(source, small=True)
    return say(f"{who.english} {be(who)} {what.gerund}", who.chinese + what.ongoing, who, what)


def progressive_at_place(source):
    """They are playing chess in the park."""
    who, what, where = person(source), activity(source), place(source)
    return say(
        f"{who.english} {be(who)} {what.gerund} {where.english}", f"{who.chinese}正{where.chinese}{what.plain}", who
    )


def progressive_negative(source):
    """She isn't watching TV."""
    who, what = person(source), activity(source)
    form = {"am": "am not", "is": "isn't", "are": "aren't"}[be(who)]
    return say(f"{who.english} {form} {what.gerund}", f"{who.chinese}没在{what.plain}", who)


def progressive_question(source):
    """Is he reading a book?"""
    who, what = person(source), any_action(source, small=True)
    return say(f"{be(who)} {who.english} {what.gerund}", f"{who.chinese}{what.ongoing}吗", who, what, end="?")


def progressive_why(source):
    """Why is she crying?"""
    who, what = person(source), activity(source)
    return say(f"why {be(who)} {who.english} {what.gerund}", f"{who.chinese}为什么在{what.plain}", end="?")


def progressive_what(source):
    """What is he doing? What are you reading?"""
    who = person(source)
    verb = source.pick(
        [
            ("doing", "做"),
            ("reading", "看"),
            ("eating", "吃"),
            ("drinking", "喝"),
            ("writing", "写"),
            ("looking for", "找"),
            ("buying", "买"),
            ("drawing", "画"),
            ("washing", "洗"),
        ]
    )
    return say(f"what {be(who)} {who.english} {verb[0]}", f"{who.chinese}在{verb[1]}什么", end="?")


PATTERNS = {
    past: 10,
    past_at_place: 4,
    past_negative: 6,
    past_question: 5,
    past_what: 2,
    past_who: 3,
    past_why: 3,
    person_past: 6,
    duration: 3,
    opening: 4,
    future: 6,
    going_to: 6,
    future_negative: 4,
    future_question: 4,
    future_when: 3,
    progressive: 11,
    progressive_at_place: 3,
    progressive_negative: 2,
    progressive_question: 6,
    progressive_why: 2,
    progressive_what: 1,
}
