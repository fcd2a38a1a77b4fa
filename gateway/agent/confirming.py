"""The port through which the loop asks a person. The loop does not know how the question or the answer travels."""

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
    """A call that needs a confirmation."""

    call: ToolCall
    tool: Tool
    args: Mapping[str, Json]
    """The validated, coerced and complete arguments that the call would run with."""
    preview: Preview
    reason: str
    """The reason why it needs a confirmation: the tool's ``confirm=``, or the rule of the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The verdict that a person is being asked. The call was not made, and the turn ends with it."""

    confirmation: PendingConfirmation
    """The result of the call for the model."""
    action: PendingAction
    """The action, stored with the turn and returned with its outcome, also after another process took the turn over."""


Verdict: TypeAlias = Asked | str
"""The verdict on a call: a person is asked, or a text for the model refuses the call.

No verdict approves a call: a confirmed action runs from its own record, never within a turn.
"""


class OnConfirm(Protocol):
    async def __call__(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        """Return one verdict for each ask, in order. All asks of one reply come together, for one question."""
        ...
