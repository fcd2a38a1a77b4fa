"""The ports of a turn: its cancellation, the callbacks through which the loop stores its steps, and its outcome."""

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
    """Cancels the runs that it was given to, from any thread, and for good.

    The request to the model is dropped, and what has finished stays: the run returns its result with the stop reason
    ``cancelled``. A running tool is not interrupted; it may check ``ctx.cancelled``. A run with a cancelled token ends
    at once.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._stop: set[Callable[[], object]] = set()
        self.cancelled = False
        """True after `cancel`."""
        self.reason = ""
        """The reason that the first `cancel` gave."""

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
        """Yield an event that is set when this token is cancelled or `outer` is set."""
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
    """The text of a running turn, which is shown in a chat while it grows."""

    def add(self, piece: str) -> None:
        """Add a piece of the model's reply."""
        ...

    def restart(self) -> None:
        """Begin a reply, or the same one again: its text takes the place of all text before."""
        ...

    def progress(self, text: str) -> None:
        """Show the progress of a tool under the text."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopPorts:
    """The callbacks of one turn. All are optional, and none may block.

    The confirmation callback is not one of them: a chat's must be an `OnConfirm`, which approves no call.
    """

    journal: Journal | None = None
    """The storage of finished steps: steps of an earlier attempt are not repeated. It needs `keep`."""
    keep: Keep | None = None
    """Makes files durable, since the journal records them by their hash."""
    read_file: ReadFile | None = None
    """Returns the bytes of a file of the conversation; None: only files with their bytes are shown to the model."""
    earlier_results: EarlierResults | None = None
    """Returns the raw results of a tool that earlier turns of the conversation have kept."""
    expenses: Expenses | None = None
    """The budgets that the turn shares with others; None: there are none."""
    remembered: Remembered | None = None
    """The memories that the model reads."""
    withdrawable: Mapping[str, str] = field(default_factory=dict)
    """Name -> id of each open question of the person, which the model may take back. Empty: it has no tool for it."""
    on_text: OnText | None = None
    """Receives the model's text. With it the model streams."""
    live: LiveText | None = None
    """Shows the model's text in place of `on_text`, and the progress of tools. With it the model streams too."""
    events: RunTeller | None = None
    """Tells the events of the run; None: only to its trace, under a random id."""
    cancellation: CancellationToken | None = None
    """The token behind the context's `stopping`, which says why."""
    asking: RunTeller | None = None
    """Tells what people are asked; None: `events`. It is the outermost run, where an agent hands over to another."""
    at_end: Callable[[LoopOutcome], Awaitable[LoopOutcome]] | None = None
    """Called with the outcome before the end of the run is told. Returns the outcome that the run ends with."""
    interceptors: Interceptors = field(default_factory=Interceptors)
    """The interceptors of the model's tool calls."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Waits for some seconds before a retry of the model."""
    jitter: Callable[[], float] = random.random
    """Returns a number from 0 to 1: the share of a tenth that is added to such a wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOutcome(AgentResult):
    """The result of one turn. Its `content` is the answer, or the text beside the model's last calls."""

    reply: Reply | None = None
    """The message that a terminal tool returned. Its text is the `content`."""
    asked: tuple[Asked, ...] = ()
    """The actions that people are asked about, also those of an earlier attempt at this turn."""
    guarded: tuple[ModelMessage, ...] | None = field(default=None, repr=False)
    """The conversation that the run began with, as the guards let it through. None: no guard checked it."""
    noted: tuple[NotedFact, ...] = ()
    """The facts about the person that the tools noted."""
    withdrawn: tuple[str, ...] = ()
    """The ids of the open actions that the model takes back."""
    follow_ups: tuple[PlannedTurn, ...] = ()
    """The further turns that its tools planned."""
    raw_results: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)
    """The results that the model read in a shorter form, as the tools gave them: by tool, newest first."""
