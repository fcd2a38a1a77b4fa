"""The judgement of a possibly deciding event: the effect on the actions, and the reply.

The lane commits the judgement: no function here writes to the store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Literal, TypeAlias

from channels import (
    AnswerStopped,
    ButtonPress,
    CanAnswer,
    ConversationMoved,
    DeliveryReport,
    Event,
    Feedback,
    Message,
    OptOut,
    Person,
    Reply,
)
from gateway.engine import missed_news
from gateway.engine.context import EngineContext
from gateway.engine.delivery.links import end_links
from gateway.engine.delivery.reports import LostMessage, record_report
from gateway.engine.delivery.visible_log import rated_line
from gateway.engine.memory.records import begin_epoch
from gateway.engine.messages import is_typed, replies_by_thread
from gateway.engine.reply_limits import once_a_minute, refusals
from gateway.memory import RESET
from gateway.observe.runs import run_id_of
from gateway.pending import deciding, settling, standing, voting
from gateway.pending.actions import ConversationActions, OutgoingReply
from gateway.pending.index import Index
from gateway.pending.lines import seal_lines
from gateway.pending.permission import covered
from gateway.pending.prompt import ending, statement
from gateway.pending.prompting import move
from gateway.pending.reading import (
    Answer,
    CodeReply,
    Spoken,
    name_of,
    read_beside_code,
    read_code,
    read_refusal,
    read_refused_code,
    read_words,
    reason_of,
)
from gateway.pending.tokens import token_partition, token_sha256
from gateway.store.transaction import Transaction
from gateway.store.types import Key, Waiting
from gateway.stored import keys
from gateway.stored.events import (
    ActionDeadline,
    BallotAsked,
    BallotNews,
    BallotUpdate,
    DecisionRequested,
    FollowUp,
    InternalEvent,
    NewsMissed,
    Notification,
    PartMoved,
    PersonWrote,
    is_note,
)
from gateway.stored.outbox import OutboxItem
from gateway.tools.escape import plain
from gateway.tools.pending_action import PendingAction
from gateway.wording import FALLBACK, say

OVERTAKING = ("help", "new")
"""Commands of the decision lane, like /stop. Both overtake other events, but `new` waits for a running turn."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The effect of an event. If not `decided`, the event loses the pointer and stays an ordinary message."""

    actions: ConversationActions | None
    decided: bool
    feedback: str = ""
    """The text for the presser."""
    told: bool = False
    """True if the chat shows the result already."""
    stop: bool = False
    noted: str | None = None
    """For the security log: a press without an action of this chat."""
    lost: LostMessage | None = None
    """A message of the bot that did not arrive."""
    pressed: PendingAction | None = None
    """The action of the button."""
    way: Literal["button", "code", "reply", "/stop", "opt-out"] | None = None
    """How a person decided, for the log."""
    rated: str | None = None
    """The run of a message that a person has rated."""


_Reader: TypeAlias = Callable[[str, Spoken, str | None, str | None], Answer]


class Judge:
    """Judges the events of the decision lane."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context

    async def judge(self, waiting: Waiting, event: Event | InternalEvent, transaction: Transaction) -> Judgement:
        """Judge an event. `transaction` gets the writes outside of actions.

        Raises StoreError, and any other error for an event that cannot be processed.
        """
        if not isinstance(event, Event):
            return await self._judge_internal(waiting, event, transaction)
        judgement = await self._limited(await self._judge_event(waiting, event, transaction), event)
        if not judgement.decided and isinstance(event, Message) and event.votes_only:
            return Judgement(None, decided=True)  # no turn reads it
        judgement = await self._with_act(judgement, waiting, event)
        return await self._with_said_feedback(judgement, waiting, event)

    async def _judge_event(self, waiting: Waiting, event: Event, transaction: Transaction) -> Judgement:
        conversation, at = waiting.conversation, waiting.stamp
        match event:
            case ButtonPress() | Message() if not self._may_decide(waiting, event):
                return await self._held_up(conversation, event)
            case ButtonPress():
                return await self._pressed(conversation, event, at)
            case AnswerStopped():
                return Judgement(None, decided=True, stop=True)
            case Feedback():
                found = await rated_line(self._context, conversation, event)
                if found is not None:
                    transaction.appends.append(found[1])
                return Judgement(None, decided=True, rated=found and found[0])
            case OptOut():
                return await self._opted_out(conversation, event, at)
            case DeliveryReport():
                news = await record_report(transaction, self._context, conversation, event, at)
                actions, lost = news or (None, None)
                return Judgement(actions, decided=True, lost=lost)
            case Message(command="stop"):
                return await self._stopped(conversation, event, at)
            case Message(command="help"):
                return await self._helped(conversation, event)
            case Message(command="new"):
                return await self._forgot(conversation, event, transaction)
            case Message():
                return await self._answered(conversation, event, at)
            case ConversationMoved():
                actions = await self._context.actions(conversation)
                move(actions, event.address, at)
                return Judgement(actions, decided=True)
            case _:
                raise ValueError("an unknown kind of event")

    async def _judge_internal(self, waiting: Waiting, event: InternalEvent, transaction: Transaction) -> Judgement:
        at = waiting.stamp
        match event:
            case PartMoved():
                item = OutboxItem.from_json(event.item)
                transaction.parts.append(self._context.parts.queued(waiting.conversation, item))
                return Judgement(None, decided=True)
            case NewsMissed():
                await missed_news.keep(self._context, transaction, waiting.conversation, event)
                return Judgement(None, decided=True)
            case PersonWrote():
                await missed_news.hand_over(self._context, transaction, waiting.conversation, event, at)
                return Judgement(None, decided=True)
        if isinstance(event, Notification):
            actions = await self._context.actions(waiting.conversation)
            actions.says.append(OutgoingReply(reply=event.reply))
            return Judgement(actions, decided=True)
        if isinstance(event, FollowUp):
            raise ValueError("a follow-up decides nothing")
        if isinstance(event, BallotAsked):
            await self._context.load_languages(str(event.record.get("language", FALLBACK)))
        actions = await self._context.actions(waiting.conversation, event.action_id)
        match event:
            case ActionDeadline(kind="expiry"):
                settling.expire(actions, event.action_id, at)
            case ActionDeadline(kind="undelivered"):
                settling.close_undelivered(actions, event.action_id, at)
            case ActionDeadline(kind="unlaunched"):
                settling.expire_approval(actions, actions.get(event.action_id), at)
            case ActionDeadline(kind="remind"):
                voting.remind_approvers(actions, event.action_id, at)
            case ActionDeadline(kind="standin"):
                voting.ask_standins(actions, event.action_id, at)
            case ActionDeadline(kind="outcomes"):
                settling.tell_late(actions, event.action_id)
            case BallotAsked():
                voting.take_question(actions, event, at)
            case BallotNews():
                self._check_news(waiting, event)
                voting.take_news(actions, event, at)
            case BallotUpdate():
                voting.take_update(actions, event, at)
            case DecisionRequested():
                person = Person.parse(event.person)
                if not self._context.may_decide(waiting):
                    raise TimeoutError("it was held up for more than a minute")
                feedback = deciding.decide(actions, event.action_id, event.intent, person, at)
                if not feedback.told:
                    actions.say(feedback.text(event.language))
            case _:
                raise ValueError("an unknown kind of event")
        return Judgement(actions, decided=True)

    @staticmethod
    def _check_news(waiting: Waiting, news: BallotNews) -> None:
        """Raise ValueError for a vote replayed by an operator: the vote decides no action."""
        if news.what in ("confirm", "cancel") and waiting.body.get("replayed") is True:
            raise ValueError("a replayed vote decides nothing")

    # ── events of people ──

    def _may_decide(self, waiting: Waiting, event: ButtonPress | Message) -> bool:
        """Return True for an event stamped within a minute of receipt, and not replayed. A /stop always counts."""
        if isinstance(event, Message) and event.command == "stop":
            return True
        return self._context.may_decide(waiting) and waiting.body.get("replayed") is not True

    async def _held_up(self, conversation: str, event: ButtonPress | Message) -> Judgement:
        """Decide no action: a press is answered, a message is read like any other."""
        if isinstance(event, Message):
            return Judgement(None, decided=False)
        text = say("held_up", await self._context.language_there(conversation, event.person))
        return Judgement(None, decided=True, feedback=text)

    async def _pressed(self, conversation: str, press: ButtonPress, at: datetime) -> Judgement:
        context = self._context
        where, action_id = await self._action_of(press.token)
        if action_id is None or where != conversation:
            why = "unknown_button" if action_id is None else "not_here"
            text = say(why, await context.language_there(conversation, press.person))
            return Judgement(None, decided=True, feedback=text, noted=why)
        actions = await context.actions(conversation, action_id)
        pressed = actions.get(action_id)
        language = context.language(press.person, pressed.language if pressed is not None else None)
        feedback = deciding.press(actions, action_id, press.token, press.person, at)
        text, told = feedback.text(language), feedback.told
        return Judgement(actions, decided=True, feedback=text, told=told, pressed=pressed, way="button")

    async def _action_of(self, token: str) -> tuple[str, str] | tuple[None, None]:
        """Return the conversation and the action id of a button; None for an unknown token."""
        partition = token_partition(token)
        if partition is None:
            return None, None
        key = Key(partition, keys.token(token_sha256(token)))
        match (await self._context.store.get([key]))[key].value:
            case {"conversation": str(conversation), "action_id": str(action_id)}:
                return conversation, action_id
            case None:
                return None, None
        raise ValueError("a broken record of a button")

    async def _answered(self, conversation: str, message: Message, at: datetime) -> Judgement:
        """Judge a whole message of word and code, or a yes or no in reply to a prompt."""
        await self._context.load_languages(message.person.language if message.person is not None else None)
        language = self._context.language(message.person)
        typed = is_typed(message)
        name = name_of(message.person)
        code, remark = read_code(message.text, language, name=name), ""
        read: _Reader = read_beside_code
        if code is None and (code := read_refused_code(message.text, language, name)) is not None:
            read, remark = read_refusal, reason_of(message.text)
        actions = await self._context.actions(conversation, find=partial(_meant, code=code, message=message))
        language = self._context.language(message.person, actions.index.last_asked_language())
        await self._context.load_languages(language, *(entry.language for entry in actions.index.entries))

        def reads(verb: str | None, asked: str) -> Answer:
            return read(message.text, (language, asked), verb, name)

        if typed and code is not None:
            decided = deciding.code(actions, code.code, reads, message.person, at, language, remark=remark)
            return Judgement(actions, decided, way="code")
        if typed and message.reply_to is not None:
            beneath, read = replies_by_thread(message), read_words
            decided = deciding.reply(actions, message.reply_to, reads, message.person, at, language, in_thread=beneath)
            return Judgement(actions, decided, way="reply")
        return Judgement(None, decided=False)

    async def _helped(self, conversation: str, message: Message) -> Judgement:
        actions = await self._context.actions(conversation)
        actions.say(self._context.bot.commands.help(self._context.language(message.person)))
        return Judgement(actions, decided=True)

    async def _forgot(self, conversation: str, message: Message, transaction: Transaction) -> Judgement:
        """Begin another transcript, and end the links to files.

        While a turn runs, the command waits for the end like a message: the lines of the running turn come first.
        """
        context = self._context
        if await context.store.is_held(conversation):
            return Judgement(None, decided=False)
        lines = seal_lines(context.keyring, conversation, [RESET], now=context.clock.guess())
        transaction.appends += [(keys.transcript(conversation), line) for line in lines]
        begin_epoch(transaction, context, conversation, run_id_of(conversation, message.event_ids[0]))
        end_links(transaction, context, conversation)
        transaction.deletes.append(keys.folded_notes(conversation))
        there = await context.store.mailbox(conversation)
        transaction.consume += [(conversation, waiting.seq) for waiting in there if is_note(waiting.body)]
        actions = await context.actions(conversation)
        actions.say(say("new_done", context.language(message.person)))
        return Judgement(actions, decided=True)

    async def _stopped(self, conversation: str, message: Message, at: datetime) -> Judgement:
        actions = await self._context.actions(conversation)
        withdrawn = deciding.withdraw(actions, str(message.person), at)
        actions.index = actions.index.stopped_by(str(message.person), at)
        revoked = standing.revoke(actions, str(message.person), at, why="stopped")
        running = self._context.turn_of.get(conversation) == str(message.person)
        if not running and conversation not in self._context.turn_of:  # another process may run it, for any person
            running = await self._context.store.is_held(conversation)
        language = self._context.language(message.person)
        going = [a for a in actions.by_id.values() if a.state == "running" and a.requester == str(message.person)]
        lines = [say("stopped_running", a.language, preview=statement(a.preview)) for a in going]
        if withdrawn or running or not going:
            stopped = "stopped_waiting" if withdrawn else "stopped" if running or revoked else "stopped_nothing"
            lines.insert(0, say(stopped, language))
        lines += [ending(actions.by_id[a.pending_action_id], at) for a in withdrawn if a.state == "approved"]
        lines += [say("standing_revoked", language, covered=covered(each, language)) for each in revoked]
        tells = tuple(action.pending_action_id for action in (*withdrawn, *going))
        reply = Reply(text="\n\n".join(lines), exact=True)
        actions.says.insert(0, OutgoingReply(reply=reply, tells=tells))
        return Judgement(actions, decided=True, stop=True, way="/stop")

    async def _opted_out(self, conversation: str, event: OptOut, at: datetime) -> Judgement:
        """End the turn and the open actions of an opted-out person, or welcome an opted-in person."""
        context, language = self._context, self._context.language(event.person)
        actions = await context.actions(conversation)
        if not event.opted_in:
            deciding.withdraw(actions, str(event.person), at)
            standing.revoke(actions, str(event.person), at, why="stopped")
            voting.lose_ballots(actions, at)
        actions.says.clear()
        if not event.told:
            text = (context.bot.greeting or say("greeting", language)) if event.opted_in else say("opted_out", language)
            actions.say(text)
        return Judgement(actions, decided=True, stop=not event.opted_in, way="opt-out")

    # ── after the judgement ──

    async def _limited(self, judgement: Judgement, event: Event) -> Judgement:
        """Drop the audit of a refused press or code after too many refusals of the person within a minute."""
        refused = judgement.noted is not None or (judgement.actions is not None and judgement.actions.refused)
        if not refused:
            return judgement
        limited = await self._context.store.acquire([refusals(event.person)])
        return replace(judgement, actions=None, noted=None) if limited else judgement

    async def _with_act(self, judgement: Judgement, waiting: Waiting, event: Event) -> Judgement:
        """Note the person's act in a private chat: a later bare yes no longer follows the prompt.

        The act is noted whether refused or not.
        """
        if not judgement.decided or not isinstance(event, ButtonPress | Message) or event.address.group:
            return judgement
        actions = judgement.actions or await self._context.actions(waiting.conversation)
        actions.note_decided(event.person, waiting.stamp)
        return replace(judgement, actions=actions)

    async def _with_said_feedback(self, judgement: Judgement, waiting: Waiting, event: Event) -> Judgement:
        """Answer a press in the chat if the channel cannot answer the presser; once a minute for the same button."""
        context = self._context
        if not isinstance(event, ButtonPress) or judgement.told or not judgement.feedback:
            return judgement
        if isinstance(context.channels.get(event.address.channel), CanAnswer):
            return judgement
        if await context.store.acquire([once_a_minute(f"answered/{token_sha256(event.token)}/{event.person}")]):
            return judgement
        actions = judgement.actions or await context.actions(waiting.conversation)
        about = f"\n\n{statement(judgement.pressed.preview)}" if judgement.pressed is not None else ""
        tells = (judgement.pressed.pending_action_id,) if judgement.pressed is not None else ()
        actions.say(f"{plain(judgement.feedback)}{about}", tells=tells)
        return replace(judgement, actions=actions)


def _meant(index: Index, code: CodeReply | None, message: Message) -> list[str]:
    """Return the ids of the actions named by an answer."""
    coded = index.by_code(code.code) if code is not None else None
    replied = index.by_prompt(message.reply_to) if message.reply_to is not None else ()
    return [entry.action_id for entry in (*replied, *([coded] if coded is not None else []))]


def named_actions(index: Index, message: Message, language: str) -> list[str]:
    """Return the ids of the actions named by a message: by a code, or by a reply to the prompt."""
    name = name_of(message.person)
    code = read_code(message.text, language, name=name) or read_refused_code(message.text, language, name)
    return _meant(index, code, message)
