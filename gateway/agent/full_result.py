"""The raw texts of results that the model has read in a shorter form, and the tool with which it reads them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import Final, TypeAlias

from gateway.providers.base import ToolSpec
from gateway.tools import Tool, ToolContext, ToolFailed

__all__ = ["FULL_RESULT", "EarlierResults", "RawResults", "full_result_tool", "with_full_result"]

FULL_RESULT: Final = "full_result"
"""The name of the tool. A tool of the author's with this name stays, and this one is not offered."""
MOST_OF_A_TOOL: Final = 5
"""The raw results of one tool that are kept, the newest."""
_PART: Final = 8000
"""The most characters that the model reads at once."""

EarlierResults: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
"""A callback that returns the raw results of a tool that earlier turns have kept, newest first."""


class RawResults:
    """The raw results of one run that its model read in a shorter form, by tool, newest first."""

    def __init__(self, earlier: EarlierResults | None) -> None:
        self._earlier = earlier
        self._by_tool: defaultdict[str, list[str]] = defaultdict(list)

    def add(self, tool_name: str, text: str) -> None:
        self._by_tool[tool_name] = [text, *self._by_tool[tool_name]][:MOST_OF_A_TOOL]

    def all(self) -> Mapping[str, Sequence[str]]:
        """Return the raw results of this run."""
        return dict(self._by_tool)

    async def of(self, tool_name: str) -> Sequence[str]:
        """Return the raw results of a tool, of this run and of earlier ones."""
        earlier = await self._earlier(tool_name) if self._earlier is not None else ()
        return [*self._by_tool.get(tool_name, ()), *earlier][:MOST_OF_A_TOOL]


def with_full_result(
    tools: Mapping[str, Tool], specs: Mapping[str, ToolSpec]
) -> tuple[Mapping[str, Tool], Mapping[str, ToolSpec]]:
    """Return these tools and specs with the built-in tool, unless the author has one of its name."""
    if FULL_RESULT in tools:
        return tools, specs
    tool = full_result_tool()
    return {**tools, FULL_RESULT: tool}, {**specs, FULL_RESULT: ToolSpec(**tool.schema())}


@cache
def full_result_tool() -> Tool:
    """Return the tool with which a model reads a result as it was before it was shortened. It asks no person."""
    return Tool(_full_result, name=FULL_RESULT, read_only=True)


async def _full_result(
    ctx: ToolContext, tool_name: str, number: int = 1, part: int = 1, send_as_file: bool = False
) -> str:
    """Read the full result of an earlier tool call, if you got it in a shortened form.

    Args:
        tool_name: The tool of that call.
        number: 1 for its newest shortened result, 2 for the one before.
        part: The part of the text to read, from 1.
        send_as_file: True to send the whole text to the person as a file.
    """
    found = await ctx.raw_results(tool_name) if ctx.raw_results is not None else ()
    if not 1 <= number <= len(found):
        raise ToolFailed(f"there are {len(found)} shortened results of {tool_name[:100]!r} of the last 24 hours")
    text = found[number - 1]
    parts = -(-len(text) // _PART)
    if not 1 <= part <= parts:
        raise ToolFailed(f"the result has {parts} parts")
    if send_as_file:
        ctx.emit_artifact(content=text.encode("utf-8", "replace"), filename="result.txt", mime_type="text/plain")
    piece = text[(part - 1) * _PART : part * _PART]
    return piece if parts == 1 else f"[part {part} of {parts}]\n{piece}"
