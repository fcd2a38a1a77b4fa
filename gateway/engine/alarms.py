"""Alarms for operators: outcomes in doubt, and a store refusing new messages.

An outcome in doubt is logged, emitted as an event, and passed to the bot's callbacks. The refusals of an overloaded
store are logged once a minute, with the largest mailboxes.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Final, Literal, TypeAlias

from gateway.channel_agent import ChannelAgent
from gateway.engine.concurrency import BackgroundTasks
from gateway.observe.events import DoubtRaised
from gateway.observe.runs import ACTION
from gateway.observe.teller import Teller
from gateway.pending.seal import SEAL_FAILED
from gateway.store.base import Store
from gateway.store.errors import Overloaded, StoreError
from gateway.store.types import QueuedPart
from gateway.stored.outbox import OutboxItem
from gateway.tools.pending_action import PendingAction

log = logging.getLogger("askfirst.actions")

Why: TypeAlias = Literal["unknown", "forged", "undeliverable"]

_SENTENCES: dict[Why, str] = {
    "unknown": "it may or may not have happened; look, then say so: askfirst pending settle",
    "forged": f"{SEAL_FAILED}: it will not run",
    "undeliverable": "what became of it did not reach its person: askfirst dead list",
}
_REMEMBERED = 1000
_HOUR: Final = 3600.0


class Alarms:
    """The alarms of this process. Each action raises an alarm once for the same reason."""

    def __init__(self, bot: ChannelAgent, events: Teller, tasks: BackgroundTasks) -> None:
        self._bot, self._events, self._tasks = bot, events, tasks
        self._raised: deque[tuple[str, Why]] = deque(maxlen=_REMEMBERED)

    def sound(self, action: PendingAction, why: Why) -> None:
        """Raise an alarm for an action in doubt.

        The log line and the event contain no arguments and no words of a person.
        """
        action_id = action.pending_action_id
        if (action_id, why) in self._raised:
            return
        self._raised.append((action_id, why))
        log.error(
            "action %s (%s) of %s: %s", action_id, action.kind or "unreadable", action.conversation, _SENTENCES[why]
        )
        self._events.tell_now(
            DoubtRaised, conversation=action.conversation, why=why, action_id=action_id, kind=action.kind
        )
        self._tasks.start(self._bot.tell_doubt(action), "on_doubt")


class Forgeries:
    """Reports text for the model with a failed seal check: changed or added without the key.

    Each record or log is reported once an hour. `now` counts seconds.
    """

    def __init__(self, events: Teller, now: Callable[[], float] = time.monotonic) -> None:
        self._events, self._now = events, now
        self._told: OrderedDict[str, float] = OrderedDict()

    def tell(self, name: str, conversation: str) -> None:
        """Log and emit the failed seal check of this record or log. The caller leaves the failed parts out."""
        now = self._now()
        if now - self._told.get(name, -_HOUR) < _HOUR:
            return
        self._told[name] = now
        self._told.move_to_end(name)
        if len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        log.error("%s: %s: the failed parts are left out", name, SEAL_FAILED)
        self._events.tell_now(DoubtRaised, conversation=conversation, why="forged")


def outcomes(parts: Iterable[QueuedPart]) -> list[str]:
    """Return the ids of the actions with an outcome in these parts."""
    items = [OutboxItem.from_json(queued.body) for queued in parts]
    causes = [str(item.cause) for item in items if item.edits is None]
    return [cause.removeprefix(ACTION) for cause in dict.fromkeys(causes) if cause.startswith(ACTION)]


_inbox_log = logging.getLogger("askfirst.inbox")

_MINUTE: Final = 60.0
_HOLDERS: Final = 5


class Overload:
    """The last refusal of this process. `now` counts seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._why = ""
        self._seen, self._said = -_MINUTE, -_MINUTE

    @property
    def why(self) -> str | None:
        """The reason of the last refusal if within a minute, or None."""
        return self._why if self._now() - self._seen < _MINUTE else None

    async def refused(self, error: Overloaded, store: Store) -> None:
        """Note a refused message. Log once a minute, with the largest mailboxes."""
        now = self._now()
        self._why, self._seen = str(error), now
        if now - self._said < _MINUTE:
            return
        self._said = now
        try:
            fullest = ", ".join(f"{found.conversation}: {found.waiting}" for found in await store.mailboxes(_HOLDERS))
        except StoreError:
            fullest = "the store cannot say"
        _inbox_log.error(
            "new messages of everybody are refused: %s. Most waits in %s. `askfirst waiting` shows it and mends it",
            error,
            fullest or "none",
        )
