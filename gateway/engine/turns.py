"""Turns: one conversation at a time, its events in order, one atomic commit at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

from channels import Address, CanType, Json, Person, Reply, SendError
from channels.direct import DirectChannel
from gateway.channel_agent import Outcome, Turn
from gateway.engine.answers import Answers
from gateway.engine.batch import Batch, choose
from gateway.engine.decisions import Decisions
from gateway.engine.ending import Failures, Tries, ended, given_back, noted, who
from gateway.engine.leases import held
from gateway.engine.outgoing import queue
from gateway.engine.shared import Shared
from gateway.engine.steps import Steps, events_of
from gateway.memory import HISTORY, from_entries, to_entries
from gateway.pending.desk import Desk, Say
from gateway.providers.base import ModelMessage, ProviderError
from gateway.store.base import Conflict, Fenced, Lease
from gateway.tools import ToolContext
from gateway.wording import say

__all__ = ["Turns"]

log = logging.getLogger("askfirst.turns")

DEADLINE_SECONDS = 60.0
_CHANNEL_OFF_SECONDS = 60.0
_TYPING_SECONDS = 4.0
_TRIES = 50
"""Decisions of the same conversation may come between reading and writing; for ever they do not."""


@dataclass(frozen=True, slots=True)
class _Running:
    """A turn under its lease."""

    lease: Lease
    batch: Batch
    steps: Steps
    stopping: asyncio.Event
    address: Address
    person: Person

    @property
    def direct(self) -> bool:
        """The other side is the bot's own code, in a call of `ask_channel`."""
        return self.address.channel == DirectChannel.name


class Turns:
    """Runs the bot over what waits."""

    def __init__(self, shared: Shared, decisions: Decisions, *, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        self._shared, self._decisions, self._deadline_seconds = shared, decisions, deadline_seconds
        self._answers = Answers(shared)
        self._failures = Failures(shared)

    async def run(self, lease: Lease) -> Outcome | None:
        """Run one turn of the conversation this lease is for. None when there was none to run.

        A failure is told, kept and tried again. Where the bot's own code is the other side, nobody is told and nothing
        is tried again behind its back: what ended the turn is raised.
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
                tries = await self._failures.before(lease)
                batch = choose(
                    lease.events,
                    language=self._shared.bot.language or "en",
                    one=tries.one_by_one and not lease.steps,
                    only=events_of(lease),
                )
                if not batch.taken:
                    await self._shared.store.commit(given_back(self._shared, lease))
                    return None
                return await self._guarded(lease, batch, stopping, tries)
        except Fenced:
            log.warning("turn of %s: somebody else has taken over", lease.lane)
            return None

    async def _guarded(self, lease: Lease, batch: Batch, stopping: asyncio.Event, tries: Tries) -> Outcome | None:
        if batch.unreadable:
            await self._failures.put_aside(lease, batch, "an event that this release cannot read")
            return Outcome(stop_reason="cancelled")
        if tries.deadly:
            await self._failures.put_aside(lease, batch, "its turn killed its worker again and again")
            return Outcome(stop_reason="cancelled")
        address, person = await who(self._shared, lease.lane, batch)
        running = _Running(lease, batch, Steps(self._shared, lease, batch), stopping, address, person)
        self._shared.turn_of[lease.lane] = str(person)
        try:
            return await self._turn(running)
        except Fenced:
            raise
        except asyncio.CancelledError:
            await asyncio.shield(self._failures.stopped(lease, tries))
            raise
        except ProviderError as error:
            log.error("the model of %s: %s", self._shared.bot.name, error)
            self._shared.feed.publish("turn.failed", conversation=lease.lane, error=str(error))
            if running.direct:
                raise
            await self._failures.model_down(lease, batch, tries)
        except Exception as error:
            log.error("a turn of %s failed: %s", lease.lane, type(error).__name__)
            self._shared.feed.publish("turn.failed", conversation=lease.lane, error=type(error).__name__, cause=error)
            if running.direct:
                await self._failures.put_aside(lease, batch, "its turn failed", tell=False)
                raise
            await self._failures.failed(lease, batch, tries)
        finally:
            self._shared.turn_of.pop(lease.lane, None)
        return None

    async def _turn(self, running: _Running) -> Outcome | None:
        lease, batch = running.lease, running.batch
        if running.address.channel not in self._shared.channels:
            await self._wait_for_channel(lease)
            return None
        if batch.messages and (answered := await self._answers.take(lease, batch)) is not None:
            return answered
        if batch.messages or batch.resumes:
            outcome = await self._run_bot(running)
        else:
            outcome = Outcome(stop_reason="answered", transcript=to_entries(batch.notes))
        await self._conclude(running, outcome)
        self._shared.feed.publish("turn.finished", conversation=lease.lane, stop_reason=outcome.stop_reason)
        return outcome

    async def _wait_for_channel(self, lease: Lease) -> None:
        """Nobody could be told anything: what was written is kept until its channel is on again."""
        transaction = given_back(self._shared, lease)
        transaction.due = await self._shared.store.now() + timedelta(seconds=_CHANNEL_OFF_SECONDS)
        await self._shared.store.commit(transaction)

    # ── the bot's own turn ──

    async def _run_bot(self, running: _Running) -> Outcome:
        entries = await self._shared.store.read(self._shared.key(running.lease.lane, "transcript"), last=HISTORY)
        turn = self._prepared(running, from_entries(entries))
        deadline = asyncio.timeout(self._deadline_seconds)
        async with self._typing(running.address):
            try:
                async with deadline:
                    return await self._shared.bot.turn(turn)
            except TimeoutError:
                if not deadline.expired():
                    raise
            except ProviderError:
                if running.direct:
                    await self._keep(running, turn)
                raise
        return Outcome(
            stop_reason="timeout",
            transcript=to_entries([*turn.notes, *turn.heard, *running.steps.messages()]),
            replies=[Reply(text=say("turn_timeout", turn.language))],
        )

    async def _keep(self, running: _Running, turn: Turn) -> None:
        """What was written, and done about it so far, stands in the transcript: the next turn goes on from it."""
        transaction = ended(self._shared, running.lease, running.batch)
        noted(self._shared, transaction, running.lease.lane, [*turn.notes, *turn.heard, *running.steps.messages()])
        await self._shared.store.commit(transaction)

    def _prepared(self, running: _Running, history: Sequence[ModelMessage]) -> Turn:
        shared, batch, person = self._shared, running.batch, running.person
        conversation, language = running.lease.lane, shared.language(running.person)

        async def desk() -> Desk:
            return await shared.desk(conversation, language)

        return Turn(
            conversation=conversation,
            address=running.address,
            person=person,
            language=language,
            messages=batch.messages,
            notes=batch.notes,
            history=history,
            started=batch.at,
            context=ToolContext(
                person=str(person),
                address=None if running.direct else running.address,
                conversation=conversation,
                language=language,
                deps=shared.bot.deps,
                idempotency_key=f"{conversation}/{batch.taken[0].seq}",
                now=shared.wall_clock,
                stopping=running.stopping,
            ),
            journal=running.steps,
            keep=shared.artifacts.keep,
            desk=desk,
            publish=shared.feed.publish,
        )

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

    # ── the one atomic step at the end ──

    async def _conclude(self, running: _Running, outcome: Outcome) -> None:
        shared, conversation, person = self._shared, running.lease.lane, running.person
        for left in reversed(range(_TRIES)):
            transaction = ended(shared, running.lease, running.batch)
            transaction.appends += [(shared.key(conversation, "transcript").name, line) for line in outcome.transcript]
            says = [Say(reply=reply) for reply in outcome.replies]
            if outcome.asked or outcome.unrelated:
                desk = await shared.desk(conversation, shared.language(person))
                self._ask(desk, outcome, person, stopped=running.stopping.is_set())
                desk.write(transaction)
                says += desk.says
            transaction.parts += queue(shared.channels, conversation, running.address, says)
            try:
                await shared.store.commit(transaction)
            except Conflict:
                if not left:
                    raise
                continue
            return

    def _ask(self, desk: Desk, outcome: Outcome, person: Person, *, stopped: bool) -> None:
        """What the turn asks is open from here on; what was open before is shown again, or dropped."""
        asked = {action.pending_action_id: action for action in outcome.asked}
        for action_id, action in asked.items():
            if desk.action(action_id) is None:
                desk.ask(action)
        if asked and stopped:
            desk.withdraw(str(person), desk.now)
        elif asked:
            found = [desk.action(action_id) for action_id in asked]
            desk.show_prompt([action for action in found if action is not None and action.open])
        elif self._shared.bot.on_unrelated == "drop":
            desk.withdraw(str(person), desk.now)
            desk.says.insert(0, Say(reply=Reply(text=say("dropped", desk.language))))
        else:
            desk.show_again(str(person))
