"""The journal of a running turn: its checkpoint in the store."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

from channels import Json
from gateway.agent.journal import Progress
from gateway.engine.context import EngineContext
from gateway.engine.turns.batch import Batch
from gateway.pending.seal import step_context
from gateway.providers.base import ModelMessage
from gateway.store.transaction import Transaction
from gateway.store.types import Lease

_UNKNOWN = "The turn ended while this ran: its outcome is unknown, it may or may not have happened."
_NOT_RUN = "Not run: the turn ended before it."


class StoreJournal:
    """The steps of the turn of this lease. The stored first step names the events of the turn.

    The first step also maps the index of each vetoed message to the answer for the author.

    Each stored step has a seal over the step, the conversation and the seal of the step before.
    """

    def __init__(
        self,
        context: EngineContext,
        lease: Lease,
        batch: Batch,
        committing: Callable[[Transaction], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
    ) -> None:
        """`committing`: returns the block of the commit of a step, and may add to the transaction."""
        self._context, self._lease, self._batch, self._committing = context, lease, batch, committing
        self._steps = [_bare(step) for step in lease.steps[1:]]
        self._begun = bool(lease.steps)
        self._last_mac = _mac(lease.steps[-1]) if lease.steps else ""
        self.vetoes: Mapping[int, str] = _vetoes(lease.steps[0]) if lease.steps else {}

    @property
    def steps(self) -> Sequence[Json]:
        """The recorded steps, without seals and without the first step."""
        return tuple(self._steps)

    @property
    def begun(self) -> bool:
        """True if a step was recorded, in this attempt or an earlier attempt."""
        return self._begun

    async def record(self, step: Json) -> None:
        """Commit a step. Raises Fenced when the lease is lost."""
        if not isinstance(step, dict):
            raise TypeError("a step of a turn is an object")
        new: list[Json] = []
        if not self._begun:
            first: dict[str, Json] = {"events": [waiting.seq for waiting in self._batch.taken]}
            if self.vetoes:
                first["vetoes"] = [[place, answer] for place, answer in self.vetoes.items()]
            new.append(self._sealed(first))
        new.append(self._sealed(step))
        transaction = Transaction(partition=self._lease.partition, lease=self._lease, steps=new)
        with self._committing(transaction):
            await self._context.commit(transaction)
        self._begun = True
        self._steps.append(step)

    def _sealed(self, step: dict[str, Json]) -> Json:
        sealed = self._context.keyring.stamped("step", step_context(self._lease.lane, self._last_mac), step)
        self._last_mac = _mac(sealed)
        return sealed

    def messages(self) -> list[ModelMessage]:
        """Return the messages so far, for the transcript of a turn without an end. Every call has a result."""
        progress = Progress(self)
        messages: list[ModelMessage] = []
        while (reply := progress.reply(number := 1 + sum(each.role == "assistant" for each in messages))) is not None:
            messages.append(reply.message)
            for position, call in enumerate(reply.tool_calls, start=1):
                key = f"{number}.{position}"
                result = progress.result(key)
                text = result.text if result else _UNKNOWN if progress.was_started(key) else _NOT_RUN
                messages.append(ModelMessage(role="tool", content=text, call_id=call.call_id, tool_name=call.name))
        return messages


def events_of(lease: Lease) -> list[int]:
    """Return the sequence numbers of the events of the turn continued by this lease. Empty for a new turn.

    Raises ValueError for a first step without events.
    """
    if not lease.steps:
        return []
    match lease.steps[0]:
        case {"events": list(events)}:
            return [number for number in events if isinstance(number, int)]
    raise ValueError("a checkpoint without its events")


def _vetoes(first: Json) -> dict[int, str]:
    stored = first.get("vetoes") if isinstance(first, dict) else None
    pairs = stored if isinstance(stored, list) else []
    return {pair[0]: str(pair[1]) for pair in pairs if isinstance(pair, list) and isinstance(pair[0], int)}


def are_genuine(context: EngineContext, lease: Lease) -> bool:
    """Return True if this gateway recorded the steps of this lease, in this order."""
    last_mac = ""
    for step in lease.steps:
        if not isinstance(step, dict) or not context.is_genuine("step", step_context(lease.lane, last_mac), step):
            return False
        last_mac = _mac(step)
    return True


def _mac(step: Json) -> str:
    return str(step.get("mac", "")) if isinstance(step, dict) else ""


def _bare(step: Json) -> Json:
    return {name: value for name, value in step.items() if name != "mac"} if isinstance(step, dict) else step
