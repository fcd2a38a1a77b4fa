"""The port through which the loop has a person asked. What asks, and how an answer comes back, it does not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from channels import Json
from gateway.providers.base import ToolCall
from gateway.tools import PendingConfirmation, Preview, Tool
from gateway.tools.pending_action import PendingAction

__all__ = ["Ask", "Asked", "OnConfirm", "Verdict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A call that needs a person's yes."""

    call: ToolCall
    tool: Tool
    args: Mapping[str, Json]
    """Checked, coerced and complete: what would run."""
    preview: Preview
    reason: str
    """Why it needs a yes: the tool's own ``confirm=``, or the rule of the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The call was not made; a person is being asked. The turn ends with it."""

    confirmation: PendingConfirmation
    """What the model is told."""
    action: PendingAction
    """What is asked: kept with the turn, and given back with its outcome, also after a take-over."""


Verdict: TypeAlias = Asked | str
"""A text refuses the call, in words for the model. There is no yes among them: a confirmed action runs from its own
record, never from within a turn."""


class OnConfirm(Protocol):
    async def __call__(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        """One verdict for each ask, in order: all those of one reply of the model, so that they are asked together."""
        ...
