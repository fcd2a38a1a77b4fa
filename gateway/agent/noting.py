"""The tool with which a model notes a fact about the person of a chat."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final

from gateway.memory import NotedFact
from gateway.tools import Tool, ToolContext, ToolError, ToolFailed

__all__ = ["REMEMBER", "note_into", "remember_tool", "with_remember"]

REMEMBER: Final = "remember"
"""The name of the tool. A tool of the author's with this name stays, and this one is not offered."""
_MOST_NOTED: Final = 5


@cache
def remember_tool() -> Tool:
    """Return the tool with which a model notes a fact about the person. It asks no person."""
    return Tool(_remember, name=REMEMBER, idempotent=True)


async def _remember(ctx: ToolContext, content: str, category: str = "general", persistent: bool = False) -> str:
    """Note a fact about the person that will be of use in later conversations. Note no secrets and no passwords.

    Args:
        content: The fact, in one sentence.
        category: A word for its kind, such as preference, contact or project.
        persistent: True for a fact that stays true, False for one of these days.
    """
    if not content.strip():
        raise ToolFailed("there is no fact to note")
    if ctx.note is None:
        raise ToolFailed("facts about a person are noted in their private chat only")
    ctx.note(content, category, persistent)
    return "noted"


def with_remember(tools: Iterable[Any]) -> list[Any]:
    """Return an agent's tools and ``remember``, unless it has another tool of this name."""
    given = list(tools)
    names = {getattr(each, "name", getattr(each, "__name__", "")) for each in given}
    return given if REMEMBER in names else [*given, remember_tool()]


def note_into(noted: list[NotedFact]) -> Callable[[str, str, bool], None]:
    """Return the function behind ``remember`` in one call of a tool."""

    def note(content: str, category: str, persistent: bool) -> None:
        if len(noted) >= _MOST_NOTED:
            raise ToolError(f"a call notes at most {_MOST_NOTED} facts")
        noted.append(NotedFact(content=content, category=category, persistent=persistent))

    return note
