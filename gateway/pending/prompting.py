"""Prompting: show the prompts of open actions, show prompts again, and edit the prompts of ended actions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    NOTES,
    ButtonTokens,
    Listed,
    attached,
    brief,
    ending,
    is_confirmed_here,
    is_in_group,
    is_long,
    plan_of,
    prompt,
    question,
    settled,
    settled_note,
    statement,
    waits_for,
    what_became,
    with_asker,
)
from gateway.pending.tokens import make_token, token_sha256
from gateway.pending.transitions import may_ask_again
from gateway.pending.words import INTENTS, Intent, safe_words
from gateway.tools.escape import plain
from gateway.tools.pending_action import ButtonIntent, PendingAction, Token
from gateway.wording import say

_HANDED_OVER_WITHIN = timedelta(seconds=10)
"""The time to wait after a deadline for votes given before the deadline in other chats."""
_RESHOWN_AT_MOST = 2
_REMINDED_EVERY = timedelta(hours=1)
_LONGEST_TOGETHER = 6_000
"""The most characters of Markdown of several questions in a message, short enough for a person to read."""
_DRAFT = "x" * 24, "x" * 24
"""Tokens of the right length, to check if a message has room for its buttons."""
_DRAFT_NUMBER = 10
_DRAFT_INTRO = "x" * 200
"""Room for any sentence in front of a question shown again."""


def show_prompt(
    actions: ConversationActions, asked: Sequence[PendingAction], *, intro: str | None = None, alone: bool = True
) -> None:
    """Queue the prompt of these open actions, with new tokens. The tokens of earlier showings stay valid.

    Several questions are a numbered list, divided into messages of a single platform part each. The buttons of a
    message decide its own questions. Questions too long for a message go out first, as files. `alone`: words can answer
    the messages.
    """
    asked = in_order(asked)
    _attach(actions, asked)
    ids = tuple(action.pending_action_id for action in asked)
    words, first = alone and _takes_numbers(actions, asked), 1
    for together in _messages(actions, asked):
        listed = Listed(first=first, total=len(asked), words=words)
        reply = _question(actions, together, listed, intro=intro if first == 1 else None, now=actions.now)
        shows, first = ids[first - 1 :][: len(together)], first + len(together)
        many = ids if len(ids) > 1 else ()
        only_to = together[0].ballot_of.only_to if together[0].ballot_of is not None else ""
        actions.says.append(OutgoingReply(reply=reply, shows=shows, alone=alone, listed=many, only_to=only_to))


def show_again(actions: ConversationActions, person: str) -> None:
    """Show the waiting prompts of this person again, under a reply about another matter.

    A prompt is shown again at most twice. Later a line lists the open actions; see `remind_now_and_then`.
    """
    mine = actions.open_for(person)
    remind_now_and_then(actions, person, [action for action in mine if not _may_show_again(action)])
    again = [action for action in mine if _may_show_again(action)]
    if again:
        intro = say("still_waiting", again[0].language, actions.letters)
        show_once_more(actions, again, intro=intro, alone=False)


def ask_for_code(
    actions: ConversationActions, action: PendingAction, sentence: Literal["say_code", "almost"] = "say_code"
) -> None:
    """Show a question again after an unclear answer. `sentence` names the missing part of the answer."""
    actions.near = action.pending_action_id
    if not is_confirmed_here(action):
        actions.say(waits_for(action, actions.letters))
        return
    if actions.is_paid and action.reshown >= _RESHOWN_AT_MOST:
        return
    yes_word, _ = map(actions.letters, safe_words(action.language))
    intro = say(sentence, action.language, actions.letters, yes_word=yes_word, code=action.code)
    show_once_more(actions, [action], intro=intro)


def ask_which(
    actions: ConversationActions, named: Sequence[PendingAction], language: str, *, intent: Intent | None = None
) -> None:
    """Ask in this language which named action a reply means. If none is open, report the end of the first named action.

    `intent`: the meaning of the reply, and of a number in answer to the list.
    """
    waiting = [action for action in named if action.open]
    actions.near = " ".join(action.pending_action_id for action in waiting)
    if waiting:
        yes_word, _ = map(actions.letters, safe_words(language))
        lines = [
            f"{number}. {with_asker(action, brief(action.preview))} ({action.code})"
            for number, action in enumerate(waiting, 1)
        ]
        takes_numbers = intent is not None and actions.has_numbers and len(waiting) > 1
        key = f"which_{intent}" if takes_numbers else "several_open"
        example = next(filter(is_confirmed_here, waiting), waiting[0])
        question = say(key, language, actions.letters, yes_word=yes_word, code=example.code)
        reply = Reply(text="\n".join([question, "", *lines]), exact=True)
        ids = tuple(action.pending_action_id for action in waiting)
        listed = ids if takes_numbers else ()
        said = OutgoingReply(reply=reply, alone=takes_numbers, listed=listed, intent=intent if takes_numbers else None)
        actions.says.append(said)
    elif named:
        actions.say(what_became(named[0], actions.now))


def say_feedback(actions: ConversationActions, action: PendingAction, feedback: PressFeedback, language: str) -> None:
    """Queue the feedback on a reply about this action, in this language, unless the chat was already notified."""
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
    """Show the prompts of open actions again, each at most twice. Later calls queue a single reminder line.

    The `new` actions are shown for the first time, in the same message.
    """
    remind(actions, [action for action in waiting if not _may_show_again(action)])
    again = [action for action in waiting if _may_show_again(action)]
    for action in again:
        actions.change(replace(action, reshown=action.reshown + 1), actions.now)
    asked = [*new, *(actions.by_id[action.pending_action_id] for action in again)]
    show_prompt(actions, asked, intro=intro, alone=alone)


def remind(actions: ConversationActions, waiting: Sequence[PendingAction]) -> None:
    """Queue a reminder line about the open actions: the action and its code, or the number of several actions."""
    if len(waiting) > 1:
        actions.say(say("still_open_many", waiting[0].language, actions.letters, count=len(waiting)))
    for action in waiting if len(waiting) == 1 else ():
        if not is_confirmed_here(action):
            actions.say(waits_for(action, actions.letters))
            continue
        yes_word, _ = map(actions.letters, safe_words(action.language))
        preview = with_asker(action, statement(action.preview))
        values = {"preview": preview, "yes_word": yes_word, "code": action.code}
        actions.say(say("still_open", action.language, actions.letters, **values))


def remind_now_and_then(actions: ConversationActions, person: str, waiting: Sequence[PendingAction]) -> None:
    """Remind a person of the open actions, unless reminded of equally many actions within the last hour."""
    count, at = actions.index.reminded.get(person, (0, actions.now))
    if count != len(waiting) or actions.now - at >= _REMINDED_EVERY:
        remind(actions, waiting)
        reminded = {**actions.index.reminded, person: (len(waiting), actions.now)}
        if not waiting:
            del reminded[person]
        actions.index = replace(actions.index, reminded=reminded)


def _may_show_again(action: PendingAction) -> bool:
    return action.reshown < _RESHOWN_AT_MOST


def note_arrived(actions: ConversationActions, showing: Showing) -> None:
    """Note the arrival of a message of the bot.

    The first showing of a prompt starts its time to answer. The prompt of an action ended meanwhile is edited at once.
    On a channel without edits, a new message reports the end behind the late question.
    """
    settled, at, message_id = False, showing.at, showing.message_id
    older: set[str] = set()
    actions.index = actions.index.showed(showing)
    for action_id in sorted(showing.shows):
        action = actions.get(action_id)
        if action is None:
            continue
        first = action.open and action.shown_at is None
        answered = action.decided_at if action.ballot_of is None else action.vote
        unseen = action.shown_at is None and answered is None
        number = (showing.listed.index(action_id) + 1, len(showing.listed)) if action_id in showing.listed else None
        if message_id is not None and action.open:
            older.update(action.prompts[-1:])
        action = replace(transitions.show(action, at, message_id, number), shown_in="")
        if first:
            first_shown(actions, action, at)
        else:
            actions.change(action, at)
        settled = settled or action.settled
        if unseen and action.settled and not actions.can_edit:
            actions.say(ending(action, at), tells=(action_id,))
    if settled and message_id is not None:
        edit_prompt(actions, message_id, at)
    for before in sorted(older - {message_id}) if actions.can_edit and actions.has_buttons else ():
        if not _is_answered_at(actions.by_id.values(), before):
            edit_prompt(actions, before, at)


def _is_answered_at(asked: Iterable[PendingAction], message_id: str) -> bool:
    """Return True if this message is the newest showing of an open question. Only such a message has buttons.

    The tokens of older messages stay valid, since a press may be on its way.
    """
    return any(action.open and action.prompts[-1:] == (message_id,) for action in asked)


def first_shown(actions: ConversationActions, action: PendingAction, at: datetime) -> None:
    """Record the first showing of a question, here or to an approver elsewhere, and set the following deadlines.

    A ballot has only the deadlines of its action.
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
    """Give the conversation another address, and ask its open actions again there."""
    for action in list(actions.by_id.values()):
        if not action.settled:
            actions.put(replace(action, address=address, prompts=()), "moved", None, at)
    actions.index = actions.index.moved(address)
    for action in actions.open:
        show_prompt(actions, [action])


def again_button(actions: ConversationActions, action: PendingAction) -> tuple[Button, ...]:
    """Return the button to ask an ended action again; empty without buttons, or if asking again is not allowed."""
    if not (actions.has_buttons and may_ask_again(action)):
        return ()
    (token,) = _mint(actions, action, ["again"])
    if not transitions.was_refused(action):
        return (Button(label=say("button_again", action.language), token=token),)
    people = action.approvers_name or say("deciders", action.language)
    return (Button(label=say("button_again_of", action.language, people=people), token=token),)


def edit_prompt(
    actions: ConversationActions, message_id: str, at: datetime, *, buttons: tuple[Button, ...] = ()
) -> None:
    """Queue the edit of a prompt: ended actions show their outcome, open actions are still asked.

    `buttons` stand under a prompt of a single ended action. A prompt that was shown again since has no buttons. The
    edit does not invite numbers, because the reader has answered or the bot has written since. The notes are shortened
    until the edit fits into a single message: the rest of a longer edit would become a new message without a recorded
    receipt. If even the shortest form is too long, the prompt is not edited.
    """
    actions.says = [said for said in actions.says if said.reply.edits != message_id]
    asked = in_order([action for action in actions.by_id.values() if message_id in action.prompts])
    if not asked:
        return
    first, total = asked[0].numbered.get(message_id, (1, len(asked)))
    listed, still_asks = Listed(first=first, total=total), any(action.open for action in asked)
    has_buttons = actions.has_buttons and _is_answered_at(asked, message_id)
    tokens = _tokens(actions, asked) if has_buttons else ButtonTokens()
    asked = [actions.by_id[action.pending_action_id] for action in asked]
    address, local = asked[0].address, actions.local_times
    for form in NOTES:
        if still_asks:
            reply = prompt(asked, tokens, listed=listed, now=at, letters=actions.letters, note=form, local_times=local)
        else:
            reply = Reply(
                text="\n\n".join(settled_note(action, at, form, local_times=local) for action in asked),
                buttons=buttons if len(asked) == 1 else (),
                exact=True,
                settled=tuple(settled(action) for action in asked),
            )
        reply = replace(reply, edits=message_id)
        if address is None or actions.fits(address, reply):
            actions.says.append(OutgoingReply(reply=reply))
            return


def _takes_numbers(actions: ConversationActions, asked: Sequence[PendingAction]) -> bool:
    """Return True if numbers can decide these questions: a plan in a private chat with an order of messages."""
    is_private_plan = plan_of(asked) is not None and not is_in_group(asked[0])
    return actions.has_numbers and is_private_plan and all(map(is_confirmed_here, asked))


def _question(
    actions: ConversationActions, asked: Sequence[PendingAction], listed: Listed, *, intro: str | None, now: datetime
) -> Reply:
    tokens = _tokens(actions, asked) if actions.has_buttons else ButtonTokens()
    local = actions.local_times
    return prompt(asked, tokens, listed=listed, intro=intro, now=now, letters=actions.letters, local_times=local)


def _tokens(actions: ConversationActions, asked: Sequence[PendingAction]) -> ButtonTokens:
    """Return new tokens for all buttons of a message with these questions."""

    def mint(action: PendingAction, intents: Sequence[ButtonIntent], items: tuple[str, ...] = ()) -> list[str]:
        return _mint(actions, actions.by_id[action.pending_action_id], intents, items)

    for_all = change = standing = None
    if plan_of(asked) is not None and any(map(is_confirmed_here, asked)):
        ids = tuple(action.pending_action_id for action in asked)
        confirm_all, cancel_all = mint(asked[0], ["confirm_all", "cancel_all"], ids)
        for_all = confirm_all, cancel_all
    if len(asked) == 1 and asked[0].ballot_of is None and actions.most_buttons > len(INTENTS):
        [change] = mint(asked[0], ["change"])
        if asked[0].standing is not None and not asked[0].filed and actions.most_buttons > len(INTENTS) + 1:
            [standing] = mint(asked[0], ["standing"])
    each: list[tuple[str | None, str | None]] = []
    for action in asked:
        if action.filed or not is_confirmed_here(action):
            each.append((None, mint(action, ["cancel"])[0]))
        elif for_all is not None:
            each.append((mint(action, ["confirm"])[0], None))
        else:
            confirm, cancel = mint(action, INTENTS)
            each.append((confirm, cancel))
    return ButtonTokens(each=each, change=change, standing=standing, for_all=for_all)


def _messages(actions: ConversationActions, asked: Sequence[PendingAction]) -> Iterator[list[PendingAction]]:
    """Yield the actions of each message, in order. A message takes as many actions as fit."""
    together: list[PendingAction] = []
    length = 0
    for action in asked:
        size = 0 if action.filed else len(question(action))
        if together and (length + size > _LONGEST_TOGETHER or not fits_together(actions, [*together, action])):
            yield together
            together, length = [], 0
        together.append(action)
        length += size
    if together:
        yield together


def filed_if_long(actions: ConversationActions, action: PendingAction) -> PendingAction | None:
    """Return an action, with its question in a file if too long for a message; None if both are impossible here.

    A question in a file offers no permission: only its code confirms.
    """
    if not is_long(action) and fits_together(actions, [action]):
        return action
    filed = replace(action, filed=True, standing=None)
    return filed if actions.shows_files and fits_together(actions, [filed]) else None


def fits_together(actions: ConversationActions, asked: Sequence[PendingAction]) -> bool:
    """Return True if the platform shows these questions and their buttons in a single message."""
    address = asked[0].address
    if address is None:
        return True
    tokens = ButtonTokens()
    if actions.has_buttons:
        is_plan = plan_of(asked) is not None
        each = (_DRAFT[0], None) if is_plan else _DRAFT
        tokens = ButtonTokens(each=[each] * len(asked), for_all=_DRAFT if is_plan else None)
    listed = Listed(first=_DRAFT_NUMBER, total=_DRAFT_NUMBER + len(asked) - 1, words=True)
    return actions.fits(address, prompt(asked, tokens, listed=listed, intro=_DRAFT_INTRO, letters=actions.letters))


def _attach(actions: ConversationActions, asked: Sequence[PendingAction]) -> None:
    """Queue the replies for the files of long questions."""
    for action in asked:
        if action.open and action.filed:
            actions.filed.append((len(actions.says), action))
            actions.says.append(OutgoingReply(reply=Reply(), asks=(action.pending_action_id,)))


def write_files(actions: ConversationActions) -> None:
    """Write the files of long questions into their replies.

    A model chooses the length of an argument, and each character is inspected: call this function in a thread.
    """
    for place, action in actions.filed:
        file = attached(action)
        actions.files[action.pending_action_id] = file
        actions.says[place] = replace(actions.says[place], reply=Reply(media=(media_of(file),)))
    actions.filed.clear()


def _mint(
    actions: ConversationActions,
    action: PendingAction,
    intents: Sequence[ButtonIntent],
    items: tuple[str, ...] = (),
) -> list[str]:
    """Return a new token for each intent. Only the hashes are stored. `items`: the actions decided by each token.

    Without `items`, a token decides this action alone.
    """
    made = [make_token(actions.partition) for _ in intents]
    tokens = tuple(
        Token(sha256=token_sha256(token), intent=intent, items=items)
        for token, intent in zip(made, intents, strict=True)
    )
    actions.change(replace(action, tokens=(*action.tokens, *tokens)), actions.now)
    for token in tokens:
        actions.changes.tokens[token.sha256] = (action.pending_action_id, action.ttl_seconds + KEPT_SECONDS)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class PressFeedback:
    """The feedback on a decision: after a press, for the presser alone; after a reply, for the chat."""

    key: str
    """The name of the sentence in `gateway.wording`."""
    values: Mapping[str, str | int] = field(default_factory=dict)
    language: str | None = None
    """The language of the action; None: without an action, in the reader's language."""
    told: bool = False
    """True if the chat was already notified. No feedback is sent there then."""

    def text(self, language: str) -> str:
        """Return the sentence for a reader of this language."""
        return say(self.key, self.language or language, **self.values)
