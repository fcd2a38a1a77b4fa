"""The decorator that makes a tool of a function."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, overload

from gateway.tools.confirm import AskFunction, Confirm
from gateway.tools.tool import Tool

__all__ = ["tool"]


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    confirm: bool | str | AskFunction | Confirm = False,
    read_only: bool = False,
    idempotent: bool = False,
    version: str = "",
    terminal: bool = False,
    streaming: bool = False,
    timeout_seconds: float | None = None,
    lock: str | None = None,
    cacheable: bool = False,
    cache_ttl_seconds: float = 300.0,
    screen_output: bool = False,
    completion_check: bool = False,
    param_metadata: Mapping[str, Mapping[str, Any]] | None = None,
    injected_kwargs: Mapping[str, Any] | None = None,
    config_injector: Callable[[], Mapping[str, Any] | None] | None = None,
    channels: Collection[str] | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Make a tool of a function: ``@tool`` or ``@tool(confirm=True, ...)``, with the options of Tool.

    Raises ToolValidationError for an inconsistent definition, and WrongOption for a wrong name or type of an option.
    """
    if function is None:
        return lambda function: Tool(function, **options)
    return Tool(function, **options)
