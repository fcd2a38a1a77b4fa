"""The texts of a prompt: the question, and the note after the end of the action.

The gateway writes these texts from the frozen record. No text of the model is included.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, TypeAlias, get_args

from channels import Button, Json, Person, Reply, Settled
from channels.formatting import is_quick
from gateway.artifacts import Artifact
from gateway.pending.words import Intent, safe_words
from gateway.tools.confirm import NO_VERBS, as_text
from gateway.tools.escape import has_right_to_left, legible, named, plain, shown, visible
from gateway.tools.pending_action import Grant, PendingAction, StandingOffer, why_closed
from gateway.wording import clock_time, date_and_time, duration, isolated, listing, say

_QUESTION_MARKS = "¿?？؟\N{GREEK QUESTION MARK}՞፧⁇⁈⁉‽"
_ON_ITS_WAY_SECONDS = 5.0
"""The time that a message may take to arrive: a question with 15 minutes reads so a few seconds later too."""
_LONGEST_QUESTION = 3_000
"""The most characters of Markdown of a question. A longer question is sent as a file."""
_LONGEST_TITLE = 600
_LONGEST_ESCAPE = 12
"""The most characters of Markdown to escape a single character."""
_LONGEST_BRIEF = 300
NoteForm: TypeAlias = Literal["whole", "no remark", "no rows", "sentence", "mark"]
NOTES: tuple[NoteForm, ...] = get_args(NoteForm)
"""The forms of a note about the end of a question, each shorter than the previous form."""
_LONGEST_FIXED = 80
"""The most characters of a value repeated beside its question."""
_WORD_LIKE = re.compile(r"[\w.,@/+#-]*[\w%]", re.ASCII)
_WIDE_OR_NARROW = re.compile(r"[\u00a0\u2000-\u200a\u202f\u205f]")
"""The spaces of formatted amounts and dates."""
_PLATFORMS = {"telegram": "Telegram", "slack": "Slack", "sms": "SMS", "whatsapp": "WhatsApp", "web": "Web"}
_MARKS = {"approved": "⏳", "running": "⏳", "done": "✅", "failed": "❌", "unknown": "❔", "closed": "🚫"}
_PERSON = re.compile(r"[\w:+%.@=/-]+", re.ASCII)
_TEXT = "text/plain; charset=utf-8"


def brief(preview: str) -> str:
    """Return a preview for a list or a repetition, as `plain`, cut after 300 characters."""
    text = preview.strip()
    if len(text) > _LONGEST_BRIEF:
        text = f"{text[:_LONGEST_BRIEF]}…"
        text += "”" * (text.count("“") > text.count("”"))
    return plain(text)


def statement(preview: str) -> str:
    """Return a preview for a statement: as `brief`, without question marks around the text."""
    return brief(preview.strip().strip(_QUESTION_MARKS))


def is_long(action: PendingAction) -> bool:
    """Return True if the question is too long for a message of any channel."""
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
    """Return the file with the whole question, always the same for an action."""
    content = full_text(action).encode("utf-8", "backslashreplace")
    return Artifact.of(content, f"{action.code}.txt", _TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """The place of a message in a numbered list of questions. The list may span several messages."""

    first: int = 1
    """The number of the first question."""
    total: int = 1
    """The number of questions of the whole list."""
    words: bool = False
    """True if numbers can answer the list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ButtonTokens:
    """The tokens of the buttons of a message. Without tokens the message has no buttons."""

    each: Sequence[tuple[str | None, str]] = ()
    """The tokens to confirm and to cancel each question. Without the first token, only the code confirms."""
    change: str | None = None
    standing: str | None = None
    """The token to confirm a single question and to give its permission."""
    for_all: tuple[str, str] | None = None
    """The tokens to confirm and to cancel all questions of the message."""


def prompt(
    actions: Sequence[PendingAction],
    tokens: ButtonTokens,
    *,
    listed: Listed | None = None,
    intro: str | None = None,
    now: datetime | None = None,
    letters: Callable[[str], str] = str,
    note: NoteForm = "whole",
) -> Reply:
    """Return a message with a question or several: buttons for each, or how to answer in words.

    An answered question shows its outcome. `listed` is the place of the message in a longer list; None: the message is
    the whole list. `intro` is a sentence in front. `now` is the time of this showing, the start of the remaining time.
    `letters` respells the gateway's own words for the channel. `note` is the form of the notes.
    """
    language = actions[0].language
    listed = listed or Listed(total=len(actions))
    blocks = [intro] if intro else []
    for number, action in enumerate(actions, start=listed.first):
        lead = f"{number}\\. " if listed.total > 1 else ""
        if not action.open:
            blocks.append(f"{lead}{settled_note(action, now or action.requested_at, note)}")
            continue
        asked = _shortened(action, letters) if action.filed else question(action)
        if action.ballot_of is not None:
            asked = f"{say('asks_approval', action.language, letters, name=asker(action))}\n\n{asked}"
        words = action.filed or not tokens.each
        blocks.append(f"{lead}{asked}\n\n{_answer(action, letters, words=words, now=now)}")
        if action.standing is not None:
            blocks.append(offered(action, action.standing, letters))
    if listed.words and listed.first + len(actions) > listed.total > 1:
        blocks.append(say("prompt_numbers", language, letters, numbers=f"1, {listed.total}"))
    if here := [action for action in actions if action.open and is_confirmed_here(action)]:
        left = min(_left_seconds(action, now) for action in here)
        blocks.append(say("prompt_window", language, letters, duration=letters(duration(left, language))))
    ended = tuple(settled(action, now or action.requested_at) for action in actions)
    return Reply(
        text="\n\n".join(blocks),
        buttons=_buttons(actions, tokens, listed),
        exact=True,
        settled=() if all(action.open for action in actions) else ended,
    )


def _buttons(actions: Sequence[PendingAction], tokens: ButtonTokens, listed: Listed) -> tuple[Button, ...]:
    """Return the buttons under a prompt, each pair beside each other.

    The buttons of an answered question stay, so that a second tap does not hit the buttons of the next question.
    """
    language = actions[0].language
    buttons: list[Button] = []
    for action, (confirm, cancel) in zip(actions, tokens.each, strict=True) if tokens.each else ():
        (label_yes, _), (label_no, _) = _both(action, several=len(actions) > 1, language=language)
        if confirm is not None:
            buttons.append(Button(label=label_yes, token=confirm, style="confirm"))
        buttons.append(Button(label=label_no, token=cancel, style="cancel"))
    if tokens.standing is not None and (offer := actions[0].standing) is not None:
        label = say("button_standing", language, duration=duration(offer.seconds, language))
        buttons.append(Button(label=label, token=tokens.standing))
    if tokens.change is not None:
        buttons.append(Button(label=say("button_change", language), token=tokens.change))
    if tokens.for_all is not None:
        confirm_all, cancel_all = tokens.for_all
        numbers = f"{listed.first}\u2013{listed.first + len(actions) - 1}"
        ending = "all" if len(actions) == listed.total else "code"
        yes, no = (say(f"button_{what}_{ending}", language, code=numbers) for what in ("confirm", "cancel"))
        buttons.append(Button(label=yes, token=confirm_all, style="confirm"))
        buttons.append(Button(label=no, token=cancel_all, style="cancel"))
    return tuple(buttons)


def plan_of(actions: Sequence[PendingAction]) -> PendingAction | None:
    """Return the first open item of the plan formed by these actions; None without a plan or an open item."""
    open_items = [action for action in actions if action.open]
    plans = {action.plan for action in actions}
    return open_items[0] if open_items and len(actions) > 1 and len(plans) == 1 and None not in plans else None


def labels(action: PendingAction, *, several: bool) -> list[tuple[str, Intent]]:
    """Return the label and the intent of each button of an open action; no yes if only the code confirms."""
    both = _both(action, several=several, language=action.language)
    return both[1:] if action.filed else both


def _both(action: PendingAction, *, several: bool, language: str) -> list[tuple[str, Intent]]:
    suffix, values = ("_code", {"code": action.code}) if several else ("", {})
    yes, no = ("button_do", "button_do_not") if action.verb in NO_VERBS else ("button_confirm", "button_cancel")
    return [
        (say(f"{yes}{suffix}", language, **values), "confirm"),
        (say(f"{no}{suffix}", language, **values), "cancel"),
    ]


def settled(action: PendingAction, at: datetime) -> Settled:
    """Return the state of an action for the channel, with the time written in `settled_note`."""
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


def settled_note(action: PendingAction, at: datetime, form: NoteForm = "whole") -> str:
    """Return the text to replace a decided question: the question in short, and the outcome.

    `at` is the time of this edit, used for an action without an end. `form` is an item of `NOTES`. The shortest form is
    shorter than any question.
    """
    if form == "mark":
        return _MARKS.get(action.state, _MARKS["closed"])
    said = _note(action if form == "whole" else replace(action, remark=None), at, action.language)
    if form == "sentence":
        return said
    in_short = action.filed or form == "no rows"
    rows = [] if in_short else [f"- {_row(name, value, plain)}" for name, value in _rows(action)]
    return "\n".join([f"**{statement(action.preview)}**", *rows, "", said])


def receipt(action: PendingAction, at: datetime, language: str) -> str:
    """Return an ended action and its outcome in a single line, as Markdown. `at` is the time of the end."""
    return f"{date_and_time(at, language)}: **{statement(action.preview)}** {_note(action, at, language)}"


def ending(action: PendingAction, at: datetime | None) -> str:
    """Return the question of a ballot in short, with the action's outcome, as Markdown. `at` None: no outcome yet."""
    lines = [f"**{statement(action.preview)}**"]
    return "\n".join(lines if at is None else [*lines, _note(action, at, action.language)])


def asker(action: PendingAction) -> str:
    """Return the asker, as Markdown: the self-chosen name, and the platform's handle and id.

    The handle and id of the platform stand in brackets, because anybody can choose any name.
    """
    person = Person.parse(action.requester)
    platform = _PLATFORMS.get(person.channel, person.channel)
    handle = f"@{action.requester_handle}" if action.requester_handle else ""
    known = ", ".join(plain(visible(each)) for each in (handle, f"{platform} {person.user_id}") if each)
    return f"{named(action.requester_name)} ({known})" if action.requester_name else known


def asks_others(action: PendingAction) -> bool:
    """Return True if people other than the requester decide here. The question then names the asker."""
    others = {*action.approvers} - action.elsewhere - {action.requester}
    return action.ballot_of is not None or bool(others)


def with_asker(action: PendingAction, text: str) -> str:
    """Return the text of a question for a list, as Markdown, with the asker in front if other people are asked."""
    return f"{asker(action)}: {text}" if asks_others(action) else text


def deciders(name: str | None, language: str) -> str:
    """Return the approvers, as Markdown: the author's `name` for the approvers, never an address."""
    return plain(visible(name)) if name else say("deciders", language)


def is_confirmed_here(action: PendingAction) -> bool:
    """Return False if all approvers are asked in other chats. A person can only refuse here then."""
    return not action.approvers or not action.elsewhere.issuperset(action.approvers)


def is_shown_in_brief(action: PendingAction) -> bool:
    """Return True if the line of an action in a list shows the whole question."""
    return not action.filed and not _rows(action) and len(action.preview.strip()) <= _LONGEST_BRIEF


def is_in_group(action: PendingAction) -> bool:
    """Return True if several people read the question."""
    return action.address is not None and action.address.group


def waits_for(action: PendingAction, letters: Callable[[str], str]) -> str:
    """Return the line that names the approvers who have not answered an open action."""
    values = {"people": deciders(action.approvers_name, action.language), "preview": statement(action.preview)}
    return say("waits_for", action.language, letters, **values)


def _note(action: PendingAction, at: datetime, language: str) -> str:
    """Return the sentence about the outcome of an action, or about its running."""
    time, name = clock_time(action.finished_at or at, language), decided_by(action)
    match action.state, action.reason:
        case "done", _:
            return say("confirmed_by", language, name=name, time=time)
        case "failed", _:
            return say("failed_note", language, name=name, time=time)
        case "unknown", _:
            return say("unknown_note", language, name=name)
        case "closed", "refused":
            key = "cancelled_by_you" if is_you(action) else "cancelled_by"
            key = f"{key}_because" if action.remark else key
            return say(key, language, name=name, remark=remark(action))
        case "closed", "expired" if action.decided_at is not None:  # confirmed, but not launched in time
            return say("not_started_note", language)
        case "closed", ("expired" | "withdrawn" | "undelivered" | "drifted" | "changed") as reason:
            return say(f"{why_closed(reason, action.detail)}_note", language)
    return say("running_note", language, name=name)


def decided_by(action: PendingAction) -> str:
    """Return the name of the decider, as Markdown: for approvers asked elsewhere, the author's name for them."""
    by_others = action.ballots and action.decided_by not in (None, action.requester)
    if by_others and action.approvers_name and not is_in_group(action):
        return deciders(action.approvers_name, action.language)
    if is_you(action):
        return say("you", action.language)
    if action.decided_name:
        return named(action.decided_name)
    return deciders(action.approvers_name, action.language) if action.approvers else _person(action.decided_by or "")


def is_you(action: PendingAction) -> bool:
    """Return True if the decider is the only reader and has no recorded name. The text then reads "you"."""
    reader = action.approvers[0] if action.ballot_of is not None else action.requester
    if action.decided_name or action.address is None or action.address.group or action.decided_by != reader:
        return False
    return Person.parse(reader).user_id == action.address.place


def remark(action: PendingAction) -> str:
    """Return the person's words beside a no, quoted, as Markdown."""
    return plain(shown(action.remark or "", bare=False))


def what_became(action: PendingAction, at: datetime) -> str:
    """Return the answer to a late button or reply for this action, in the action's language."""
    return say(outcome_key(action, at), action.language)


def outcome_key(action: PendingAction, at: datetime) -> str:
    """Return the key of the sentence in `what_became`."""
    match action.state, action.reason:
        case "approved", _ if action.ballot_of is not None:
            return "vote_passed_on"
        case (("approved" | "running"), _):
            return "already_running"
        case "failed", _:
            return "did_not_work"
        case (("done" | "unknown"), _):
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
    """Return the question of an action with a file: a short title and the name of the file."""
    headline = _headline(action)
    title = plain(headline) if len(headline) <= _LONGEST_TITLE else headline  # cut first: each character is looked at
    if len(title) > _LONGEST_TITLE or not is_quick(title):
        title = plain(action.kind.replace("_", " "))
    file = plain(f"{action.code}.txt")
    return f"**{title}**\n\n{say('prompt_attached', action.language, letters, file=file)}"


def _rows(action: PendingAction) -> list[tuple[str, str]]:
    """Return names and values: the preview's own table, then every argument, except values already shown exactly."""
    table = [(name, _cell(value)) for name, value in action.table]
    args = [(name, shown(value)) for name, value in action.args.items()]
    if len(args) == 1 and action.template and _is_said(action.preview, next(iter(action.args.values()))):
        args = []  # a template writes it into the headline
    return [*table, *((_argument(name), value) for name, value in args if (name, value) not in table)]


def _cell(value: str) -> str:
    """Return a value of a preview's table, always a text."""
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
    """Return the written form of a person as Markdown code. A channel may show its own name for the person."""
    return f"`{written}`" if _PERSON.fullmatch(written) else named(written) if written else ""


def _left_seconds(action: PendingAction, now: datetime | None) -> float:
    if now is None or action.expires_at is None:
        return action.ttl_seconds
    return (action.expires_at - now).total_seconds() + _ON_ITS_WAY_SECONDS


def _answer(action: PendingAction, letters: Callable[[str], str], *, words: bool, now: datetime | None) -> str:
    """Return the sentences about the way to answer a question, and about the people deciding."""
    language = action.language
    yes, no = map(letters, safe_words(language))
    # "Reply NO to cancel" to "Cancel the order?" would say that a no cancels it.
    in_words = "prompt_words_do" if action.verb in NO_VERBS else "prompt_words"
    how = in_words if words else "prompt_code"
    people = deciders(action.approvers_name, language)
    if not is_confirmed_here(action):
        left = letters(duration(_left_seconds(action, now), language))
        asked = say("prompt_asked", language, letters, people=people, duration=left)
        return f"{asked} {say('prompt_refuse_only', language, letters, no_word=no, code=action.code)}"
    answer = say(how, language, letters, yes_word=yes, no_word=no, code=action.code)
    need = action.need if action.ballot_of is None else action.ballot_of.need
    if action.approvers and (need > 1 or action.ballot_of is None):
        key = "prompt_approvers" if need == 1 else "prompt_votes"
        rule = say(key, language, letters, people=people, need=need)
        if action.ballot_of is None and asks_others(action):
            rule = f"{say('asked_by', language, letters, name=asker(action))} {rule}"
        return f"{answer} {rule}"
    if is_in_group(action) and action.ballot_of is None:
        name = named(action.requester_name) if action.requester_name else asker(action)
        return f"{answer} {say('prompt_requester_only', language, letters, name=name)}"
    return answer


def offered(action: PendingAction, offer: StandingOffer, letters: Callable[[str], str]) -> str:
    """Return the text of the permission offered in a prompt: the covered calls, and the code."""
    language, (yes, _) = action.language, safe_words(action.language)
    values = {
        "duration": duration(offer.seconds, language),
        "count": offer.uses,
        "covered": covered(action, language, letters),
        "yes_word": letters(yes),
        "code": offer.code,
    }
    return say("standing_offer", language, letters, **values)


def described(giver: PendingAction, now: datetime, language: str, letters: Callable[[str], str] = str) -> str:
    """Return the sentence about the permission of an action, with the remaining uses and the end."""
    grant, offer = giver.grant, giver.standing
    if grant is None or offer is None:
        raise ValueError(f"action {giver.pending_action_id} gave no permission")
    values = {
        "time": end_of_permission(grant, now, language),
        "count": offer.uses - len(grant.used),
        "covered": covered(giver, language, letters),
    }
    return say("standing_given", language, letters, **values)


def covered(giver: PendingAction, language: str, letters: Callable[[str], str] = str) -> str:
    """Return the coverage of an action's permission, as Markdown: the tool, the fixed and the varying arguments.

    A long value is cut: the question shows the whole value.
    """
    offer = giver.standing
    if offer is None:
        return ""
    parts = []
    if fixed := fixed_arguments(giver, offer):
        named = [f"{plain(name)} {plain(_cut(shown(value)))}" for name, value in fixed.items()]
        parts.append(say("standing_same", language, letters, arguments=listing(named, language)))
    for name, bound in offer.most:
        parts.append(say("standing_most", language, letters, argument=plain(name), bound=plain(bound)))
    if offer.free:
        parts.append(say("standing_free", language, letters, arguments=listing(map(plain, offer.free), language)))
    if offer.compared:
        parts.append(say("standing_shown", language, letters))
    tool = plain(giver.kind.replace("_", " "))
    return f"{tool} ({'; '.join(parts)})" if parts else tool


def fixed_arguments(action: PendingAction, offer: StandingOffer) -> dict[str, Json]:
    """Return the arguments fixed by a permission, with their values."""
    return {name: value for name, value in action.args.items() if name not in offer.varying}


def end_of_permission(grant: Grant, now: datetime, language: str) -> str:
    """Return the end time of a permission, with the day unless today."""
    written = clock_time if grant.until.date() == now.date() else date_and_time
    return written(grant.until, language)


def _cut(value: str) -> str:
    """Return a value, cut if too long for a list.

    The quotation mark and the isolate of a cut value are closed.
    """
    if len(value) <= _LONGEST_FIXED:
        return value
    value = f"{value[:_LONGEST_FIXED]}…"
    for opens, closes in (("“", "”"), ("\N{FIRST STRONG ISOLATE}", "\N{POP DIRECTIONAL ISOLATE}")):
        value += closes * (value.count(opens) > value.count(closes))
    return value
