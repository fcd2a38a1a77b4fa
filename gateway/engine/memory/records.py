"""The stored memories of a conversation, and the reading of memories for a turn."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from channels import Json
from channels.direct import is_private
from gateway.agent import Agent
from gateway.bot.turn import Turn
from gateway.engine.context import EngineContext
from gateway.memory import Remembered
from gateway.store.errors import Conflict
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Incoming, Key, Record, Snapshot
from gateway.stored import keys
from gateway.stored.memory_events import MemoryEvent, conversation_lane, memory_body_of, person_lane

SUMMARY: Final = "summary"
"""The name of the summary among the memories of a conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptMemory:
    """The record of a memory of a conversation."""

    epoch: str = ""
    """The run id of the last reset of the transcript; empty without a reset."""
    through: int = 0
    """The number of the last transcript line read."""
    turns: int = 0
    """The number of model calls that filled the memory."""
    value: Json = None

    @classmethod
    def of(cls, value: Json, epoch: str) -> Self:
        """Return the memory of an opened record; an empty memory without a record of this epoch."""
        match value:
            case {"epoch": str(stored), "through": int(through), "turns": int(turns), "value": value} if (
                stored == epoch
            ):
                return cls(epoch=epoch, through=through, turns=turns, value=value)
        return cls(epoch=epoch)

    def read_to(self, line: int, value: Json) -> Self:
        """Return the memory after a further model call with the lines up to this line."""
        return replace(self, through=line, turns=self.turns + 1, value=value)

    def to_json(self) -> Json:
        return {"epoch": self.epoch, "through": self.through, "turns": self.turns, "value": self.value}


def turn_memories(agent: Agent) -> list[str]:
    """Return the names of this agent's memories of a conversation."""
    summarises = agent.memory is not None and agent.memory.summarize_on_trim
    return [*([SUMMARY] if summarises else []), *(memory.extracts for memory in agent.extractions)]


def memory_key(context: EngineContext, conversation: str, what: str) -> Key:
    """Return the key of a memory of a conversation, in the partition of the memory lane."""
    return keys.key(context.store, conversation_lane(conversation), keys.memory, what)


def epoch_of(found: Snapshot, key: Key) -> str:
    """Return the epoch of a conversation: the run id of the last reset of the transcript, or ""."""
    return str(found[key].value or "")


def begin_epoch(transaction: Transaction, context: EngineContext, conversation: str, epoch: str) -> None:
    """Begin a new epoch of a conversation after a reset. Earlier memories no longer count."""
    transaction.puts[keys.memory_epoch(conversation)] = Put(epoch, context.rules.retention.transcript_seconds)


async def renew_epoch(context: EngineContext, key: Key, read: Record) -> None:
    """Keep the epoch of a conversation as long as the newly written memories, unless a reset has begun another epoch.

    A memory does not count without the right epoch.
    """
    if read.value is not None:
        put = Put(read.value, context.rules.retention.transcript_seconds)
        with contextlib.suppress(Conflict):
            await context.commit(
                Transaction(partition=key.partition, expect={key.name: read.version}, puts={key.name: put})
            )


async def remembered(context: EngineContext, turn: Turn) -> Remembered:
    """Return the memories for a turn. Facts about the person are read in private chats only."""
    agent, names = context.bot.agent, turn_memories(context.bot.agent)
    knowledge = agent.config.knowledge_memory if is_private(turn.address) else None
    if not names and knowledge is None:
        return Remembered()
    epoch_key = keys.key(context.store, turn.conversation, keys.memory_epoch)
    memory_keys = {name: memory_key(context, turn.conversation, name) for name in names}
    facts_key = keys.key(context.store, person_lane(context.bot.name, str(turn.person)), keys.knowledge)
    asked = [epoch_key, *memory_keys.values()] if names else []
    found = await context.store.get([*asked, *([facts_key] if knowledge is not None else [])])
    epoch = epoch_of(found, epoch_key) if names else ""
    sealed = {key: record for key, record in found.records.items() if key != epoch_key}
    opened = {key: context.unsealed(key, record, turn.conversation) for key, record in sealed.items()}
    kept = {name: KeptMemory.of(opened[key], epoch).value for name, key in memory_keys.items()}
    summary = kept.get(SUMMARY)
    return Remembered.of(
        [*turn.history, *turn.model_messages],
        summary=summary if isinstance(summary, str) else "",
        extracted=[(memory, kept[memory.extracts]) for memory in agent.extractions],
        facts=((), ()) if knowledge is None else knowledge.lines(opened[facts_key], context.clock.guess()),
    )


async def hand_to_lanes(
    transaction: Transaction, context: EngineContext, events: Sequence[tuple[str, MemoryEvent]]
) -> None:
    """Hand events over to memory lanes. Each pair holds the name of a lane and an event."""
    if not events:
        return
    now = await context.store.now()
    for lane, event in events:
        body = context.keyring.stamped("event", lane, memory_body_of(event))
        transaction.hand_over.append(
            Incoming(conversation=lane, event_ids=(event.event_id,), body=body, kind="memory", stamp=now)
        )
