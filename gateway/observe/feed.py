"""The live feed: notices of the events in this process, for the connected consoles."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from traceback import format_exception

from channels import Address, Json, Person
from gateway.observe import events
from gateway.observe.lives import Life, Lives
from gateway.providers.base import ModelMessage, Response, Usage
from gateway.tools.pending_action import PendingAction

BACKLOG = 2_000
"""The number of notices kept for later readers."""
_MAX_TEXT = 8_000
_MAX_ITEMS = 100
_MAX_DEPTH = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """An event in the feed."""

    seq: int
    at: datetime
    name: str
    fields: Mapping[str, Json]
    life: Life
    mend: str = ""
    """The command to mend a failure, or an empty text."""


class Feed:
    """A broadcast of notices to any number of readers, with a memory of the last BACKLOG notices.

    The publisher never waits for a reader. A reader behind by more than the backlog misses the oldest notices.
    """

    kinds = frozenset(events.EVENTS.values()) - {
        *(events.IterationEnd, events.IterationStart, events.RunEnd, events.RunStart, events.RunUsage),
        *(events.ActionAudited, events.DecisionJudged, events.SessionLoad, events.SessionSave, events.WebhookHandled),
    }
    """All events except repetitions of other events."""

    def __init__(self, *, now: Callable[[], datetime]) -> None:
        self._now = now
        self._lives = Lives()
        # The fields of a Notice, which is made only when a reader asks: mostly there is none.
        self._notices: deque[tuple[int, datetime, str, Mapping[str, Json], Life, str]] = deque(maxlen=BACKLOG)
        self._readers: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        # Milliseconds, not 0: a reader that reconnects after a restart gets the new notices.
        self._last = int(now().timestamp() * 1000)
        self._lock = Lock()

    def read(self, event: events.ObservedEvent) -> None:
        """Publish an event in readable words to all readers, from any thread.

        Never raises, for any fields. An error becomes a traceback, and any other value outside of JSON becomes text.
        Long texts are cut at 8,000 characters, containers at 100 items and at a depth of 6.
        """
        fields: dict[str, object] = {}
        for name, value in event.values().items():
            fields |= _words(name, value)
        if isinstance(event, events.LlmStart):
            fields["said"] = _said(event.messages)
        plain, mend = {key: _plain(value) for key, value in fields.items()}, _mend(event)
        with self._lock:
            self._last += 1
            self._notices.append((self._last, self._now(), event.name, plain, self._lives.of(event), mend))
            readers = list(self._readers.items())
        for changed, loop in readers:
            with contextlib.suppress(RuntimeError):  # that reader's loop has ended
                loop.call_soon_threadsafe(changed.set)

    async def subscribe(self, *, after: int = 0) -> AsyncGenerator[Notice, None]:
        """Yield the kept notices with a `seq` above `after`, then each new notice, until the generator is closed."""
        changed = asyncio.Event()
        with self._lock:
            self._readers[changed] = asyncio.get_running_loop()
        try:
            while True:
                changed.clear()
                with self._lock:
                    fresh = [notice for notice in self._notices if notice[0] > after]
                for seq, at, name, fields, life, mend in fresh:
                    yield Notice(seq=seq, at=at, name=name, fields=fields, life=life, mend=mend)
                    after = seq
                await changed.wait()
        finally:
            with self._lock:
                del self._readers[changed]


def _words(name: str, value: object) -> dict[str, object]:
    """Return the fields of a notice for a field of an event."""
    match value:
        case PendingAction():
            shown = {"action": value.pending_action_id, "args": value.args, "preview": value.preview}
            return {"tool": value.kind, "conversation": value.conversation, **shown}
        case Response():
            calls = [call.name for call in value.tool_calls]
            return {"content": value.content, "calls": calls, "finish": value.finish, "model": value.model}
        case Usage():
            tokens = {"total_tokens": value.total_tokens, "cached_tokens": value.cached_prompt_tokens}
            return {**tokens, "cost_usd": value.cost_usd}
        case Address() | Person():
            return {name: str(value)}
        case float() | int() if name == "duration_ms":
            return {"milliseconds": round(value)}
        case [ModelMessage(), *_]:
            return {name: len(value)}
        case _:
            return {"tool" if name == "tool_name" else "args" if name == "tool_args" else name: value}


def _said(messages: Sequence[ModelMessage]) -> str:
    """Return the person's words answered by a call to the model. Empty after a tool."""
    return messages[-1].content if messages and messages[-1].role == "user" else ""


def _mend(event: events.ObservedEvent) -> str:
    """Return the command to mend a failure, or an empty text."""
    match event:
        case events.DeliveryFailed(suppressed=False) if event.part_id:
            return f"askfirst dead replay {event.part_id}"
        case events.EventSettled(how="put aside") | events.DoubtRaised(why="undeliverable"):
            return "askfirst dead list"
        case events.DoubtRaised(why="unknown") if event.action_id:
            return f"askfirst pending settle {event.action_id} done|failed"
        case events.PendingResolved(status="unknown"):
            return f"askfirst pending settle {event.action.pending_action_id} done|failed"
    return ""


def _plain(value: object, depth: int = 0) -> Json:
    if isinstance(value, str):
        return value if len(value) <= _MAX_TEXT else f"{value[:_MAX_TEXT]}… ({len(value)} characters)"
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if depth < _MAX_DEPTH:
        if isinstance(value, Mapping):
            return {str(key): _plain(item, depth + 1) for key, item in list(value.items())[:_MAX_ITEMS]}
        if isinstance(value, list | tuple | set | frozenset):
            return [_plain(item, depth + 1) for item in list(value)[:_MAX_ITEMS]]
    try:
        text = "".join(format_exception(value)) if isinstance(value, BaseException) else str(value)
        return _plain(text, depth)
    except Exception:  # noqa: BLE001 - an author's object may raise any error here, and publishing must not
        return f"<{type(value).__name__}>"
