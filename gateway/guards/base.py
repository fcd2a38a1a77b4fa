"""The protocol of a guard, and its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias, get_args, runtime_checkable

Stage: TypeAlias = Literal["input", "output", "tool_args", "tool_results"]
Action: TypeAlias = Literal["pass", "warn", "rewrite", "block"]

STAGES: Final[tuple[Stage, ...]] = get_args(Stage)
_ACTIONS: Final[tuple[Action, ...]] = get_args(Action)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardrailContext:
    """The place of a checked text."""

    stage: Stage
    person: str
    conversation: str
    language: str
    tool_name: str = ""
    """The tool of the stages ``tool_args`` and ``tool_results``."""


class GuardrailVerdict:
    """The verdict of a guard on a text: ``pass``, ``warn``, ``rewrite`` (to `text`) or ``block``.

    `detail` is for the log and the trace: never the text itself. Raises ValueError for another action, and for a
    rewrite without a text.
    """

    __slots__ = ("action", "detail", "text")

    def __init__(self, action: Action = "pass", *, text: str | None = None, detail: str = "") -> None:
        if action not in _ACTIONS:
            raise ValueError(f"the action of a GuardrailVerdict is {', '.join(_ACTIONS)}, not {action!r}")
        if (action == "rewrite") != isinstance(text, str):
            raise ValueError("a GuardrailVerdict has a text exactly when its action is 'rewrite'")
        self.action: Action = action
        self.text, self.detail = text, detail

    def __repr__(self) -> str:
        return f"<GuardrailVerdict {self.action}: {self.detail}>"


@runtime_checkable
class Guardrail(Protocol):
    """A protocol for a guard. A check that raises or hangs counts as a block.

    The text of ``tool_args`` is the JSON of the arguments. A rewrite of these must be JSON of an object too.
    """

    @property
    def name(self) -> str: ...

    @property
    def stages(self) -> Sequence[str]: ...

    async def check(self, text: str, context: GuardrailContext) -> GuardrailVerdict:
        """Return the verdict on a text."""
        ...


def checked_stages(owner: str, stages: Sequence[str], action: str) -> tuple[str, ...]:
    """Return the stages of a ready-made guard. Raises ValueError for an unknown stage or action."""
    wrong = [each for each in stages if each not in STAGES]
    if isinstance(stages, str) or wrong or not stages:
        raise ValueError(f"{owner}: stages is a list of {', '.join(STAGES)}, not {stages!r}")
    if action not in _ACTIONS[1:]:
        raise ValueError(f"{owner}: action is {', '.join(_ACTIONS[1:])}, not {action!r}")
    return tuple(stages)
