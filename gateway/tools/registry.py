"""Sets of tools: a registry, sources that list their tools later, and what each tool may do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, overload, runtime_checkable

from gateway.tools.errors import Problem, ToolValidationError
from gateway.tools.policy import ToolPolicy
from gateway.tools.tool import Tool


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


@runtime_checkable
class ToolSource(Protocol):
    """A source of tools that may change while the bot runs. It stands among the tools of an Agent."""

    @property
    def label(self) -> str:
        """The name of the source in logs and lists, without a secret."""

    def listed(self) -> Sequence[Tool]:
        """Return the tools of the last list. It is the same object until the list changes."""

    async def refresh(self) -> None:
        """Bring the list up to date. Called before each turn.

        A source that cannot be reached keeps its last list. Never raises, and never waits long.
        """

    async def close(self) -> None:
        """Close what the source has open in this event loop. A later use opens it again."""


class Governed(NamedTuple):
    """A tool with the policy that decides on its calls."""

    tool: Tool
    policy: ToolPolicy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """The permission of one tool."""

    tool: str
    how: Literal["runs", "asks", "never"]
    why: str
    unasked: bool = False
    """True if the tool may have effects, and no option allows it to run without a yes."""


def permission(tool: Tool, policy: ToolPolicy | None) -> Permission:
    """Return the permission of a tool under this policy. The tests follow the order in which a call is judged."""
    decision, listed = policy.decide(tool.name, {}) if policy is not None else (None, "")
    more = _only_there(tool) + _never_when(tool, policy) + (f"; {tool.origin}" if tool.origin else "")
    if decision == "deny":
        return Permission(tool=tool.name, how="never", why=f"{listed}{more}")
    if tool.confirm is not None:
        asks = "no policy= of its server allows it" if tool.origin else "confirm="
        return Permission(tool=tool.name, how="asks", why=f"{asks}{more}")
    if decision == "review":
        return Permission(tool=tool.name, how="asks", why=f"{listed} of its policy{more}")
    if decision == "allow":
        return Permission(tool=tool.name, how="runs", why=f"{listed}{more}")
    if tool.read_only or tool.idempotent:
        said = "read_only" if tool.read_only else "idempotent"
        return Permission(tool=tool.name, how="runs", why=f"{said}{more}")
    why = f"it has no confirm=, and is neither read_only nor idempotent{more}"
    return Permission(tool=tool.name, how="runs", why=why, unasked=True)


def permissions(tools: Iterable[Governed]) -> list[Permission]:
    """Return the permission of each tool. Tools with effects that run without a question come first."""
    found = [permission(tool, policy) for tool, policy in tools]
    return sorted(found, key=lambda each: (not each.unasked, ["runs", "asks", "never"].index(each.how), each.tool))


def unasked(tools: Iterable[Governed]) -> str | None:
    """Return a warning that names the tools with effects that never ask, and the remedy; None if there are none."""
    names = [tool.name for tool, policy in tools if permission(tool, policy).unasked]
    if not names:
        return None
    return (
        f"{', '.join(names)}: runs without asking anybody. Write @tool(confirm=...), or say that it is harmless: "
        "read_only=True, or idempotent=True where a second call changes nothing more"
    )


def _only_there(tool: Tool) -> str:
    return f"; only on {', '.join(sorted(tool.channels))}" if tool.channels is not None else ""


def _never_when(tool: Tool, policy: ToolPolicy | None) -> str:
    rules = policy.rules_for(tool.name) if policy is not None else []
    return "".join(f"; never when {rule['arg']} matches {rule['pattern']!r}" for rule in rules)
