"""The built-in tool for a model to take back open questions of a person.

The tool asks no person and runs no action. The commit of the turn closes each question taken back.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from gateway.providers.base import ToolSpec
from gateway.tools import Tool, ToolContext, ToolFailed, ToolValidationError

WITHDRAW_QUESTION: Final = "withdraw_question"
_MOST_NAMED: Final = 5


def refuse_reserved(name: str) -> None:
    """Raise ToolValidationError for the name of the built-in tool."""
    if name == WITHDRAW_QUESTION:
        raise ToolValidationError(
            f"a tool cannot have the name {name!r}: the gateway gives the model a tool of this name while questions "
            "are open. Give yours another name"
        )


def with_withdrawing(
    tools: Mapping[str, Tool], specs: Mapping[str, ToolSpec]
) -> tuple[Mapping[str, Tool], Mapping[str, ToolSpec]]:
    """Return these tools and specs with the built-in tool."""
    tool = withdrawing_tool()
    return {**tools, tool.name: tool}, {**specs, tool.name: ToolSpec(**tool.schema())}


@cache
def withdrawing_tool() -> Tool:
    """Return the tool. The tool may be repeated, because the commit of the turn closes the named questions."""
    return Tool(_withdraw, name=WITHDRAW_QUESTION, read_only=True)


async def _withdraw(ctx: ToolContext, questions: list[str]) -> str:
    """Take back open questions, because the person no longer wants the actions.

    No action runs. To change a question, take it back, then call the action's tool again.

    Args:
        questions: The names of the questions in the note about what is waiting, for example ["q1"].
    """
    if ctx.withdraw is None:
        raise ToolFailed("no question of the person is open")
    unknown = [name for name in questions if not ctx.withdraw(name)]
    if unknown or not questions:
        named = ", ".join(repr(name[:20]) for name in unknown[:_MOST_NAMED]) or "none was named"
        raise ToolFailed(f"only open questions that this person asked can be taken back, by their names: {named}")
    return f"{', '.join(questions)}: taken back with the end of this turn, and nothing was done."
