"""A registry of tools by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, overload

from gateway.tools.errors import Problem, ToolValidationError
from gateway.tools.tool import Tool

__all__ = ["ToolRegistry"]


class ToolRegistry:
    """A set of tools with unique names."""

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        """Register these tools. Plain functions become tools. Raises ToolValidationError as `register`."""
        self._tools: dict[str, Tool] = {}
        for each in tools:
            self.register(each if isinstance(each, Tool) else Tool(each))

    @overload
    def tool(self, function: Callable[..., Any], /) -> Tool: ...

    @overload
    def tool(self, **options: Any) -> Callable[[Callable[..., Any]], Tool]: ...

    def tool(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Make a tool of a function and register it: the decorator `tool` of this registry."""
        if function is None:
            return lambda function: self.register(Tool(function, **options))
        return self.register(Tool(function, **options))

    def register(self, tool: Tool) -> Tool:
        """Add a tool and return it. Raises ToolValidationError when another tool has its name."""
        if self._tools.setdefault(tool.name, tool) is not tool:
            raise ToolValidationError(tool.name, Problem("", "another tool has this name", "Give one of them name="))
        return tool

    def get(self, name: str) -> Tool | None:
        """Return the tool of this name, or None."""
        return self._tools.get(name)

    def all(self) -> list[Tool]:
        """Return all tools, in the order of their registration."""
        return list(self._tools.values())
