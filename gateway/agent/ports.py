"""The ports of a turn: the callbacks through which the loop stores its steps and files and shows its progress."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from gateway.agent.cancellation import CancellationToken
from gateway.agent.expenses import Expenses
from gateway.agent.full_result import EarlierResults
from gateway.agent.interceptors import Interceptors
from gateway.agent.journal import Journal, Keep
from gateway.agent.model import OnText
from gateway.observe.teller import RunTeller

__all__ = ["LoopPorts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopPorts:
    """The callbacks of one turn. All are optional, and none may block.

    The confirmation callback is not one of them: a chat's must be an `OnConfirm`, which approves no call.
    """

    journal: Journal | None = None
    """The storage of finished steps: steps of an earlier attempt are not repeated. It needs `keep`."""
    keep: Keep | None = None
    """Makes files durable, since the journal records them by their hash."""
    earlier_results: EarlierResults | None = None
    """Returns the raw results of a tool that earlier turns of the conversation have kept."""
    expenses: Expenses | None = None
    """The budgets that the turn shares with others; None: there are none."""
    on_text: OnText | None = None
    """Receives the model's text. With it the model streams."""
    events: RunTeller | None = None
    """Tells the events of the run; None: only to its trace, under a random id."""
    cancellation: CancellationToken | None = None
    """The token behind the context's `stopping`, which says why."""
    asking: RunTeller | None = None
    """Tells what people are asked; None: `events`. It is the outermost run, where an agent hands over to another."""
    interceptors: Interceptors = field(default_factory=Interceptors)
    """The interceptors of the model's tool calls."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Waits for some seconds before a retry of the model."""
    jitter: Callable[[], float] = random.random
    """Returns a number from 0 to 1: the share of a tenth that is added to such a wait."""
