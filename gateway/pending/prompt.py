"""What a person is shown before and after: the prompt, and how it reads once it is settled.

The gateway writes it from the frozen record; no model has a word in it.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from datetime import datetime

from channels import Button, Json, Reply
from gateway.pending.words import safe_words
from gateway.tools.action import PendingAction, why_closed
from gateway.tools.verbs import NO_VERBS
from gateway.wording import clock_time, duration, listing, say

__all__ = ["plain", "prompt", "settled_note", "statement", "what_became"]

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+\-.!|~&])")
_QUESTION_MARKS = "¿?？؟\N{GREEK QUESTION MARK}՞፧⁇⁈⁉‽"
_LONG_VALUE = 200
_LONG = 1000


def plain(text: str, *, at_most: int = _LONG) -> str:
    """Text as Markdown that shows exactly it: nothing in a value becomes a link, a heading or a mark."""
    return _SPECIAL.sub(r"\\\1", _visible(text, at_most))


def statement(preview: str) -> str:
    """A preview in a sentence of ours that asks nothing any more: as `plain`, without the question marks around it."""
    return plain(preview.strip().strip(_QUESTION_MARKS).strip())


def prompt(
    actions: Sequence[PendingAction],
    tokens: Sequence[tuple[str, str]],
    *,
    intro: str | None = None,
    now: datetime | None = None,
    letters: Callable[[str], str] = str,
) -> Reply:
    """The question for one action or several, with a confirm and a cancel button for each, or how to answer in words.

    One that was answered meanwhile says so in its place, and its buttons stay: were they gone, those of the next would
    be where a second tap lands.

    `tokens` are the (confirm, cancel) tokens of each action; none: there are no buttons here. `intro` is a sentence in
    front. `now` is when it is shown: what was shown before has less time left. `letters` spells our own words.
    """
    language = actions[0].language
    blocks = [intro] if intro else []
    several = len(actions) > 1
    for number, action in enumerate(actions, start=1):
        lead = f"{number}\\. " if several else ""
        if not action.open:
            blocks.append(f"{lead}{settled_note(action, now or action.requested_at)}")
            continue
        title = plain(action.preview.strip() or action.kind)
        blocks.append("\n".join([f"{lead}**{title}**", *_rows(action), "", _answer(action, letters, words=not tokens)]))
    shortest = min(_left_seconds(action, now) for action in actions if action.open)
    left = letters(duration(shortest, language))
    blocks.append(say("prompt_window", language, letters, duration=left))
    buttons: list[Button] = []
    for action, (confirm, cancel) in zip(actions, tokens, strict=True) if tokens else ():
        suffix, values = ("_code", {"code": action.code}) if several else ("", {})
        yes, no = ("button_do", "button_do_not") if action.verb in NO_VERBS else ("button_confirm", "button_cancel")
        buttons.append(Button(label=say(f"{yes}{suffix}", language, **values), token=confirm, style="confirm"))
        buttons.append(Button(label=say(f"{no}{suffix}", language, **values), token=cancel, style="cancel"))
    return Reply(text="\n\n".join(blocks), buttons=tuple(buttons))


def settled_note(action: PendingAction, at: datetime) -> str:
    """What the prompt says in place of its buttons once the action is settled."""
    language = action.language
    who = plain(action.decided_name or action.decided_by or "")
    match action.state, action.reason:
        case "done", _:
            note = say("confirmed_by", language, name=who, time=clock_time(at, language))
        case "failed", _:
            note = say("failed_note", language)
        case "unknown", _:
            note = say("unknown_note", language)
        case "closed", "refused":
            note = say("cancelled_by", language, name=who)
        case "closed", ("expired" | "withdrawn" | "undelivered" | "drifted" | "changed") as reason:
            note = say(f"{why_closed(reason, action.detail)}_note", language)
        case _:
            note = say("running_note", language)
    return f"**{statement(action.preview)}**\n\n{note}"


def what_became(action: PendingAction, at: datetime) -> str:
    """The truthful answer, in plain text, to a button or a word that comes too late for this action."""
    match action.state, action.reason:
        case (("approved" | "running"), _):
            key = "already_running"
        case (("done" | "failed" | "unknown"), _):
            key = f"already_{action.state}"
        case "closed", ("refused" | "withdrawn"):
            key = "already_cancelled"
        case "closed", ("drifted" | "changed") as reason:
            key = f"{why_closed(reason, action.detail)}_note"
        case "closed", _:
            key = "already_expired"
        case _:
            key = "already_expired" if action.expires_at is not None and at > action.expires_at else "still_waiting"
    return say(key, action.language)


def _rows(action: PendingAction) -> list[str]:
    rows = list(action.table) or [(name, _value(value)) for name, value in action.args.items()]
    return [f"- {plain(name)}: {plain(value, at_most=_LONG_VALUE)}" for name, value in rows]


def _left_seconds(action: PendingAction, now: datetime | None) -> float:
    if now is None or action.expires_at is None:
        return action.ttl_seconds
    return (action.expires_at - now).total_seconds()


def _answer(action: PendingAction, letters: Callable[[str], str], *, words: bool) -> str:
    language = action.language
    yes, no = map(letters, safe_words(language))
    how = "prompt_words" if words else "prompt_code"
    answer = say(how, language, letters, yes_word=yes, no_word=no, code=action.code)
    if action.approvers:
        people = listing([plain(person) for person in action.approvers], language)
        who = "prompt_approvers" if action.need == 1 else "prompt_votes"
        return f"{answer} {say(who, language, letters, people=people, need=action.need)}"
    if action.address is not None and action.address.group:
        return f"{answer} {say('prompt_requester_only', language, letters)}"
    return answer


def _value(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _visible(text: str, at_most: int) -> str:
    """Control, format and direction characters as escapes, and long text cut in the middle, saying how long it is."""
    if len(text) > at_most:
        half = at_most // 2
        return f"{_visible(text[:half], half)} … ({len(text)}) … {_visible(text[-half:], half)}"
    return "".join(map(_visible_char, text))


def _visible_char(char: str) -> str:
    if char.isprintable():
        return char
    if char == "\n":
        return " ⏎ "
    if unicodedata.category(char) == "Zs":
        return " "
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
