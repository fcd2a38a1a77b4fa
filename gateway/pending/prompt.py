"""The texts of a prompt: the question, and the note after the end of the action.

The gateway writes these texts from the frozen record. No text of the model is included.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal, TypeAlias, get_args

from channels import Button, Person, Reply, Settled
from channels.formatting import is_quick, time_link
from gateway.artifacts import Artifact
from gateway.pending.permission import offered, standing_label
from gateway.pending.words import Intent, safe_words
from gateway.tools.confirm import NO_VERBS, as_text
from gateway.tools.escape import has_right_to_left, legible, named, plain, shown, visible
from gateway.tools.layout import NO_LAYOUT
from gateway.tools.pending_action import PendingAction, why_closed
from gateway.wording import clock_time, date_and_time, duration, isolated, say

_QUESTION_MARKS = "¿?？؟\N{GREEK QUESTION MARK}՞፧⁇⁈⁉‽"
_ON_ITS_WAY_SECONDS = 5.0
"""The time that a message may take to arrive: a question with 15 minutes reads so a few seconds later too."""
_UNTIL_SECONDS = 3_600.0
"""The least time left for naming the end instead of the span."""
_LONGEST_QUESTION = 3_000
"""The most characters of Markdown of a question. A longer question is sent as a file."""
_LONGEST_TITLE = 600
_LONGEST_ESCAPE = 12
"""The most characters of Markdown to escape a single character."""
_LONGEST_BRIEF = 300
NoteForm: TypeAlias = Literal["whole", "no remark", "no rows", "sentence", "mark"]
NOTES: tuple[NoteForm, ...] = get_args(NoteForm)
"""The forms of a note about the end of a question, each shorter than the previous form."""
_WORD_LIKE = re.compile(r"[\w.,@/+#-]*[\w%]", re.ASCII)
_WIDE_OR_NARROW = re.compile(r"[\u00a0\u2000-\u200a\u202f\u205f]")
"""The spaces of formatted amounts and dates."""
_PLATFORMS = {"telegram": "Telegram", "slack": "Slack", "sms": "SMS", "whatsapp": "WhatsApp", "webchat": "Web"}
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

    each: Sequence[tuple[str | None, str | None]] = ()
    """The tokens to confirm and to cancel each question. None: no button does this."""
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
    local_times: bool = False,
) -> Reply:
    """Return a message with a question or several: with buttons, or with the ways to answer in words.

    Beside buttons the codes are small and last. An answered question shows its outcome. `listed` is the place of the
    message in a longer list; None: the message is the whole list. `intro` is a sentence in front. `now` is the time of
    this showing, the start of the remaining time. `letters` respells the gateway's own words for the channel. `note` is
    the form of the notes. `local_times`: the channel shows times in the reader's time zone.
    """
    listed = listed or Listed(total=len(actions))
    at, has_buttons = now or actions[0].requested_at, bool(tokens.each)
    window = _Window(actions, now, letters, local_times=local_times)
    rules = {action.pending_action_id: _rule(action, window) for action in actions if action.open}
    is_shared = has_buttons and len({*rules.values()}) == 1 < len(rules) == len(actions)
    shared = next(iter(rules.values())) if is_shared else None
    items = []
    for number, action in enumerate(actions, start=listed.first):
        lead = f"{number}\\. " if listed.total > 1 else ""
        if action.open:
            by_words = action.filed or not has_buttons or (listed.total > 1 and not is_confirmed_here(action))
            answer = _joined(action, rules[action.pending_action_id] if shared is None else "", window, words=by_words)
            items.append("\n\n".join(filter(None, [lead + _asked(action, letters), answer])))
            if action.standing is not None and not _is_offered_small(tokens, listed):
                items.append(offered(action, action.standing, letters, by_button=tokens.standing is not None))
        else:
            items.append(lead + settled_note(action, at, note, local_times=local_times))
    in_lines = has_buttons and listed.total > 1 and not any("\n" in item for item in items)
    small = _in_words(actions, tokens, listed, letters) if has_buttons else _numbers(actions, listed, letters)
    blocks = [intro, ("\n" if in_lines else "\n\n").join(items), shared]
    blocks += [window.text, small] if has_buttons else [small, window.text]
    ended = tuple(settled(action) for action in actions)
    return Reply(
        text="\n\n".join(filter(None, blocks)),
        buttons=_buttons(actions, tokens, listed),
        exact=True,
        settled=() if all(action.open for action in actions) else ended,
        small=len(small) if has_buttons else 0,
    )


def _asked(action: PendingAction, letters: Callable[[str], str]) -> str:
    """Return an open question for a message, with the asker in front for an approver elsewhere."""
    asked = _shortened(action, letters) if action.filed else question(action)
    if not action.is_vote:
        return asked
    return f"{say('asks_approval', action.language, letters, name=asker(action))}\n\n{asked}"


class _Window:
    """The remaining time of the questions of a message: in words, or the end in the reader's time zone."""

    def __init__(
        self,
        actions: Sequence[PendingAction],
        now: datetime | None,
        letters: Callable[[str], str],
        *,
        local_times: bool,
    ) -> None:
        self.letters = letters
        self._now, self._local, self._language = now, local_times, actions[0].language
        here = [action for action in actions if action.open and is_confirmed_here(action)]
        self.text = self.sentence("prompt_window", "prompt_until", here) if here else ""

    def sentence(self, for_span: str, for_end: str, actions: Sequence[PendingAction], **values: object) -> str:
        """Return the sentence of either name about the time left for the first of these actions to expire."""
        left = min(_left_seconds(action, self._now) for action in actions)
        if self._local and self._now is not None and left >= _UNTIL_SECONDS:
            end = min(action.expires_at or self._now + timedelta(seconds=action.ttl_seconds) for action in actions)
            time = time_link(date_and_time(end, self._language), end, with_day=True)
            return say(for_end, self._language, self.letters, time=time, **values)
        span = self.letters(duration(_in_one_unit(left), self._language))
        return say(for_span, self._language, self.letters, duration=span, **values)


def _in_one_unit(seconds: float) -> float:
    """Return a span of time in whole days or hours, if it has some: an end this far away needs no minutes."""
    for unit in (86_400.0, 3_600.0):
        if seconds >= 2 * unit or (unit == 86_400.0 and seconds >= unit):
            return seconds - seconds % unit
    return seconds


def _joined(action: PendingAction, rule: str, window: _Window, *, words: bool) -> str:
    """Return the rule about the deciding people, and the answers in words."""
    answer = _words(action, window.letters) if words else ""
    both = (answer, rule) if is_confirmed_here(action) else (rule, answer)
    return " ".join(filter(None, both))


def _words(action: PendingAction, letters: Callable[[str], str], *, beside_buttons: bool = False) -> str:
    """Return the sentence about answering a question by its code."""
    yes, no = map(letters, safe_words(action.language))
    if not is_confirmed_here(action):
        name = "prompt_refuse_only"
    elif beside_buttons:
        name = "prompt_code"
    else:
        # "Reply NO to cancel" to "Cancel the order?" would say that a no cancels it.
        name = "prompt_words_do" if action.verb in NO_VERBS else "prompt_words"
    return say(name, action.language, letters, yes_word=yes, no_word=no, code=action.code)


def _in_words(
    actions: Sequence[PendingAction], tokens: ButtonTokens, listed: Listed, letters: Callable[[str], str]
) -> str:
    """Return the small text beside buttons: the answers in words. A question in a file has its words beside it."""
    language = actions[0].language
    yes, no = map(letters, safe_words(language))
    small = [
        each for each in actions if each.open and not each.filed and (listed.total == 1 or is_confirmed_here(each))
    ]
    numbered = [(number, each) for number, each in enumerate(actions, listed.first) if each in small]
    said = []
    if listed.total == 1:
        said = [_words(action, letters, beside_buttons=True) for _, action in numbered]
        for _, action in numbered:
            if action.standing is not None and tokens.standing is not None:
                said.append(f"{standing_label(action.standing, language)}: **{yes} {action.standing.code}**.")
            elif action.standing is not None:
                said.append(offered(action, action.standing, letters))
    elif numbered:
        codes = ", ".join(f"{number} **{yes} {action.code}**" for number, action in numbered)
        said = [say("prompt_codes", language, letters, no_word=no, codes=codes)]
    return " ".join(filter(None, [*said, _numbers(actions, listed, letters)]))


def _is_offered_small(tokens: ButtonTokens, listed: Listed) -> bool:
    """Return True if a permission is offered behind the code of its question, for want of a button."""
    return bool(tokens.each) and tokens.standing is None and listed.total == 1


def _numbers(actions: Sequence[PendingAction], listed: Listed, letters: Callable[[str], str]) -> str:
    """Return the sentence about answering by numbers, at the end of a list that numbers can answer."""
    if not listed.words or listed.total == 1 or listed.first + len(actions) <= listed.total:
        return ""
    return say("prompt_numbers", actions[0].language, letters, numbers=f"1, {listed.total}")


def _buttons(actions: Sequence[PendingAction], tokens: ButtonTokens, listed: Listed) -> tuple[Button, ...]:
    """Return the buttons under a prompt: of a plan the two for all, then one for each question, named by its number.

    The buttons of an answered question stay, so that a second tap does not hit the buttons of the next question.
    """
    language = actions[0].language
    buttons: list[Button] = []
    if tokens.for_all is not None:
        confirm_all, cancel_all = tokens.for_all
        numbers = f"{listed.first}\u2013{listed.first + len(actions) - 1}"
        ending = "all" if len(actions) == listed.total else "code"
        yes, no = (say(f"button_{what}_{ending}", language, code=numbers) for what in ("confirm", "cancel"))
        buttons.append(Button(label=yes, token=confirm_all, style="confirm"))
        buttons.append(Button(label=no, token=cancel_all, style="cancel"))
    for number, (action, pair) in enumerate(zip(actions, tokens.each, strict=False), listed.first):
        mark = str(number) if listed.total > 1 else None
        for token, (label, intent) in zip(pair, _both(action, mark, language), strict=True):
            if token is not None:
                style = "plain" if tokens.for_all is not None else intent
                buttons.append(Button(label=label, token=token, style=style))
    if tokens.standing is not None and (offer := actions[0].standing) is not None:
        buttons.append(Button(label=standing_label(offer, language), token=tokens.standing))
    if tokens.change is not None:
        buttons.append(Button(label=say("button_change", language), token=tokens.change))
    return tuple(buttons)


def plan_of(actions: Sequence[PendingAction]) -> PendingAction | None:
    """Return the first open item of the plan formed by these actions; None without a plan or an open item."""
    open_items = [action for action in actions if action.open]
    plans = {action.plan for action in actions}
    return open_items[0] if open_items and len(actions) > 1 and len(plans) == 1 and None not in plans else None


def labels(action: PendingAction, *, several: bool) -> list[tuple[str, Intent]]:
    """Return the label and the intent of each button of an open action; no yes if only the code confirms."""
    both = _both(action, action.code if several else None, action.language)
    return both[1:] if action.filed else both


def _both(action: PendingAction, mark: str | None, language: str) -> list[tuple[str, Intent]]:
    """Return the labels to confirm and to cancel, each with its intent. `mark` names the question among several."""
    suffix = "_code" if mark is not None else ""
    yes, no = ("button_do", "button_do_not") if action.verb in NO_VERBS else ("button_confirm", "button_cancel")
    return [
        (say(f"{yes}{suffix}", language, code=mark), "confirm"),
        (say(f"{no}{suffix}", language, code=mark), "cancel"),
    ]


def settled(action: PendingAction) -> Settled:
    """Return the state of an action for the channel."""
    match action.state:
        case "pending":
            return Settled(state="open")
        case "closed":
            unanswered = action.reason == "expired" and action.decided_at is None
            return Settled(state="expired" if unanswered else "not_done")
        case "done" | "failed" | "unknown":
            return Settled(state=action.state)
    return Settled(state="running")


def settled_note(action: PendingAction, at: datetime, form: NoteForm = "whole", *, local_times: bool = False) -> str:
    """Return the text to replace a decided question: the question in short, and the outcome.

    `at` is the time of this edit, used for an action without an end. `form` is an item of `NOTES`. The shortest form is
    shorter than any question.
    """
    if form == "mark":
        return _MARKS.get(action.state, _MARKS["closed"])
    noted = action if form == "whole" else replace(action, remark=None)
    said = _note(noted, at, action.language, local_times=local_times)
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
    return action.is_vote or bool(others)


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


def _note(action: PendingAction, at: datetime, language: str, *, local_times: bool = False) -> str:
    """Return the sentence about the outcome of an action, or about its running."""
    ended, name = action.finished_at or at, decided_by(action)
    time = clock_time(ended, language)
    if local_times:
        time = time_link(time, ended, with_day=False)
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
    reader = action.approvers[0] if action.is_vote else action.requester
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
    names = ((action.layout or NO_LAYOUT).name(name, action.language) for name in action.args)
    texts = [action.preview, action.kind, *(text for row in action.table for text in row), *names]
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
    """Return names and values: the preview's own table, then each argument not printed by the template or the table."""
    layout, language = action.layout or NO_LAYOUT, action.language
    template = layout.template(language)
    table = [(name, _cell(value)) for name, value in action.table]
    rows = list(table)
    for name, value in action.args.items():
        row = layout.name(name, language), layout.value(name, value, language, bare=True)
        is_printed = template is not None and name in template.apart
        is_printed = is_printed and layout.value(name, value, language) in action.preview
        if not is_printed and row not in table and (name, row[1]) not in table:
            rows.append(row)
    return rows


def _cell(value: str) -> str:
    """Return a value of a preview's table, always a text."""
    value = _WIDE_OR_NARROW.sub(" ", value)
    return value if _WORD_LIKE.fullmatch(value) else f"“{visible(value)}”"


def _row(name: str, value: str, write: Callable[[str], str]) -> str:
    written = write(value)
    if has_right_to_left(name + value) and not (value.startswith("“") and has_right_to_left(value)):
        written = isolated(written)  # a quoted text with right-to-left letters is isolated already
    return f"{write(name)}: {written}"


def _person(written: str) -> str:
    """Return the written form of a person as Markdown code. A channel may show its own name for the person."""
    return f"`{written}`" if _PERSON.fullmatch(written) else named(written) if written else ""


def _left_seconds(action: PendingAction, now: datetime | None) -> float:
    if now is None or action.expires_at is None:
        return action.ttl_seconds
    return (action.expires_at - now).total_seconds() + _ON_ITS_WAY_SECONDS


def _rule(action: PendingAction, window: _Window) -> str:
    """Return the sentences about the people deciding a question; empty if only the reader decides."""
    language, letters = action.language, window.letters
    people = deciders(action.approvers_name, language)
    if not is_confirmed_here(action):
        return window.sentence("prompt_asked", "prompt_asked_until", [action], people=people)
    need = action.need if action.ballot_of is None else action.ballot_of.need
    if action.approvers and (need > 1 or not action.is_vote):
        key = "prompt_approvers" if need == 1 else "prompt_votes"
        rule = say(key, language, letters, people=people, need=need)
        if not action.is_vote and asks_others(action):
            rule = f"{say('asked_by', language, letters, name=asker(action))} {rule}"
        return rule
    if is_in_group(action) and not action.is_vote:
        name = named(action.requester_name) if action.requester_name else asker(action)
        return say("prompt_requester_only", language, letters, name=name)
    return ""
