"""The decision lane: presses, codes, replies to prompts, stops, opt-outs and expiries overtake whatever runs.

Each step is one idempotent commit: the action, what is said, the event consumed and its pointer gone. Two processes may
work the same pointer; one of them meets a Conflict and finds nothing left to do.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from datetime import datetime
from typing import cast

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
    Person,
    Reply,
)
from channels.events import event_from_json
from gateway.access.silence import opt_out, opt_out_key, unreachable, unreachable_key
from gateway.engine import trail
from gateway.engine.outgoing import queue, said_later
from gateway.engine.reports import Lost, report
from gateway.engine.shared import Shared, in_thread, person_of, typed
from gateway.engine.visible import heard
from gateway.pending.desk import Answer, Desk, Say
from gateway.pending.reading import ReplyParser, read_code
from gateway.pending.tokens import token_partition, token_sha256
from gateway.pending.words import Intent
from gateway.store.base import Cell, Conflict, Dead, Incoming, Key, StoreError, Transaction, Waiting
from gateway.store.form import NewerForm, check_form
from gateway.wording import say

__all__ = ["Decisions", "refusals", "security_line"]

log = logging.getLogger("askfirst.decisions")

_TRIES = 20
_REFUSED_NOTED = 10
_REFUSED_SECONDS = 60.0
"""So many refused tries of one person within so many seconds are noted down; more are refused all the same."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What one pointed event came to. Not `decided`: it loses its pointer and stays a message like any other."""

    desk: Desk | None
    decided: bool
    answer: Answer | None = None
    """For the presser."""
    stop: bool = False
    noted: str | None = None
    """For the security log: a press that names no action of this chat."""
    lost: Lost | None = None
    """A message of ours that did not arrive."""


class Decisions:
    """Works the decision lane of this process's store."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._parser = ReplyParser()
        self._working: dict[str, asyncio.Lock] = {}

    async def decide(self, conversation: str) -> None:
        """Work off the pointers of one conversation, from the head.

        Raises StoreError; what was not worked keeps its pointer.
        """
        lock = self._working.setdefault(conversation, asyncio.Lock())
        try:
            async with lock:
                for waiting in await self._shared.store.pointed(conversation):
                    await self._one(waiting)
        finally:
            if not lock.locked():
                self._working.pop(conversation, None)

    async def sweep(self, older_than_seconds: float) -> None:
        """Work off what whoever stored it has left lying."""
        found = await self._shared.store.pointed(older_than_seconds=older_than_seconds)
        for conversation in dict.fromkeys(waiting.conversation for waiting in found):
            await self.decide(conversation)

    async def _one(self, waiting: Waiting) -> None:
        for _ in range(_TRIES):
            transaction = Transaction(partition=self._shared.store.partition(waiting.conversation))
            try:
                event = _event(waiting)
                outcome = await self._bounded(await self._judge(waiting, event, transaction), event)
                outcome = await self._between(outcome, waiting, event)
                self._fill(transaction, waiting, event, outcome)
            except NewerForm as newer:
                log.warning("event %s of %s is left: %s", waiting.seq, waiting.conversation, newer)
                transaction = Transaction(partition=transaction.partition, needs=newer.needs)
                transaction.leave.append((waiting.conversation, waiting.seq))
                outcome, event = _Outcome(None, decided=False), None
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001 - one bad event must not hold back the lane; it is kept
                log.error("event %s of %s is put aside: %s", waiting.seq, waiting.conversation, type(error).__name__)
                transaction = self._put_aside(waiting, type(error).__name__)
                outcome, event = _Outcome(None, decided=True), None
            try:
                await self._shared.store.commit(transaction)
            except Conflict:
                if not await self._still_pointed(waiting):
                    return
                continue
            if outcome.decided:
                trail.committed(waiting.conversation, [waiting], transaction.parts, "decided")
            self._after(waiting, event, outcome)
            return
        log.error("event %s of %s: still contended after %s tries", waiting.seq, waiting.conversation, _TRIES)

    async def _still_pointed(self, waiting: Waiting) -> bool:
        return any(other.seq == waiting.seq for other in await self._shared.store.pointed(waiting.conversation))

    # ── judging ──

    async def _judge(self, waiting: Waiting, event: Event | None, transaction: Transaction) -> _Outcome:
        body, at = waiting.body, waiting.stamp
        match event:
            case ButtonPress():
                return await self._pressed(waiting.conversation, event, at)
            case OptOut():
                return await self._opted_out(waiting.conversation, event, at)
            case DeliveryReport():
                news = await report(self._shared, transaction, waiting.conversation, event, at)
                desk, lost = news or (None, None)
                return _Outcome(desk, decided=True, lost=lost)
            case Message(command="stop"):
                return await self._stopped(waiting.conversation, event, at)
            case Message():
                return await self._answered(waiting.conversation, event, at)
            case ConversationMoved():
                desk = await self._shared.desk(waiting.conversation, "en")
                desk.moved(event.address, at)
                return _Outcome(desk, decided=True)
        if body["kind"] == "notify":
            desk = await self._shared.desk(waiting.conversation, "en")
            desk.says.append(Say(reply=said_later(body)[1]))
            return _Outcome(desk, decided=True)
        action_id = str(body["action_id"])
        desk = await self._shared.desk(waiting.conversation, str(body.get("language", "en")), action_id)
        match body["kind"]:
            case "expiry":
                desk.expire(action_id, at)
            case "undelivered":
                desk.undelivered(action_id, at)
            case "decide":
                person = person_of(str(body["person"]))
                intent: Intent = "confirm" if body["intent"] == "confirm" else "cancel"
                answer = desk.decide(action_id, intent, person, at)
                if not answer.told:
                    desk.says.append(Say(reply=Reply(text=answer.text)))
        return _Outcome(desk, decided=True)

    async def _pressed(self, conversation: str, press: ButtonPress, at: datetime) -> _Outcome:
        shared, language = self._shared, self._shared.language(press.person)
        partition, found = token_partition(press.token), None
        if partition is not None:
            key = Key(partition, f"token/{token_sha256(press.token)}")
            found = cast("dict[str, str] | None", (await shared.store.get([key]))[key].value)
        if found is None or found["conversation"] != conversation:
            why = "unknown_button" if found is None else "not_here"
            return _Outcome(None, decided=True, answer=Answer(say(why, language)), noted=why)
        desk = await shared.desk(conversation, language, found["action_id"])
        answer = desk.press(found["action_id"], press.token, press.person, at)
        return _Outcome(desk, decided=True, answer=answer)

    async def _answered(self, conversation: str, message: Message, at: datetime) -> _Outcome:
        """A whole message of word and code, or a yes or no in reply to a prompt."""
        language = self._shared.language(message.person)
        fresh = typed(message)
        code = read_code(message.text, language)
        desk = await self._shared.desk(conversation, language)
        if fresh and code is not None:
            return _Outcome(desk, desk.code(code.code, code.intent, message.person, at))
        intent = self._parser.classify(message.text, language)
        if fresh and message.reply_to is not None and intent != "unclear":
            decided = desk.reply(message.reply_to, intent, message.person, at, in_thread=in_thread(message))
            return _Outcome(desk, decided)
        return _Outcome(None, decided=False)

    async def _bounded(self, outcome: _Outcome, event: Event | None) -> _Outcome:
        """Who presses what is not theirs, again and again, does not fill the audit."""
        refused = outcome.noted is not None or (outcome.desk is not None and outcome.desk.refused)
        if not refused or event is None:
            return outcome
        bounded = await self._shared.store.take([refusals(event.person)])
        return replace(outcome, desk=None, noted=None) if bounded else outcome

    async def _between(self, outcome: _Outcome, waiting: Waiting, event: Event | None) -> _Outcome:
        """A bare yes follows its prompt at once: what else the person does here comes between, refused or not."""
        if not outcome.decided or not isinstance(event, ButtonPress | Message) or event.address.group:
            return outcome
        desk = outcome.desk or await self._shared.desk(waiting.conversation, self._shared.language(event.person))
        desk.note_press(event.person, waiting.stamp)
        return replace(outcome, desk=desk)

    async def _stopped(self, conversation: str, message: Message, at: datetime) -> _Outcome:
        desk = await self._shared.desk(conversation, self._shared.language(message.person))
        withdrawn = desk.withdraw(str(message.person), at)
        running = self._shared.turn_of.get(conversation) == str(message.person)
        if not running and conversation not in self._shared.turn_of:  # another process may run it, for whomever
            running = await self._shared.store.is_held(conversation)
        key = "stopped" if withdrawn or running else "stopped_nothing"
        desk.says.insert(0, Say(reply=Reply(text=say(key, desk.language))))
        return _Outcome(desk, decided=True, stop=True)

    async def _opted_out(self, conversation: str, event: OptOut, at: datetime) -> _Outcome:
        """Nothing goes out from now on, and what runs for them or waits for them ends; or they are welcome again."""
        shared, language = self._shared, self._shared.language(event.person)
        desk = await shared.desk(conversation, language)
        if not event.opted_in:
            desk.withdraw(str(event.person), at)
        desk.says.clear()
        if not event.told:
            text = (shared.bot.greeting or say("greeting", language)) if event.opted_in else say("opted_out", language)
            desk.says.append(Say(reply=Reply(text=text)))
        return _Outcome(desk, decided=True, stop=not event.opted_in)

    # ── writing and telling ──

    def _fill(self, transaction: Transaction, waiting: Waiting, event: Event | None, outcome: _Outcome) -> None:
        conversation, desk = waiting.conversation, outcome.desk
        if not outcome.decided:
            transaction.unpoint.append((conversation, waiting.seq))
            return
        transaction.consume.append((conversation, waiting.seq))
        if outcome.noted is not None and event is not None:
            line = security_line(outcome.noted, event.person, conversation, waiting.stamp)
            transaction.appends.append(("security", line))
        if isinstance(event, Message):
            heard(transaction, self._shared, conversation, event)
        if outcome.stop and event is not None:
            transaction.signals.append((conversation, {"stop": str(event.person)}))
        if desk is not None:
            desk.write(transaction)
            address = event.address if event is not None else _address(desk, waiting)
            if address is not None:
                cause = trail.event_of(waiting)
                transaction.parts += queue(
                    self._shared.channels, conversation, address, desk.says, cause=cause, language=desk.language
                )
        if event is not None:
            self._silence(transaction, waiting, event)

    def _silence(self, transaction: Transaction, waiting: Waiting, event: Event) -> None:
        """Remember that nothing is to be sent here, or that something may be again."""
        store, channel = self._shared.store, self._shared.channels.get(event.address.channel)
        opted_out, shut = (key(store, waiting.conversation).name for key in (opt_out_key, unreachable_key))
        can_still_write = channel is None or channel.capabilities.opt_out
        match event:
            case OptOut(opted_in=True):
                transaction.deletes += [opted_out, shut]
            case OptOut() if can_still_write:
                last_words = [part.part_id for part in transaction.parts]
                transaction.puts[opted_out] = opt_out(waiting.stamp, last_words=last_words)
            case OptOut():
                transaction.puts[shut] = unreachable(waiting.stamp, "blocked")
            case DeliveryReport(message_id=None, status="failed"):
                transaction.puts[shut] = unreachable(waiting.stamp, event.code or "failed")
            case DeliveryReport(message_id=None) | Message() | ButtonPress():
                transaction.deletes.append(shut)

    def _put_aside(self, waiting: Waiting, error: str) -> Transaction:
        conversation = waiting.conversation
        dead = Dead(
            dead_id=f"{conversation}/{waiting.seq}",
            conversation=conversation,
            reason=f"a decision that cannot be worked: {error}",
            incoming=Incoming(
                conversation=conversation,
                event_ids=(f"replay/{conversation}/{waiting.seq}",),
                body=waiting.body,
                decides=True,
            ),
        )
        return Transaction(
            partition=self._shared.store.partition(conversation), consume=[(conversation, waiting.seq)], dead=[dead]
        )

    def _after(self, waiting: Waiting, event: Event | None, outcome: _Outcome) -> None:
        shared = self._shared
        if outcome.stop:
            shared.nudge("turn", waiting.conversation)
        if outcome.lost is not None:
            trail.lost(waiting, outcome.lost.queued, outcome.lost.why)
            shared.feed.publish("lost", conversation=waiting.conversation, why=outcome.lost.why)
        if isinstance(event, ButtonPress) and event.answer_to is not None:
            channel = shared.channels[event.address.channel]
            if isinstance(channel, CanAnswer):
                answer = outcome.answer or Answer("")
                answering = channel.answer(event.answer_to, answer.text, private=not answer.told)
                shared.tasks.start(answering, "answer a press")
        if outcome.decided:
            shared.feed.publish("decision", conversation=waiting.conversation, kind=str(waiting.body.get("kind")))


def refusals(person: Person | None) -> Cell:
    """How often one person's refused tries are noted down."""
    return Cell(name=f"refused/{person}", burst=_REFUSED_NOTED, period_seconds=_REFUSED_SECONDS)


def security_line(what: str, person: Person | None, conversation: str, at: datetime) -> Json:
    """A line of the security log: a press that is no matter of any action's own audit."""
    return {"what": what, "person": str(person) if person else None, "at": at.isoformat(), "conversation": conversation}


def _event(waiting: Waiting) -> Event | None:
    """The platform's event, or None for one of the gateway's own kinds. Raises NewerForm."""
    check_form(waiting.body)
    if waiting.body.get("kind") in ("expiry", "undelivered", "decide", "notify"):
        return None
    return event_from_json(cast("dict[str, object]", dict(waiting.body)))


def _address(desk: Desk, waiting: Waiting) -> Address | None:
    if waiting.body["kind"] == "notify":
        return said_later(waiting.body)[0]
    action = desk.action(str(waiting.body["action_id"]))
    return action.address if action is not None else None
