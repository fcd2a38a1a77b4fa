"""The decision lane: presses, codes, replies to prompts, stops, opt-outs and expiries overtake whatever runs.

Each step is one idempotent commit: the action, what is said, the event consumed and its pointer gone. Two processes may
work the same pointer; one of them meets a Conflict and finds nothing left to do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Literal, TypeAlias, cast

from channels import (
    Address,
    ButtonPress,
    CanAnswer,
    ConversationMoved,
    DeliveryReport,
    Event,
    Json,
    Message,
    OptOut,
    Reply,
)
from channels.events import event_from_json
from gateway.access.suppression import update_suppression
from gateway.engine import event_log
from gateway.engine.context import EngineContext, asked_last, in_thread, person_of, typed
from gateway.engine.delivery.links import end_links
from gateway.engine.delivery.reports import Lost, report
from gateway.engine.delivery.visible_log import person_line
from gateway.engine.parts import scheduled_reply
from gateway.engine.reply_limits import once_a_minute, refusals, security_line
from gateway.engine.retrying import attempts
from gateway.engine.turns.notes import NOTES, is_note
from gateway.memory import RESET
from gateway.observe import describe_error
from gateway.pending import deciding, settling
from gateway.pending.actions import ConversationActions, OutgoingReply
from gateway.pending.deciding import PressFeedback
from gateway.pending.index import Index
from gateway.pending.prompt import statement
from gateway.pending.prompting import move
from gateway.pending.reading import (
    Answer,
    CodeReply,
    Spoken,
    read_beside_code,
    read_code,
    read_refusal,
    read_refused_code,
    read_words,
    reason_of,
)
from gateway.pending.tokens import token_partition, token_sha256
from gateway.pending.words import Intent
from gateway.store.base import Dead, Incoming, Key, StoreError, Transaction, Waiting
from gateway.store.form import FORM, NewerForm, check_form, is_newer
from gateway.tools.escape import plain
from gateway.tools.pending_action import PendingAction
from gateway.wording import say

__all__ = ["OVERTAKING", "Decisions", "named"]

OVERTAKING = ("help", "new")
"""Commands that wait for nothing that waits or fails in their conversation, as a stop does not either."""

log = logging.getLogger("askfirst.decisions")


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What one pointed event came to. Not `decided`: it loses its pointer and stays a message like any other."""

    actions: ConversationActions | None
    decided: bool
    feedback: PressFeedback | None = None
    """For the presser."""
    stop: bool = False
    noted: str | None = None
    """For the security log: a press that names no action of this chat."""
    lost: Lost | None = None
    """A message of ours that did not arrive."""
    pressed: PendingAction | None = None
    """What the button was of."""
    way: Literal["button", "code", "reply", "/stop", "opt-out"] | None = None
    """How a person decided, for the log."""


_HowToRead: TypeAlias = Callable[[str, Spoken, str | None], Answer]


class Decisions:
    """Works the decision lane of this process's store."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._working: dict[str, asyncio.Lock] = {}

    async def decide(self, conversation: str) -> None:
        """Work off the pointers of one conversation, from the head.

        Raises StoreError; what was not worked keeps its pointer.
        """
        lock = self._working.setdefault(conversation, asyncio.Lock())
        try:
            async with lock:
                for waiting in await self._context.store.pending_decisions(conversation):
                    await self._one(waiting)
        finally:
            if not lock.locked():
                self._working.pop(conversation, None)

    async def sweep(self, older_than_seconds: float) -> None:
        """Work off what whoever stored it has left lying."""
        found = await self._context.store.pending_decisions(older_than_seconds=older_than_seconds)
        for conversation in dict.fromkeys(waiting.conversation for waiting in found):
            await self.decide(conversation)

    async def _one(self, waiting: Waiting) -> None:
        first = True
        for attempt in attempts():
            async with attempt:
                if not first and not await self._still_pointed(waiting):
                    return
                first = False
                transaction, event, outcome = await self._worked(waiting)
                await self._context.commit(transaction)
                if outcome.decided:
                    how = f"decided by {outcome.way}" if outcome.way else "decided"
                    event_log.committed(waiting.conversation, [waiting], transaction, how)
                self._after(waiting, event, outcome)

    async def _still_pointed(self, waiting: Waiting) -> bool:
        return any(
            other.seq == waiting.seq for other in await self._context.store.pending_decisions(waiting.conversation)
        )

    async def _worked(self, waiting: Waiting) -> tuple[Transaction, Event | None, _Outcome]:
        """Judge one event; return what is to be committed, and what it came to. Raises StoreError."""
        transaction = Transaction(partition=self._context.store.partition(waiting.conversation))
        newer = waiting.needs > FORM or is_newer(waiting.body)
        if not newer and not self._context.is_genuine("event", waiting.conversation, waiting.body):
            log.error("event %s of %s was made by somebody without the key", waiting.seq, waiting.conversation)
            self._context.feed.publish("doubt", conversation=waiting.conversation, why="forged")
            forged = self._put_aside(waiting, "made by somebody without the key", genuine=False)
            return forged, None, _Outcome(None, decided=True)
        try:
            event = _event(waiting)
            outcome = await self._bounded(await self._judge(waiting, event, transaction), event)
            outcome = await self._between(outcome, waiting, event)
            outcome = await self._said_instead(outcome, waiting, event)
            if outcome.actions is not None:
                await self._context.keep_files(outcome.actions)
            self._fill(transaction, waiting, event, outcome)
        except NewerForm as newer:
            log.warning("event %s of %s is left: %s", waiting.seq, waiting.conversation, newer)
            transaction = Transaction(partition=transaction.partition, requires_form=newer.needs)
            transaction.defer_decisions.append((waiting.conversation, waiting.seq))
            return transaction, None, _Outcome(None, decided=False)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - one bad event must not hold back the lane; it is kept
            log.error("event %s of %s is put aside: %s", waiting.seq, waiting.conversation, describe_error(error))
            return self._put_aside(waiting, type(error).__name__), None, _Outcome(None, decided=True)
        return transaction, event, outcome

    # ── judging ──

    async def _judge(self, waiting: Waiting, event: Event | None, transaction: Transaction) -> _Outcome:
        body, at = waiting.body, waiting.stamp
        match event:
            case ButtonPress() | Message() if not self._may_decide(waiting, event):
                return await self._held_up(waiting.conversation, event)
            case ButtonPress():
                return await self._pressed(waiting.conversation, event, at)
            case OptOut():
                return await self._opted_out(waiting.conversation, event, at)
            case DeliveryReport():
                news = await report(self._context, transaction, waiting.conversation, event, at)
                actions, lost = news or (None, None)
                return _Outcome(actions, decided=True, lost=lost)
            case Message(command="stop"):
                return await self._stopped(waiting.conversation, event, at)
            case Message(command="help"):
                return await self._helped(waiting.conversation, event)
            case Message(command="new"):
                return await self._forgot(waiting.conversation, event, transaction)
            case Message():
                return await self._answered(waiting.conversation, event, at)
            case ConversationMoved():
                actions = await self._context.actions(waiting.conversation)
                move(actions, event.address, at)
                return _Outcome(actions, decided=True)
        if body["kind"] == "notify":
            actions = await self._context.actions(waiting.conversation)
            actions.says.append(OutgoingReply(reply=scheduled_reply(body)[1]))
            return _Outcome(actions, decided=True)
        action_id = str(body["action_id"])
        actions = await self._context.actions(waiting.conversation, action_id)
        match body["kind"]:
            case "expiry":
                settling.expire(actions, action_id, at)
            case "undelivered":
                settling.close_undelivered(actions, action_id, at)
            case "unlaunched":
                settling.expire_approval(actions, actions.get(action_id), at)
            case "decide":
                person, intent = person_of(str(body["person"])), _intent(body["intent"])
                if not self._context.may_decide(waiting):
                    raise TimeoutError("it was held up for more than a minute")
                language = str(body.get("language", "en"))
                feedback = deciding.decide(actions, action_id, intent, person, at, language)
                if not feedback.told:
                    actions.say(feedback.text)
            case _:
                raise ValueError("an unknown kind of event")
        return _Outcome(actions, decided=True)

    def _may_decide(self, waiting: Waiting, event: ButtonPress | Message) -> bool:
        """Return True for what came just now; a stop is taken however late it comes."""
        if isinstance(event, Message) and event.command == "stop":
            return True
        return self._context.may_decide(waiting) and waiting.body.get("replayed") is not True

    async def _held_up(self, conversation: str, event: ButtonPress | Message) -> _Outcome:
        """Decide nothing: a press is answered, a message is read like any other."""
        if isinstance(event, Message):
            return _Outcome(None, decided=False)
        text = say("held_up", await self._context.language_there(conversation, event.person))
        return _Outcome(None, decided=True, feedback=PressFeedback(text))

    async def _pressed(self, conversation: str, press: ButtonPress, at: datetime) -> _Outcome:
        context = self._context
        partition, found = token_partition(press.token), None
        if partition is not None:
            key = Key(partition, f"token/{token_sha256(press.token)}")
            found = cast("dict[str, str] | None", (await context.store.get([key]))[key].value)
        if found is None or found["conversation"] != conversation:
            why = "unknown_button" if found is None else "not_here"
            text = say(why, await context.language_there(conversation, press.person))
            return _Outcome(None, decided=True, feedback=PressFeedback(text), noted=why)
        actions = await context.actions(conversation, found["action_id"])
        pressed = actions.get(found["action_id"])
        language = context.language(press.person, pressed.language if pressed is not None else "en")
        feedback = deciding.press(actions, found["action_id"], press.token, press.person, at, language)
        return _Outcome(actions, decided=True, feedback=feedback, pressed=pressed, way="button")

    async def _answered(self, conversation: str, message: Message, at: datetime) -> _Outcome:
        """A whole message of word and code, or a yes or no in reply to a prompt."""
        await self._context.read_words(message.person.language if message.person is not None else None)
        language = self._context.language(message.person)
        fresh = typed(message)
        code, remark = read_code(message.text, language), ""
        how: _HowToRead = read_beside_code
        if code is None and (code := read_refused_code(message.text, language)) is not None:
            how, remark = read_refusal, reason_of(message.text)
        actions = await self._context.actions(conversation, find=partial(_meant, code=code, message=message))
        language = self._context.language(message.person, asked_last(actions.index) or "en")
        await self._context.read_words(language, *(entry.language for entry in actions.index.entries))

        def reads(verb: str | None, asked: str) -> Answer:
            return how(message.text, (language, asked), verb)

        if fresh and code is not None:
            decided = deciding.code(actions, code.code, reads, message.person, at, language, remark=remark)
            return _Outcome(actions, decided, way="code")
        if fresh and message.reply_to is not None:
            beneath, how = in_thread(message), read_words
            decided = deciding.reply(actions, message.reply_to, reads, message.person, at, language, in_thread=beneath)
            return _Outcome(actions, decided, way="reply")
        return _Outcome(None, decided=False)

    async def _helped(self, conversation: str, message: Message) -> _Outcome:
        actions = await self._context.actions(conversation)
        actions.say(self._context.bot.help(self._context.language(message.person)))
        return _Outcome(actions, decided=True)

    async def _forgot(self, conversation: str, message: Message, transaction: Transaction) -> _Outcome:
        """Begin another transcript, and end the links to files.

        While a turn runs it waits for that as a message does: its lines come first.
        """
        context = self._context
        if await context.store.is_held(conversation):
            return _Outcome(None, decided=False)
        transaction.appends.append((context.key(conversation, "transcript").name, RESET))
        end_links(context, conversation, transaction)
        transaction.deletes.append(context.key(conversation, NOTES).name)
        there = await context.store.mailbox(conversation)
        transaction.consume += [(conversation, waiting.seq) for waiting in there if is_note(waiting.body)]
        actions = await context.actions(conversation)
        actions.say(say("new_done", context.language(message.person)))
        return _Outcome(actions, decided=True)

    async def _bounded(self, outcome: _Outcome, event: Event | None) -> _Outcome:
        """Who presses what is not theirs, again and again, does not fill the audit."""
        refused = outcome.noted is not None or (outcome.actions is not None and outcome.actions.refused)
        if not refused or event is None:
            return outcome
        bounded = await self._context.store.acquire([refusals(event.person)])
        return replace(outcome, actions=None, noted=None) if bounded else outcome

    async def _between(self, outcome: _Outcome, waiting: Waiting, event: Event | None) -> _Outcome:
        """A bare yes follows its prompt at once: what else the person does here comes between, refused or not."""
        if not outcome.decided or not isinstance(event, ButtonPress | Message) or event.address.group:
            return outcome
        actions = outcome.actions or await self._context.actions(waiting.conversation)
        actions.note_decided(event.person, waiting.stamp)
        return replace(outcome, actions=actions)

    async def _said_instead(self, outcome: _Outcome, waiting: Waiting, event: Event | None) -> _Outcome:
        """Answer a press in the chat where its channel cannot answer it alone; the same button once a minute."""
        context, feedback = self._context, outcome.feedback
        if not isinstance(event, ButtonPress) or feedback is None or feedback.told or not feedback.text:
            return outcome
        if isinstance(context.channels.get(event.address.channel), CanAnswer):
            return outcome
        if await context.store.acquire([once_a_minute(f"answered/{token_sha256(event.token)}/{event.person}")]):
            return outcome
        actions = outcome.actions or await context.actions(waiting.conversation)
        about = f"\n\n{statement(outcome.pressed.preview)}" if outcome.pressed is not None else ""
        tells = (outcome.pressed.pending_action_id,) if outcome.pressed is not None else ()
        actions.say(f"{plain(feedback.text)}{about}", tells=tells)
        return replace(outcome, actions=actions)

    async def _stopped(self, conversation: str, message: Message, at: datetime) -> _Outcome:
        actions = await self._context.actions(conversation)
        withdrawn = deciding.withdraw(actions, str(message.person), at)
        actions.index = actions.index.stopped_by(str(message.person), at)
        running = self._context.turn_of.get(conversation) == str(message.person)
        if not running and conversation not in self._context.turn_of:  # another process may run it, for whomever
            running = await self._context.store.is_held(conversation)
        language = self._context.language(message.person)
        going = [a for a in actions.by_id.values() if a.state == "running" and a.requester == str(message.person)]
        lines = [say("stopped_running", a.language, preview=statement(a.preview)) for a in going]
        if withdrawn or running or not going:
            lines.insert(0, say("stopped" if withdrawn or running else "stopped_nothing", language))
        tells = tuple(action.pending_action_id for action in (*withdrawn, *going))
        reply = Reply(text="\n\n".join(lines), exact=True)
        actions.says.insert(0, OutgoingReply(reply=reply, tells=tells))
        return _Outcome(actions, decided=True, stop=True, way="/stop")

    async def _opted_out(self, conversation: str, event: OptOut, at: datetime) -> _Outcome:
        """Nothing goes out from now on, and what runs for them or waits for them ends; or they are welcome again."""
        context, language = self._context, self._context.language(event.person)
        actions = await context.actions(conversation)
        if not event.opted_in:
            deciding.withdraw(actions, str(event.person), at)
        actions.says.clear()
        if not event.told:
            text = (context.bot.greeting or say("greeting", language)) if event.opted_in else say("opted_out", language)
            actions.say(text)
        return _Outcome(actions, decided=True, stop=not event.opted_in, way="opt-out")

    # ── writing and telling ──

    def _fill(self, transaction: Transaction, waiting: Waiting, event: Event | None, outcome: _Outcome) -> None:
        conversation, actions = waiting.conversation, outcome.actions
        if not outcome.decided:
            transaction.drop_pointers.append((conversation, waiting.seq))
            return
        transaction.consume.append((conversation, waiting.seq))
        if outcome.noted is not None and event is not None:
            line = security_line(outcome.noted, event.person, conversation, waiting.stamp)
            transaction.appends.append(("security", line))
        if isinstance(event, Message):
            person_line(transaction, self._context, conversation, event)
        if outcome.stop and event is not None:
            transaction.signals.append((conversation, {"stop": str(event.person)}))
        if actions is not None:
            actions.write(transaction)
            address = event.address if event is not None else _address(actions, waiting)
            if address is not None:
                cause = event_log.event_of(waiting)
                language = self._context.language(event.person if event is not None else None, actions.language)
                transaction.parts += self._context.parts.render(
                    conversation, address, actions.says, cause=cause, language=language
                )
        if event is not None:
            channel = self._context.channels.get(event.address.channel)
            update_suppression(transaction, self._context.store, channel, conversation, event, waiting.stamp)

    def _put_aside(self, waiting: Waiting, error: str, *, genuine: bool = True) -> Transaction:
        conversation = waiting.conversation
        dead = Dead(
            dead_id=f"{conversation}/{waiting.seq}",
            conversation=conversation,
            reason=f"a decision that cannot be worked: {error}",
            incoming=Incoming(
                conversation=conversation,
                event_ids=(f"replay/{conversation}/{waiting.seq}",),
                body=self._context.for_replay(waiting) if genuine else waiting.body,
                decides=True,
            ),
        )
        return Transaction(
            partition=self._context.store.partition(conversation), consume=[(conversation, waiting.seq)], dead=[dead]
        )

    def _after(self, waiting: Waiting, event: Event | None, outcome: _Outcome) -> None:
        context = self._context
        if outcome.stop:
            context.nudge("turn", waiting.conversation)
        if outcome.lost is not None:
            event_log.lost(waiting, outcome.lost.queued, outcome.lost.why)
            context.sound_undelivered([outcome.lost.queued] if outcome.lost.queued is not None else [])
            context.feed.publish("lost", conversation=waiting.conversation, why=outcome.lost.why)
        if isinstance(event, ButtonPress) and event.answer_to is not None:
            channel = context.channels[event.address.channel]
            if isinstance(channel, CanAnswer):
                feedback = outcome.feedback or PressFeedback("")
                answering = channel.answer(event.answer_to, feedback.text, private=not feedback.told)
                context.tasks.start(answering, "answer a press")
        if outcome.decided:
            context.feed.publish("decision", conversation=waiting.conversation, kind=str(waiting.body.get("kind")))


def _meant(index: Index, code: CodeReply | None, message: Message) -> list[str]:
    """Return the actions that an answer names."""
    coded = index.by_code(code.code) if code is not None else None
    replied = index.by_prompt(message.reply_to) if message.reply_to is not None else ()
    return [entry.action_id for entry in (*replied, *([coded] if coded is not None else []))]


def named(index: Index, message: Message, language: str) -> list[str]:
    """Return the actions that a message names by a code or as a reply to their question."""
    code = read_code(message.text, language) or read_refused_code(message.text, language)
    return _meant(index, code, message)


def _intent(stored: Json) -> Intent:
    """Return the intent of a stored decision. Raises ValueError for what is none."""
    if stored == "confirm":
        return "confirm"
    if stored == "cancel":
        return "cancel"
    raise ValueError("not an intent")


def _event(waiting: Waiting) -> Event | None:
    """The platform's event, or None for one of the gateway's own kinds. Raises NewerForm."""
    check_form(waiting.body)
    if waiting.body.get("kind") in ("expiry", "undelivered", "unlaunched", "decide", "notify"):
        return None
    return event_from_json(cast("dict[str, object]", dict(waiting.body)))


def _address(actions: ConversationActions, waiting: Waiting) -> Address | None:
    if waiting.body["kind"] == "notify":
        return scheduled_reply(waiting.body)[0]
    action = actions.get(str(waiting.body["action_id"]))
    return action.address if action is not None else None
