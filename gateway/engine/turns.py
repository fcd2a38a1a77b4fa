"""Turns: one conversation at a time, its events in order, one atomic commit at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import cast

from channels import Address, CanType, Json, Message, Person, Reply, SendError
from gateway.channel_agent import Outcome, Turn
from gateway.engine.batch import Batch, choose
from gateway.engine.decisions import Decisions
from gateway.engine.delivery import last_shown
from gateway.engine.leases import held
from gateway.engine.outgoing import queue
from gateway.engine.shared import Shared, person_of, typed
from gateway.engine.visible import heard
from gateway.memory import HISTORY, from_entries, to_entries
from gateway.pending.desk import Desk, Say, Words
from gateway.pending.reading import ReplyParser
from gateway.providers.base import ProviderError
from gateway.store.base import Conflict, Dead, Fenced, Incoming, Key, Lease, Put, Transaction
from gateway.tools import ToolContext
from gateway.wording import say

__all__ = ["Turns"]

log = logging.getLogger("askfirst.turns")

DEADLINE_SECONDS = 60.0
_MODEL_AGAIN_SECONDS = (5.0, 30.0, 120.0, 600.0)
_AGAIN_SECONDS = (1.0, 5.0)
_TRIES = 4
"""A turn alone with one event that failed or killed its worker so often gives the event up."""
_SEND_WAIT_SECONDS = 10.0
_LOOK_SECONDS = 0.05
_TYPING_SECONDS = 4.0
_HEARD_SECONDS = 86400.0


class _Steps:
    """The journal of a turn: its checkpoint in the store. The first step says which events the turn is of."""

    def __init__(self, shared: Shared, lease: Lease, batch: Batch) -> None:
        self._shared, self._lease, self._batch = shared, lease, batch
        self._begun = bool(lease.steps)

    @property
    def steps(self) -> Sequence[Json]:
        return self._lease.steps[1:]

    async def record(self, step: Json) -> None:
        steps: list[Json] = [step]
        if not self._begun:
            steps.insert(0, {"events": [waiting.seq for waiting in self._batch.taken]})
        transaction = Transaction(partition=self._lease.partition, lease=self._lease, steps=steps)
        await self._shared.store.commit(transaction)
        self._begun = True


class Turns:
    """Runs the bot over what waits."""

    def __init__(self, shared: Shared, decisions: Decisions) -> None:
        self._shared, self._decisions = shared, decisions
        self._parser = ReplyParser()

    async def run(self, lease: Lease) -> Outcome | None:
        """Run one turn of the conversation this lease is for. None when there was none to run, or it failed.

        A failure is told, kept and tried again.
        """
        stopping = asyncio.Event()
        batch = Batch()

        def on_signal(signal: Json) -> None:
            stopped = cast("dict[str, str]", signal).get("stop")
            if batch.messages and stopped == str(batch.messages[0].person):
                stopping.set()

        try:
            async with held(self._shared, lease, on_signal):
                if not lease.steps and any(waiting.pointed for waiting in lease.events):
                    await self._decisions.decide(lease.lane)
                    await self._give_back(lease)
                    return None
                chosen = self._choose(lease)
                batch.taken, batch.messages, batch.notes = chosen.taken, chosen.messages, chosen.notes
                batch.resumes = chosen.resumes
                if not batch.taken:
                    await self._give_back(lease)
                    return None
                if max(waiting.tries for waiting in batch.taken) >= _TRIES:
                    await self._put_aside(lease, batch, "its turn failed or killed its worker again and again")
                    return None
                return await self._guarded(lease, batch, stopping)
        except Fenced:
            log.warning("turn of %s: somebody else has taken over", lease.lane)
            return None

    def _choose(self, lease: Lease) -> Batch:
        only: list[int] = []
        if lease.steps:
            only = cast("list[int]", cast("dict[str, Json]", lease.steps[0])["events"])
        language = self._shared.bot.language or "en"
        return choose(lease.events, language=language, one=lease.tries >= 2, only=only)

    async def _guarded(self, lease: Lease, batch: Batch, stopping: asyncio.Event) -> Outcome | None:
        try:
            return await self._turn(lease, batch, stopping)
        except ProviderError as error:
            log.error("the model of %s: %s", self._shared.bot.name, error)
            self._shared.feed.publish("turn.failed", conversation=lease.lane, error=str(error))
            await self._model_down(lease, batch)
        except Fenced:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the conversation goes on
            log.error("a turn of %s failed: %s", lease.lane, type(error).__name__)
            self._shared.feed.publish("turn.failed", conversation=lease.lane, error=type(error).__name__, cause=error)
            await self._failed(lease, batch)
        return None

    async def _turn(self, lease: Lease, batch: Batch, stopping: asyncio.Event) -> Outcome:
        if batch.messages and (answered := await self._answered(lease, batch)) is not None:
            return answered
        address, person = await self._who(lease.lane, batch)
        if batch.messages or batch.resumes:
            outcome = await self._run_bot(lease, batch, stopping, address, person)
        else:
            outcome = Outcome(stop_reason="answered", transcript=to_entries(batch.notes))
        await self._conclude(lease, batch, outcome, address, person)
        self._shared.feed.publish("turn.finished", conversation=lease.lane, stop_reason=outcome.stop_reason)
        return outcome

    # ── an answer to an open action ──

    async def _answered(self, lease: Lease, batch: Batch) -> Outcome | None:
        """A message that is nothing but a yes or a no. None when it is an ordinary word here."""
        message = batch.messages[0]
        person = message.person
        if len(batch.messages) > 1 or message.command is not None or message.attachments or person is None:
            return None
        language = self._shared.language(person)
        intent = self._parser.classify(message.text, language)
        if intent == "unclear":
            return None
        await self._sends_ended(lease.lane)
        while True:
            desk = await self._shared.desk(lease.lane, language)
            if message.address.group:
                if not desk.open:
                    return None
            elif not desk.word(intent, person, await self._words(lease.lane, batch, message)):
                return None
            transaction = self._transaction(lease, batch)
            desk.write(transaction)
            transaction.parts += queue(self._shared.channels, lease.lane, message.address, desk.says)
            try:
                await self._shared.store.commit(transaction)
            except Conflict:
                continue
            return Outcome(stop_reason="decided")

    async def _words(self, conversation: str, batch: Batch, message: Message) -> Words:
        receipts, last = self._shared.key(conversation, "receipts"), self._heard_key(conversation, message.person)
        snapshot = await self._shared.store.get([receipts, last])
        written = cast("str | None", snapshot[last].value)
        heard_at = [datetime.fromisoformat(written)] if written else []
        heard_at += [waiting.stamp for waiting in batch.taken[:-1] if waiting.body.get("kind") != "settled"]
        at = batch.last.stamp
        return Words(
            at=at,
            fresh=typed(message) and message.reply_to is None,
            last_shown=last_shown(snapshot[receipts].value, at),
            heard=max(heard_at, default=None),
        )

    async def _sends_ended(self, conversation: str) -> None:
        """While a prompt is on its way, a bare word waits to be judged until it has arrived or failed."""
        for _ in range(int(_SEND_WAIT_SECONDS / _LOOK_SECONDS)):
            if not any(part.body["shows"] for part in await self._shared.store.outbox(conversation)):
                return
            await asyncio.sleep(_LOOK_SECONDS)

    # ── the bot's own turn ──

    async def _run_bot(
        self, lease: Lease, batch: Batch, stopping: asyncio.Event, address: Address, person: Person
    ) -> Outcome:
        shared, conversation, language = self._shared, lease.lane, self._shared.language(person)
        entries = await shared.store.read(shared.key(conversation, "transcript"), last=HISTORY)

        async def desk() -> Desk:
            return await shared.desk(conversation, language)

        turn = Turn(
            conversation=conversation,
            address=address,
            person=person,
            language=language,
            messages=batch.messages,
            notes=batch.notes,
            history=from_entries(entries),
            started=batch.last.stamp,
            context=ToolContext(
                person=str(person),
                address=None if address.channel == "app" else address,
                conversation=conversation,
                language=language,
                deps=shared.bot.deps,
                idempotency_key=f"{conversation}/{batch.taken[0].seq}",
                now=shared.wall_clock,
                stopping=stopping,
            ),
            journal=_Steps(shared, lease, batch),
            keep=shared.artifacts.keep,
            desk=desk,
            publish=shared.feed.publish,
        )
        deadline = asyncio.timeout(DEADLINE_SECONDS)
        async with self._typing(address):
            try:
                async with deadline:
                    return await shared.bot.turn(turn)
            except TimeoutError:
                if not deadline.expired():
                    raise
        outcome = Outcome(stop_reason="timeout", transcript=to_entries([*batch.notes, *turn.heard]))
        outcome.replies = [Reply(text=say("turn_timeout", language))]
        return outcome

    async def _who(self, conversation: str, batch: Batch) -> tuple[Address, Person]:
        """Whose turn it is: the writer's, else that of whoever asked for the action whose outcome is noted."""
        for message in batch.messages:
            if message.person is not None:
                return message.address, message.person
        for waiting in batch.taken:
            action_id = str(waiting.body.get("action_id"))
            action = (await self._shared.desk(conversation, "en", action_id)).action(action_id)
            if action is not None and action.address is not None:
                return action.address, person_of(action.requester, action.requester_name)
        address = Address.parse(conversation.partition("/")[2])
        return address, Person(channel=address.channel, account=address.account, user_id="-")

    @contextlib.asynccontextmanager
    async def _typing(self, address: Address) -> AsyncIterator[None]:
        """Shown as typing for as long as the turn runs, where the platform can."""
        channel = self._shared.channels[address.channel]
        if not isinstance(channel, CanType):
            yield
            return

        async def keep_typing() -> None:
            while True:
                with contextlib.suppress(SendError):
                    await channel.typing(address)
                await asyncio.sleep(_TYPING_SECONDS)

        typing = asyncio.create_task(keep_typing(), name="typing")
        try:
            yield
        finally:
            typing.cancel()
            await asyncio.gather(typing, return_exceptions=True)

    async def _conclude(self, lease: Lease, batch: Batch, outcome: Outcome, address: Address, person: Person) -> None:
        """The one atomic step at the end of a turn."""
        shared, conversation = self._shared, lease.lane
        language = shared.language(person)
        while True:
            transaction = self._transaction(lease, batch)
            transaction.appends += [(shared.key(conversation, "transcript").name, line) for line in outcome.transcript]
            says = [Say(reply=reply) for reply in outcome.replies]
            if outcome.asked or outcome.unrelated:
                desk = await shared.desk(conversation, language)
                if outcome.asked:
                    asked = {action.pending_action_id: action for action in outcome.asked}
                    for action_id, action in asked.items():
                        if desk.action(action_id) is None:
                            desk.ask(action)
                    found = [desk.action(action_id) for action_id in asked]
                    desk.show_prompt([action for action in found if action is not None and action.open])
                elif shared.bot.on_unrelated == "drop":
                    desk.withdraw(str(person), desk.now)
                    desk.says.insert(0, Say(reply=Reply(text=say("dropped", language))))
                else:
                    desk.show_again(str(person))
                desk.write(transaction)
                says += desk.says
            transaction.parts += queue(shared.channels, conversation, address, says)
            try:
                await shared.store.commit(transaction)
            except Conflict:
                continue
            return

    def _transaction(self, lease: Lease, batch: Batch) -> Transaction:
        """What ends every turn: its events consumed, and who was heard when."""
        shared, conversation = self._shared, lease.lane
        transaction = Transaction(partition=lease.partition, lease=lease, finish="done")
        transaction.consume = [(conversation, waiting.seq) for waiting in batch.taken]
        for message in batch.messages:
            heard(transaction, shared, conversation, message)
        if batch.messages:
            name = self._heard_key(conversation, batch.messages[0].person).name
            transaction.puts[name] = Put(batch.last.stamp.isoformat(), _HEARD_SECONDS)
        return transaction

    def _heard_key(self, conversation: str, person: Person | None) -> Key:
        """When a person last wrote in a conversation: a bare yes counts only if nothing else came after the prompt."""
        return self._shared.key(conversation, f"heard/{person}")

    # ── when it fails ──

    async def _model_down(self, lease: Lease, batch: Batch) -> None:
        """Told once, kept, and tried again; given up in the end, and told."""
        if lease.tries >= len(_MODEL_AGAIN_SECONDS):
            await self._put_aside(lease, batch, "the model could not be reached", key="gave_up")
            return
        due = await self._shared.store.now() + timedelta(seconds=_MODEL_AGAIN_SECONDS[lease.tries])
        transaction = Transaction(partition=lease.partition, lease=lease, finish="failed", due=due)
        if lease.tries == 0:
            await self._tell(transaction, lease.lane, batch, "model_down")
        await self._shared.store.commit(transaction)

    async def _failed(self, lease: Lease, batch: Batch) -> None:
        if lease.tries >= len(_AGAIN_SECONDS) and len(batch.messages) <= 1:
            await self._put_aside(lease, batch, "its turn failed again and again")
            return
        wait = _AGAIN_SECONDS[min(lease.tries, len(_AGAIN_SECONDS) - 1)]
        due = await self._shared.store.now() + timedelta(seconds=wait)
        await self._shared.store.commit(Transaction(partition=lease.partition, lease=lease, finish="failed", due=due))

    async def _put_aside(self, lease: Lease, batch: Batch, reason: str, *, key: str = "error_incident") -> None:
        """The events become dead letters, and the person is told; the conversation goes on."""
        transaction = self._transaction(lease, batch)
        incident = secrets.token_hex(4)
        transaction.dead = [
            Dead(
                dead_id=f"{incident}-{waiting.seq}",
                conversation=lease.lane,
                reason=reason,
                incoming=Incoming(
                    conversation=lease.lane, event_ids=(f"replay/{incident}/{waiting.seq}",), body=waiting.body
                ),
            )
            for waiting in batch.taken
        ]
        await self._tell(transaction, lease.lane, batch, key, incident=incident)
        await self._shared.store.commit(transaction)

    async def _tell(self, transaction: Transaction, conversation: str, batch: Batch, key: str, **values: str) -> None:
        address, person = await self._who(conversation, batch)
        told = Say(reply=Reply(text=say(key, self._shared.language(person), **values)))
        transaction.parts += queue(self._shared.channels, conversation, address, [told])

    async def _give_back(self, lease: Lease) -> None:
        await self._shared.store.commit(Transaction(partition=lease.partition, lease=lease, finish="done"))
