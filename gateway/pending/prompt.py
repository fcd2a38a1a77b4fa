"""What a person is shown before and after: the prompt, and how it reads once it is settled.

The gateway writes it from the frozen record; no model has a word in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime

from channels import Button, Json, Reply
from gateway.pending.words import safe_words
from gateway.tools.action import PendingAction
from gateway.wording import clock_time, duration, listing, say

__all__ = ["plain", "prompt", "settled_note", "what_became"]

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+\-.!|~&])")
_LONG = 200


def plain(text: str) -> str:
    """Text as Markdown that shows exactly it: nothing in a value becomes a link, a heading or a mark."""
    return _SPECIAL.sub(r"\\\1", _visible(text))


def prompt(actions: Sequence[PendingAction], tokens: Sequence[tuple[str, str]], *, intro: str | None = None) -> Reply:
    """The question for one action or several, with a confirm and a cancel button for each.

    `tokens` are the (confirm, cancel) tokens of each action. `intro` is a sentence in front.
    """
    language = actions[0].language
    blocks = [intro] if intro else []
    several = len(actions) > 1
    for number, action in enumerate(actions, start=1):
        lead = f"{number}\\. " if several else ""
        blocks.append("\n".join([f"{lead}**{plain(action.preview)}**", *_rows(action), _answer(action)]))
    shortest = min(action.ttl_seconds for action in actions)
    blocks.append(say("prompt_window", language, duration=duration(shortest, language)))
    buttons: list[Button] = []
    for action, (confirm, cancel) in zip(actions, tokens, strict=True):
        suffix, values = ("_code", {"code": action.code}) if several else ("", {})
        buttons.append(Button(label=say(f"button_confirm{suffix}", language, **values), token=confirm, style="confirm"))
        buttons.append(Button(label=say(f"button_cancel{suffix}", language, **values), token=cancel, style="cancel"))
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
        case "closed", ("expired" | "withdrawn" | "undelivered" | "drifted") as reason:
            note = say(f"{reason}_note", language)
        case _:
            note = say("running_note", language)
    return f"**{plain(action.preview)}**\n\n{note}"


def what_became(action: PendingAction, at: datetime) -> str:
    """The truthful answer, in plain text, to a button or a word that comes too late for this action."""
    match action.state, action.reason:
        case (("approved" | "running"), _):
            key = "already_running"
        case (("done" | "failed" | "unknown"), _):
            key = f"already_{action.state}"
        case "closed", ("refused" | "withdrawn"):
            key = "already_cancelled"
        case "closed", "drifted":
            key = "drifted_note"
        case "closed", _:
            key = "already_expired"
        case _:
            key = "already_expired" if action.expires_at is not None and at > action.expires_at else "still_waiting"
    return say(key, action.language)


def _rows(action: PendingAction) -> list[str]:
    rows = list(action.table) or [(name, _value(value)) for name, value in action.args.items()]
    return [f"- {plain(name)}: {plain(value)}" for name, value in rows]


def _answer(action: PendingAction) -> str:
    language = action.language
    yes, no = safe_words(language)
    answer = say("prompt_code", language, yes_word=yes, no_word=no, code=action.code)
    if action.approvers:
        people = listing([plain(person) for person in action.approvers], language)
        return f"\n{say('prompt_approvers', language, people=people)} {answer}"
    return f"\n{answer}"


def _value(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _visible(text: str) -> str:
    """Control, format and direction characters as escapes, and long text cut in the middle."""
    shown = "".join(char if char.isprintable() or char == "\n" else f"\\u{ord(char):04x}" for char in text)
    shown = shown.replace("\n", " ⏎ ")
    if len(shown) <= _LONG:
        return shown
    half = _LONG // 2
    return f"{shown[:half]} … ({len(shown)}) … {shown[-half:]}"
