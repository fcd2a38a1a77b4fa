"""Prompting: showing the prompts of open actions, showing them again, and editing them when an action has ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from channels import Address, Button, Reply
from gateway.artifacts import media_of
from gateway.pending import transitions
from gateway.pending.actions import ConversationActions, OutgoingReply, in_order
from gateway.pending.ballots import report
from gateway.pending.changes import KEPT_SECONDS
from gateway.pending.index import Showing
from gateway.pending.prompt import (
    attached,
    brief,
    code_only,
    is_confirmed_here,
    plan_of,
    prompt,
    question,
    settled,
    settled_note,
    statement,
    waits_for,
    what_became,
)
from gateway.pending.tokens import make_token, token_sha256
from gateway.pending.transitions import may_ask_again
from gateway.pending.words import INTENTS, safe_words
from gateway.tools.escape import plain
from gateway.tools.pending_action import ButtonIntent, PendingAction, Token
from gateway.wording import say

_HANDED_OVER_WITHIN = timedelta(seconds=10)
"""The time after a deadline in which votes of other chats that were given before it still arrive."""
_RESHOWN_AT_MOST = 2
_LINES_AT_MOST = 3
_LONGEST_TOGETHER = 6_000
"""The most characters of Markdown of the questions in one message."""


def show_prompt(
    actions: ConversationActions, asked: Sequence[PendingAction], *, intro: str | None = None, alone: bool = True
) -> None:
    """Queue the prompt of these open actions, with new tokens. The tokens of earlier showings stay valid.

    A question that is too long for a message goes out as a file in front of it. `alone`: the message holds nothing else
    that a bare reply could answer.
    """
    for together in _messages(asked):
        shows = tuple(action.pending_action_id for action in together)
        _attach(actions, together)
        reply = _question(actions, together, intro=intro, now=actions.now)
        actions.says.append(OutgoingReply(reply=reply, shows=shows, alone=alone))


def show_again(actions: ConversationActions, person: str) -> None:
    """Show the waiting prompts of this person again, under a reply about another matter."""
    mine = actions.open_for(person)
    if mine:
        intro = say("still_waiting", mine[0].language, actions.letters)
        show_once_more(actions, mine, intro=intro, alone=False)


def ask_for_code(
    actions: ConversationActions, action: PendingAction, sentence: Literal["say_code", "almost"] = "say_code"
) -> None:
    """Show a question again after an answer that is not clear enough. `sentence` says what is missing."""
    actions.near = action.pending_action_id
    if not is_confirmed_here(action):
        actions.say(waits_for(action, actions.letters))
        return
    if actions.is_paid and action.reshown >= _RESHOWN_AT_MOST:
        return
    yes_word, _ = map(actions.letters, safe_words(action.language))
    intro = say(sentence, action.language, actions.letters, yes_word=yes_word, code=action.code)
    show_once_more(actions, [action], intro=intro)


def ask_which(actions: ConversationActions, named: Sequence[PendingAction], language: str) -> None:
    """Ask in this language which of the named actions a reply means; if none is open, tell the end of the first one."""
    waiting = [action for action in named if action.open]
    actions.near = " ".join(action.pending_action_id for action in waiting)
    if waiting:
        yes_word, _ = map(actions.letters, safe_words(language))
        lines = [f"{number}. {brief(action.preview)} ({action.code})" for number, action in enumerate(waiting, 1)]
        question = say("several_open", language, actions.letters, yes_word=yes_word, code=waiting[0].code)
        actions.say("\n".join([question, "", *lines]))
    elif named:
        actions.say(what_became(named[0], actions.now))


def say_feedback(actions: ConversationActions, action: PendingAction, feedback: PressFeedback, language: str) -> None:
    """Queue the feedback on a reply about this action for a reader of this language, unless the chat has been told."""
    if not feedback.told:
        text = f"{plain(feedback.text(language))}\n\n{statement(action.preview)}"
        actions.say(text, tells=(action.pending_action_id,))


def show_once_more(
    actions: ConversationActions,
    waiting: Sequence[PendingAction],
    *,
    new: Sequence[PendingAction] = (),
    intro: str | None = None,
    alone: bool = True,
) -> None:
    """Show the prompts of open actions again, each at most twice; after that one line tells that an action waits.

    The `new` ones are shown for the first time, in the same message.
    """
    remind(actions, [action for action in waiting if action.reshown >= _RESHOWN_AT_MOST])
    again = [action for action in waiting if action.reshown < _RESHOWN_AT_MOST]
    for action in again:
        actions.change(replace(action, reshown=action.reshown + 1), actions.now)
    asked = [*new, *(actions.by_id[action.pending_action_id] for action in again)]
    show_prompt(actions, asked, intro=intro, alone=alone)


def remind(actions: ConversationActions, waiting: Sequence[PendingAction]) -> None:
    """Queue one line for each action that is not done yet; for more than three, one line with their number."""
    if len(waiting) > _LINES_AT_MOST:
        actions.say(say("many_not_done_yet", waiting[0].language, actions.letters, count=len(waiting)))
        return
    for action in waiting:
        if not is_confirmed_here(action):
            actions.say(waits_for(action, actions.letters))
            continue
        yes_word, _ = map(actions.letters, safe_words(action.language))
        values = {"preview": statement(action.preview), "yes_word": yes_word, "code": action.code}
        actions.say(say("not_done_yet", action.language, actions.letters, **values))


def note_arrived(actions: ConversationActions, showing: Showing) -> None:
    """Note that a message of the bot has arrived.

    The first showing of a prompt starts its time to answer. The prompt of an action that has ended meanwhile is edited
    at once.
    """
    settled, at, message_id = False, showing.at, showing.message_id
    actions.index = actions.index.showed(showing)
    for action_id in sorted(showing.shows):
        action = actions.get(action_id)
        if action is None:
            continue
        first = action.open and action.shown_at is None
        action = transitions.show(action, at, message_id)
        if first:
            first_shown(actions, action, at)
        else:
            actions.change(action, at)
        settled = settled or action.settled
    if settled and message_id is not None:
        edit_prompt(actions, message_id, at)


def first_shown(actions: ConversationActions, action: PendingAction, at: datetime) -> None:
    """Record the first showing of a question, here or to an approver elsewhere, and set the deadlines that begin then.

    The deadlines of a ballot are those of its action.
    """
    changes = actions.changes
    actions.put(action, "shown" if action.ballot_of is None else "ballot_shown", None, at)
    changes.no_longer_due(action, "undelivered")
    if action.ballot_of is not None:
        report(actions, action, "shown", at)
        return
    expires = action.expires_at or at
    if not action.approvers:
        changes.due("expiry", action, expires)
        return
    changes.due("expiry", action, expires + _HANDED_OVER_WITHIN if action.ballots else expires)
    left = (expires - at).total_seconds()
    patience = action.remind_seconds if action.remind_seconds is not None else left / 2
    if patience < left:
        changes.due("remind", action, at + timedelta(seconds=patience))
        if action.standins:
            changes.due("standin", action, at + timedelta(seconds=min(2 * patience, (patience + left) / 2)))


def move(actions: ConversationActions, address: Address, at: datetime) -> None:
    """Give the conversation another address. Its open actions are asked anew there."""
    for action in list(actions.by_id.values()):
        if not action.settled:
            actions.put(replace(action, address=address, prompts=()), "moved", None, at)
    actions.index = actions.index.moved(address)
    for action in actions.open:
        show_prompt(actions, [action])


def again_button(actions: ConversationActions, action: PendingAction) -> tuple[Button, ...]:
    """Return the button that asks an ended action anew; empty if the channel has no buttons or it may not be asked."""
    if not (actions.has_buttons and may_ask_again(action)):
        return ()
    (token,) = _mint(actions, action, ["again"])
    return (Button(label=say("button_again", action.language), token=token),)


def edit_prompt(
    actions: ConversationActions, message_id: str, at: datetime, *, buttons: tuple[Button, ...] = ()
) -> None:
    """Queue the edit of a prompt: its ended actions say how they ended, its open ones are still asked.

    `buttons` stand under a prompt of one ended action.
    """
    actions.says = [said for said in actions.says if said.reply.edits != message_id]
    asked = [action for action in actions.by_id.values() if message_id in action.prompts]
    if any(action.open for action in asked):
        reply = _question(actions, asked, intro=None, now=at)
    else:
        asked = in_order(asked)
        reply = Reply(
            text="\n\n".join(settled_note(action, at) for action in asked),
            buttons=buttons if len(asked) == 1 else (),
            exact=True,
            settled=tuple(settled(action, at) for action in asked),
        )
    actions.says.append(OutgoingReply(reply=replace(reply, edits=message_id)))


def _question(
    actions: ConversationActions, asked: Sequence[PendingAction], *, intro: str | None, now: datetime
) -> Reply:
    asked = in_order(asked)
    for_all: list[str] = []
    plan = plan_of(asked)
    if plan is not None and actions.has_buttons:
        for_all = _mint(actions, actions.by_id[plan.pending_action_id], ["confirm_all", "cancel_all"])
    minted: list[tuple[str | None, str]] = []
    change = standing = None
    if actions.has_buttons and len(asked) == 1 and asked[0].ballot_of is None:
        [change] = _mint(actions, actions.by_id[asked[0].pending_action_id], ["change"])
        if asked[0].standing is not None and not code_only(asked[0]):
            [standing] = _mint(actions, actions.by_id[asked[0].pending_action_id], ["standing"])
    for action in asked if actions.has_buttons else ():
        now_known = actions.by_id[action.pending_action_id]
        if code_only(action) or not is_confirmed_here(action):
            minted.append((None, _mint(actions, now_known, ["cancel"])[0]))
        else:
            confirm, cancel = _mint(actions, now_known, INTENTS)
            minted.append((confirm, cancel))
    return prompt(
        asked, minted, change=change, standing=standing, for_all=for_all, intro=intro, now=now, letters=actions.letters
    )


def _messages(asked: Sequence[PendingAction]) -> Iterator[list[PendingAction]]:
    """Yield the actions of each message, in order. A message takes as many as it has room for."""
    together: list[PendingAction] = []
    length = 0
    for action in in_order(asked):
        size = 0 if code_only(action) else len(question(action))
        if together and length + size > _LONGEST_TOGETHER:
            yield together
            together, length = [], 0
        together.append(action)
        length += size
    if together:
        yield together


def _attach(actions: ConversationActions, asked: Sequence[PendingAction]) -> None:
    """Queue the files of the questions that are too long for the prompt."""
    for action in asked:
        if action.open and code_only(action):
            file = attached(action)
            actions.files[action.pending_action_id] = file
            reply, asks = Reply(media=(media_of(file),)), (action.pending_action_id,)
            actions.says.append(OutgoingReply(reply=reply, asks=asks))


def _mint(actions: ConversationActions, action: PendingAction, intents: Sequence[ButtonIntent]) -> list[str]:
    """Return a new token for each intent. Only their hashes are stored."""
    made = [make_token(actions.partition) for _ in intents]
    tokens = tuple(
        Token(sha256=token_sha256(token), intent=intent) for token, intent in zip(made, intents, strict=True)
    )
    actions.change(replace(action, tokens=(*action.tokens, *tokens)), actions.now)
    for token in tokens:
        actions.changes.tokens[token.sha256] = (action.pending_action_id, action.ttl_seconds + KEPT_SECONDS)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class PressFeedback:
    """The feedback on a decision. After a press, it goes to the presser alone; after a reply, to the chat."""

    key: str
    """The name of the sentence in `gateway.wording`."""
    values: Mapping[str, str | int] = field(default_factory=dict)
    language: str | None = None
    """The language of the action that the sentence is about; None: it is about none, and in the reader's language."""
    told: bool = False
    """True if the chat has been told already, so that it gets no feedback."""

    def text(self, language: str) -> str:
        """Return the sentence for a reader of this language."""
        return say(self.key, self.language or language, **self.values)
