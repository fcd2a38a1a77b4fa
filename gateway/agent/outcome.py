"""The outcome of one turn of the loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from channels import Reply
from gateway.agent.confirming import Asked
from gateway.memory import NotedFact
from gateway.observe.results import AgentResult
from gateway.providers.base import ModelMessage
from gateway.tools.context import PlannedTurn

__all__ = ["LoopOutcome"]


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
    follow_ups: tuple[PlannedTurn, ...] = ()
    """The further turns that its tools planned."""
    raw_results: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)
    """The results that the model read in a shorter form, as the tools gave them: by tool, newest first."""
