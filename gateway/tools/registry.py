"""Sets of tools: a registry, sources listing tools later, and the permission of each tool."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Protocol, overload, runtime_checkable

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
        """Add a tool and return it. Raises ToolValidationError when another tool has the same name."""
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
    """A source of tools that may change while the bot runs. A source stands among the tools of an Agent."""

    @property
    def label(self) -> str:
        """The name of the source in logs and lists, without a secret."""

    def listed(self) -> Sequence[Tool]:
        """Return the tools of the last list: the same object until the list changes."""

    async def refresh(self) -> None:
        """Bring the list up to date. Called before each turn.

        An unreachable source keeps the last list. Never raises, and never waits long.
        """

    async def close(self) -> None:
        """Close everything that the source has open in this event loop. A later use opens it again."""


class Governed(NamedTuple):
    """A tool with the policy for its calls."""

    tool: Tool
    policy: ToolPolicy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """The permission of a tool."""

    tool: str
    how: Literal["runs", "asks", "never"]
    why: str
    unasked: bool = False
    """True if the tool may have effects, and no option allows a run without a yes."""


def permission(tool: Tool, policy: ToolPolicy | None) -> Permission:
    """Return the permission of a tool under this policy. The tests follow the order of judging a call."""
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
    """Return the permission of each tool. Tools that run effects without a question come first."""
    found = [permission(tool, policy) for tool, policy in tools]
    return sorted(found, key=lambda each: (not each.unasked, ["runs", "asks", "never"].index(each.how), each.tool))


def unasked(tools: Iterable[Governed]) -> str | None:
    """Return a warning with the names of tools running effects without a question, and the remedy; None if none."""
    names = [tool.name for tool, policy in tools if permission(tool, policy).unasked]
    if not names:
        return None
    return (
        f"{', '.join(names)}: runs without asking anybody. Write @tool(confirm=...), or say that it is harmless: "
        "read_only=True, or idempotent=True where a second call changes nothing more"
    )


_CHOICES_IN_WORDS: Final = re.compile(
    r"\b(one of|either)\b|(?P<quote>['\"`])[\w -]+(?P=quote)(,| or|,? or|/|\|) ?(?P=quote)", re.IGNORECASE
)


def unclear(tools: Iterable[Governed]) -> Iterator[str]:
    """Yield the gaps in each of the bot's own tools, left for the model to guess, with the remedy.

    A parameter without a type and a tool without a description are errors of the definition already.
    """
    for tool in (each.tool for each in tools if not each.tool.origin):
        verb = tool.confirm.unread_verb if tool.confirm is not None else None
        if verb is not None:
            yield (
                f"{tool.name}: its verb {verb!r} has no words. The question takes a plain yes or no, the button and "
                "the code"
            )
        named = tool.parameters.get("properties") or {}
        fields = {name: field for name, field in named.items() if isinstance(field, dict)}
        if untold := [name for name, field in fields.items() if not _is_told(tool, name, field)]:
            yield (
                f"{tool.name}: nobody describes {', '.join(untold)}. Write an Args: section into the docstring, or "
                'Annotated[..., Field(description="...")]'
            )
        if in_words := [name for name, field in fields.items() if _has_choices_in_words(field)]:
            yield (
                f"{tool.name}: the choices of {', '.join(in_words)} are words only, and any text is taken. Annotate "
                "Literal[...] or an Enum"
            )


def _is_told(tool: Tool, name: str, field: dict[str, Any]) -> bool:
    """Return True for a parameter with a description, with few values, or named in the tool's description."""
    if field.get("description", "") not in ("", f"Parameter '{name}'") or not field.keys().isdisjoint({"enum", "$ref"}):
        return True
    words = re.findall("[a-z]{3,}", name.lower().replace("_", " "))
    return any(word in tool.description.lower() for word in words)


def _has_choices_in_words(field: dict[str, Any]) -> bool:
    is_open = field.get("type") == "string" and field.keys().isdisjoint({"enum", "const", "pattern", "format"})
    return is_open and _CHOICES_IN_WORDS.search(field.get("description", "")) is not None


def _only_there(tool: Tool) -> str:
    return f"; only on {', '.join(sorted(tool.channels))}" if tool.channels is not None else ""


def _never_when(tool: Tool, policy: ToolPolicy | None) -> str:
    rules = policy.rules_for(tool.name) if policy is not None else []
    return "".join(f"; never when {rule['arg']} matches {rule['pattern']!r}" for rule in rules)
