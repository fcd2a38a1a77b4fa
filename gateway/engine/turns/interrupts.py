"""A turn that runs, and what is heard meanwhile that may end it: a stop, or more of the same person's."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast

from channels import Json, Message
from gateway.engine import event_log
from gateway.engine.context import EngineContext
from gateway.engine.turns.batch import is_plain
from gateway.store.base import Lease, Transaction

__all__ = ["SignalInbox", "interrupt"]


@dataclass(slots=True)
class SignalInbox:
    """What the turn of this lease hears. Until it is known whose turn it is, it hears nothing."""

    lease: Lease
    person: str = ""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """The turn is to end at its next step."""
    stopped: bool = False
    """Its person wants no more of it: what it was about to ask is not asked."""

    def hear(self, signal: Json) -> None:
        said = cast("dict[str, str]", signal)
        if not self.person:
            return
        if said.get("stop") == self.person:
            self.stopped = True
            self.stopping.set()
        elif said.get("interrupt") == self.person and said["event"] not in map(event_log.event_of, self.lease.events):
            self.stopping.set()


async def interrupt(context: EngineContext, message: Message, conversation: str) -> None:
    """Tell the turn that runs in this conversation, wherever it does, that its person has written something else."""
    if not is_plain(message, context.bot.language or "en"):
        return
    signal: Json = {"interrupt": str(message.person), "event": "".join(message.event_ids[:1])}
    partition = context.store.partition(conversation)
    await context.store.commit(Transaction(partition=partition, signals=[(conversation, signal)]))
    context.nudge("turn", conversation)
