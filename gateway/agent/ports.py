"""The ports of a turn: cancellation, callbacks to store the steps of the loop, and outcome."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from channels import Reply
from gateway.agent.aside import Expenses
from gateway.agent.compress import EarlierResults
from gateway.agent.confirming import Asked
from gateway.agent.interceptors import Interceptors
from gateway.agent.journal import Journal, Keep
from gateway.agent.model import OnText
from gateway.agent.replies import ReadFile
from gateway.memory import NotedFact, Remembered
from gateway.observe.results import AgentResult
from gateway.observe.teller import RunTeller
from gateway.providers.base import ModelMessage
from gateway.tools.context import PlannedTurn
from gateway.tools.stopping import Stopping


class CancellationToken:
    """Cancels the runs with this token, from any thread, and for good.

    The request to the model is dropped, and finished steps stay: the run returns the result with the stop reason
    ``cancelled``. A running tool is not interrupted, but may check ``ctx.cancelled``. A run with a cancelled token ends
    at once.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._stop: set[Callable[[], object]] = set()
        self.cancelled = False
        """True after `cancel`."""
        self.reason = ""
        """The reason of the first `cancel`."""

    def cancel(self, reason: str = "") -> None:
        """Cancel the runs. `reason` is for observers and the trace. A second call changes nothing."""
        with self._changing:
            if self.cancelled:
                return
            self.cancelled, self.reason = True, reason
            stop, self._stop = self._stop, set()
        for each in stop:
            each()

    @contextlib.asynccontextmanager
    async def stopping(self, outer: Stopping) -> AsyncIterator[Stopping]:
        """Yield an event, set when this token is cancelled or `outer` is set."""
        stopping, loop, thread = Stopping(), asyncio.get_running_loop(), threading.current_thread()

        def stop() -> None:
            if threading.current_thread() is thread:
                stopping.set()
                return
            with contextlib.suppress(RuntimeError):  # the loop is closed: its runs have ended
                loop.call_soon_threadsafe(stopping.set)

        with self._changing:
            if self.cancelled or outer.is_set():
                stopping.set()
            else:
                self._stop.add(stop)
        outer.call(stopping.set)
        try:
            yield stopping
        finally:
            outer.no_longer_call(stopping.set)
            with self._changing:
                self._stop.discard(stop)


class LiveText(Protocol):
    """The growing text of a running turn, shown in a chat."""

    def add(self, piece: str) -> None:
        """Add a piece of the model's reply."""
        ...

    def restart(self) -> None:
        """Begin a reply, or the same reply again: the new text replaces all earlier text."""
        ...

    def progress(self, text: str) -> None:
        """Show the progress of a tool under the text."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopPorts:
    """The callbacks of one turn. All are optional, and none may block.

    The confirmation callback is passed separately: a chat's must be an `OnConfirm`, which approves no call.
    """

    journal: Journal | None = None
    """The storage of finished steps: steps of an earlier attempt are not repeated. Needs `keep`."""
    keep: Keep | None = None
    """Makes files durable, since the journal records only the hash of a file."""
    read_file: ReadFile | None = None
    """Returns the bytes of a file of the conversation; None: the model sees only files with inline bytes."""
    earlier_results: EarlierResults | None = None
    """Returns the raw results of a tool kept by earlier turns of the conversation."""
    expenses: Expenses | None = None
    """The budgets shared with other turns; None: no budgets."""
    remembered: Remembered | None = None
    """The memories for the model."""
    withdrawable: Mapping[str, str] = field(default_factory=dict)
    """Name -> id of each open question of the person, for the model to take back. Empty: no tool to do so."""
    on_text: OnText | None = None
    """Receives the model's text. With this callback the model streams."""
    live: LiveText | None = None
    """Shows the model's text in place of `on_text`, and the progress of tools. Makes the model stream too."""
    events: RunTeller | None = None
    """Emits the events of the run; None: only to the run's trace, under a random id."""
    cancellation: CancellationToken | None = None
    """The token behind the context's `stopping`, with the reason."""
    asking: RunTeller | None = None
    """Emits the events of questions to people; None: `events`. After a handover between agents: the outermost run."""
    at_end: Callable[[LoopOutcome], Awaitable[LoopOutcome]] | None = None
    """Called with the outcome before the event of the run's end. Returns the final outcome of the run."""
    interceptors: Interceptors = field(default_factory=Interceptors)
    """The interceptors of the model's tool calls."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Waits for some seconds before a retry of the model."""
    jitter: Callable[[], float] = random.random
    """Returns a number from 0 to 1: the share of a tenth added to the wait of `sleep`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOutcome(AgentResult):
    """The result of one turn. `content` is the answer, or the text beside the model's last calls."""

    reply: Reply | None = None
    """The message returned by a terminal tool, with `content` as the text."""
    asked: tuple[Asked, ...] = ()
    """The actions of the questions to people, also from an earlier attempt at this turn."""
    guarded: tuple[ModelMessage, ...] | None = field(default=None, repr=False)
    """The conversation at the start of the run, after the guards. None: no guard checked the conversation."""
    noted: tuple[NotedFact, ...] = ()
    """The facts about the person noted by the tools."""
    withdrawn: tuple[str, ...] = ()
    """The ids of the open actions taken back by the model."""
    follow_ups: tuple[PlannedTurn, ...] = ()
    """The further turns planned by the tools."""
    raw_results: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)
    """The raw results of tools behind the shortened texts for the model: by tool, newest first."""
