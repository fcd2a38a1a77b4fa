"""The ports of a turn: the callbacks through which the loop stores its steps and files and shows its progress."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from gateway.agent.cancellation import CancellationToken
from gateway.agent.expenses import Expenses
from gateway.agent.files import ReadFile
from gateway.agent.full_result import EarlierResults
from gateway.agent.interceptors import Interceptors
from gateway.agent.journal import Journal, Keep
from gateway.agent.model import OnText
from gateway.agent.outcome import LoopOutcome
from gateway.memory import Remembered
from gateway.observe.teller import RunTeller

__all__ = ["LiveText", "LoopPorts"]


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
