"""Signals for ending a running turn: /stop, a stop button, or another message of the same person."""

from __future__ import annotations

from dataclasses import dataclass, field

from channels import Json, Message
from gateway.engine.context import EngineContext
from gateway.engine.telling import event_id_of
from gateway.engine.turns.batch import is_plain
from gateway.store.transaction import Transaction
from gateway.store.types import Lease
from gateway.tools.stopping import Stopping


@dataclass(slots=True)
class SignalInbox:
    """Receiver of the signals for the turn of a lease. Until `person` is set, all signals are ignored."""

    lease: Lease
    person: str = ""
    stopping: Stopping = field(default_factory=Stopping)
    """Set when the turn must end at the next step."""
    stopped: bool = False
    """True after /stop or a press on the stop button: the turn asks no question."""
    keeps_answer: bool = False
    """True after a press on the stop button: the words written so far are the answer."""

    def on_signal(self, signal: Json) -> None:
        """Receive a signal of the store."""
        if not self.person:
            return
        match signal:
            case {"stop": self.person}:
                self.stopped = True
                self.stopping.set()
            case {"stop_answer": self.person}:
                self.stopped = self.keeps_answer = True
                self.stopping.set()
            case {"interrupt": self.person, "event": event_id} if not self._takes(event_id):
                self.stopping.set()

    def _takes(self, event_id: Json) -> bool:
        """Return True for an event of the turn's own lease."""
        return any(event_id == event_id_of(waiting) for waiting in self.lease.events)


async def interrupt(context: EngineContext, message: Message, conversation: str) -> None:
    """Signal another message of the person to the running turn of this conversation, in any process. Only a plain
    message counts."""
    if not is_plain(message, context.language(None)):
        return
    signal: Json = {"interrupt": str(message.person), "event": "".join(message.event_ids[:1])}
    partition = context.store.partition(conversation)
    await context.store.commit(Transaction(partition=partition, signals=[(conversation, signal)]))
    context.nudge("turn", conversation)
