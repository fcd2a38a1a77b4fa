"""The texts of a prompt: the question, and its text once the action has ended.

The gateway writes them from the frozen record. No text of the model is part of them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from datetime import datetime

from channels import Button, Json, Person, Reply, Settled
from channels.formatting import is_quick
from gateway.artifacts import Artifact
from gateway.pending.words import Intent, safe_words
from gateway.tools.escape import has_right_to_left, legible, named, plain, shown, visible
from gateway.tools.pending_action import PendingAction, why_closed
from gateway.tools.template import as_text
from gateway.tools.verbs import NO_VERBS
from gateway.wording import clock_time, duration, isolated, listing, say

__all__ = [
    "attached",
    "brief",
    "code_only",
    "decided_by",
    "full_text",
    "is_you",
    "labels",
    "outcome_key",
    "prompt",
    "question",
    "remark",
    "settled",
    "settled_note",
    "statement",
    "what_became",
]

_QUESTION_MARKS = "¿?？؟\N{GREEK QUESTION MARK}՞፧⁇⁈⁉‽"
_LONGEST_QUESTION = 3_000
"""The most characters of Markdown of a question. A longer one is sent as a file."""
_LONGEST_TITLE = 600
_LONGEST_ESCAPE = 12
"""The most characters of Markdown that one character is escaped to."""
_LONGEST_BRIEF = 300
_WORD_LIKE = re.compile(r"[\w.,@/+#-]*[\w%]", re.ASCII)
_WIDE_OR_NARROW = re.compile(r"[\u00a0\u2000-\u200a\u202f\u205f]")
"""The spaces of formatted amounts and dates."""
_PERSON = re.compile(r"[\w:+%.@=/-]+", re.ASCII)
_TEXT = "text/plain; charset=utf-8"


def brief(preview: str) -> str:
    """Return a preview for a list or a repetition, as `plain`. Past 300 characters its end is left out."""
    text = preview.strip()
    if len(text) > _LONGEST_BRIEF:
        text = f"{text[:_LONGEST_BRIEF]}…"
        text += "”" * (text.count("“") > text.count("”"))
    return plain(text)


def statement(preview: str) -> str:
    """Return a preview for a sentence that asks nothing any more: as `brief`, without question marks around it."""
    return brief(preview.strip().strip(_QUESTION_MARKS))


def code_only(action: PendingAction) -> bool:
    """Return True if the question is too long for a message. A file holds it, and only the code confirms it."""
    texts = _texts(action)
    if max(map(len, texts)) > _LONGEST_QUESTION:
        return True
    if sum(len(text) + 1 for text in texts) * _LONGEST_ESCAPE < _LONGEST_QUESTION:
        return False  # even if every character is escaped
    text = question(action)
    return len(text) > _LONGEST_QUESTION or not is_quick(text)


def question(action: PendingAction) -> str:
    """Return the whole question as Markdown: the headline and every argument."""
    rows = [f"- {_row(name, value, plain)}" for name, value in _rows(action)]
    return "\n".join([f"**{plain(_headline(action))}**", *rows])


def full_text(action: PendingAction) -> str:
    """Return the whole question as plain text, for a file."""
    rows = [_row(name, value, legible) for name, value in _rows(action)]
    return "\n".join([legible(_headline(action)), "", *rows, ""])


def attached(action: PendingAction) -> Artifact:
    """Return the file with the whole question. It is always the same for one action."""
    content = full_text(action).encode("utf-8", "backslashreplace")
    return Artifact(
        content=content,
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
        mime_type=_TEXT,
        filename=f"{action.code}.txt",
    )


def prompt(
    actions: Sequence[PendingAction],
    tokens: Sequence[tuple[str | None, str]],
    *,
    intro: str | None = None,
    now: datetime | None = None,
    letters: Callable[[str], str] = str,
) -> Reply:
    """Return the prompt of one action or several: a confirm and a cancel button for each, or how to answer in words.

    An action that has been answered shows its outcome. Its buttons stay, so that a second tap does not hit the buttons
    of the next action.

    `tokens` are the (confirm, cancel) tokens of each action; empty: the channel has no buttons. An action that only its
    code confirms has no confirm token, and its file goes in front. `intro` is a sentence in front. `now` is the time of
    this showing, from which the time left is counted. `letters` respells the gateway's own words for the channel.
    """
    language = actions[0].language
    blocks = [intro] if intro else []
    several = len(actions) > 1
    for number, action in enumerate(actions, start=1):
        lead = f"{number}\\. " if several else ""
        if not action.open:
            blocks.append(f"{lead}{settled_note(action, now or action.requested_at)}")
            continue
        long = code_only(action)
        asked = _shortened(action, letters) if long else question(action)
        blocks.append(f"{lead}{asked}\n\n{_answer(action, letters, words=long or not tokens)}")
    shortest = min(_left_seconds(action, now) for action in actions if action.open)
    left = letters(duration(shortest, language))
    blocks.append(say("prompt_window", language, letters, duration=left))
    buttons: list[Button] = []
    for action, (confirm, cancel) in zip(actions, tokens, strict=True) if tokens else ():
        (label_yes, _), (label_no, _) = _both(action, several=several, language=language)
        if confirm is not None:
            buttons.append(Button(label=label_yes, token=confirm, style="confirm"))
        buttons.append(Button(label=label_no, token=cancel, style="cancel"))
    ended = tuple(settled(action, now or action.requested_at) for action in actions)
    ended = () if all(action.open for action in actions) else ended
    return Reply(text="\n\n".join(blocks), buttons=tuple(buttons), exact=True, settled=ended)


def labels(action: PendingAction, *, several: bool) -> list[tuple[str, Intent]]:
    """Return the label and the intent of each button of an open action. If only the code confirms, it has no yes."""
    both = _both(action, several=several, language=action.language)
    return both[1:] if code_only(action) else both


def _both(action: PendingAction, *, several: bool, language: str) -> list[tuple[str, Intent]]:
    suffix, values = ("_code", {"code": action.code}) if several else ("", {})
    yes, no = ("button_do", "button_do_not") if action.verb in NO_VERBS else ("button_confirm", "button_cancel")
    return [
        (say(f"{yes}{suffix}", language, **values), "confirm"),
        (say(f"{no}{suffix}", language, **values), "cancel"),
    ]


def settled(action: PendingAction, at: datetime) -> Settled:
    """Return the state of an action for the channel, with the time that `settled_note` writes."""
    match action.state:
        case "pending":
            return Settled(state="open")
        case "closed":
            unanswered = action.reason == "expired" and action.decided_at is None
            return Settled(state="expired" if unanswered else "not_done")
        case "done" | "failed":
            when = action.finished_at or at
            return Settled(state=action.state, at=when, written=clock_time(when, action.language))
        case "unknown":
            return Settled(state="unknown")
    return Settled(state="running")


def settled_note(action: PendingAction, at: datetime) -> str:
    """Return the text that replaces the question once it is decided: the question in short, and its outcome.

    `at` is the time of this change of the message, for an action that has not ended.
    """
    language, time = action.language, clock_time(action.finished_at or at, action.language)
    name = decided_by(action)
    match action.state, action.reason:
        case "done", _:
            note = say("confirmed_by", language, name=name, time=time)
        case "failed", _:
            note = say("failed_note", language, name=name, time=time)
        case "unknown", _:
            note = say("unknown_note", language, name=name)
        case "closed", "refused":
            key = "cancelled_by_you" if is_you(action) else "cancelled_by"
            key = f"{key}_because" if action.remark else key
            note = say(key, language, name=name, remark=remark(action))
        case "closed", "expired" if action.decided_at is not None:  # confirmed, but not launched in time
            note = say("not_started_note", language)
        case "closed", ("expired" | "withdrawn" | "undelivered" | "drifted" | "changed") as reason:
            note = say(f"{why_closed(reason, action.detail)}_note", language)
        case _:
            note = say("running_note", language, name=name)
    rows = [] if code_only(action) else [f"- {_row(name, value, plain)}" for name, value in _rows(action)]
    return "\n".join([f"**{statement(action.preview)}**", *rows, "", note])


def decided_by(action: PendingAction) -> str:
    """Return the person who decided it, as Markdown."""
    if is_you(action):
        return say("you", action.language)
    return named(action.decided_name) if action.decided_name else _person(action.decided_by or "")


def is_you(action: PendingAction) -> bool:
    """Return True if the person who decided it is the only reader and has no name, so that the text says "you"."""
    if action.decided_name or action.address is None or action.address.group or action.decided_by != action.requester:
        return False
    return Person.parse(action.requester).user_id == action.address.place


def remark(action: PendingAction) -> str:
    """Return the person's words beside a no, quoted, as Markdown."""
    return plain(shown(action.remark or "", bare=False))


def what_became(action: PendingAction, at: datetime) -> str:
    """Return the answer to a button or a reply that comes too late for this action, in the action's language."""
    return say(outcome_key(action, at), action.language)


def outcome_key(action: PendingAction, at: datetime) -> str:
    """Return the name of the sentence of `what_became`."""
    match action.state, action.reason:
        case (("approved" | "running"), _):
            return "already_running"
        case (("done" | "failed" | "unknown"), _):
            return f"already_{action.state}"
        case "closed", ("refused" | "withdrawn"):
            return "already_cancelled"
        case "closed", ("drifted" | "changed") as reason:
            return f"{why_closed(reason, action.detail)}_note"
        case "closed", _:
            return "already_expired"
    return "already_expired" if action.expires_at is not None and at > action.expires_at else "still_waiting"


def _texts(action: PendingAction) -> list[str]:
    """Return the unescaped texts of the question."""
    texts = [action.preview, action.kind, *(text for row in action.table for text in row), *action.args]
    return texts + [value if isinstance(value, str) else as_text(value) for value in action.args.values()]


def _headline(action: PendingAction) -> str:
    return action.preview.strip() or action.kind.replace("_", " ")


def _shortened(action: PendingAction, letters: Callable[[str], str]) -> str:
    """Return the question of an action with a file: a short title and the file's name."""
    title = plain(_headline(action))
    if len(title) > _LONGEST_TITLE or not is_quick(title):
        title = plain(action.kind.replace("_", " "))
    file = plain(f"{action.code}.txt")
    return f"**{title}**\n\n{say('prompt_attached', action.language, letters, file=file)}"


def _rows(action: PendingAction) -> list[tuple[str, str]]:
    """Return names and values: the preview's own table, then every argument whose exact value is not shown yet."""
    table = [(name, _cell(value)) for name, value in action.table]
    args = [(name, shown(value)) for name, value in action.args.items()]
    if len(args) == 1 and action.template and _is_said(action.preview, next(iter(action.args.values()))):
        args = []  # a template writes it into the headline
    return [*table, *((_argument(name), value) for name, value in args if (name, value) not in table)]


def _cell(value: str) -> str:
    """Return a value of a preview's table, which is always a text."""
    value = _WIDE_OR_NARROW.sub(" ", value)
    return value if _WORD_LIKE.fullmatch(value) else f"“{visible(value)}”"


def _argument(name: str) -> str:
    return name if name.isidentifier() and visible(name) == name else f"“{visible(name)}”"


def _row(name: str, value: str, write: Callable[[str], str]) -> str:
    written = write(value)
    if has_right_to_left(name + value) and not (value.startswith("“") and has_right_to_left(value)):
        written = isolated(written)  # a quoted text with right-to-left letters is isolated already
    return f"{write(name)}: {written}"


def _is_said(headline: str, value: Json) -> bool:
    """Return True if the headline shows this value as a whole word."""
    said = shown(value, bare=False)
    around = r"(?<![\w.,+-]){}(?![\w-]|[.,]\w)" if not isinstance(value, str) else "{}"
    return re.search(around.format(re.escape(said)), headline) is not None


def _person(written: str) -> str:
    """Return the written form of a person as Markdown code. A channel may show its own name for them instead."""
    return f"`{written}`" if _PERSON.fullmatch(written) else named(written) if written else ""


def _left_seconds(action: PendingAction, now: datetime | None) -> float:
    if now is None or action.expires_at is None:
        return action.ttl_seconds
    return (action.expires_at - now).total_seconds()


def _answer(action: PendingAction, letters: Callable[[str], str], *, words: bool) -> str:
    language = action.language
    yes, no = map(letters, safe_words(language))
    # "Reply NO to cancel" to "Cancel the order?" would say that a no cancels it.
    in_words = "prompt_words_do" if action.verb in NO_VERBS else "prompt_words"
    how = in_words if words else "prompt_code"
    answer = say(how, language, letters, yes_word=yes, no_word=no, code=action.code)
    if action.approvers:
        people = listing([_person(person) for person in action.approvers], language)
        key = "prompt_approvers" if action.need == 1 else "prompt_votes"
        return f"{answer} {say(key, language, letters, people=people, need=action.need)}"
    if action.address is not None and action.address.group:
        return f"{answer} {say('prompt_requester_only', language, letters)}"
    return answer
