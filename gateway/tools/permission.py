"""Whether a call of a tool runs at once, asks a person first, or never runs, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gateway.tools.policy import ToolPolicy
from gateway.tools.tool import Tool

__all__ = ["Permission", "permission", "permissions", "unasked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """What becomes of the calls of one tool."""

    tool: str
    how: Literal["runs", "asks", "never"]
    why: str
    unasked: bool = False
    """It may change something, and nothing says that it may do so without a yes."""


def permission(tool: Tool, policy: ToolPolicy | None) -> Permission:
    """Return what becomes of a tool's calls under this policy, in the order in which a call is judged."""
    decision, listed = policy.decide(tool.name, {}) if policy is not None else (None, "")
    more = _only_there(tool) + _never_when(tool, policy)
    if decision == "deny":
        return Permission(tool=tool.name, how="never", why=f"{listed}{more}")
    if tool.confirm is not None:
        return Permission(tool=tool.name, how="asks", why=f"confirm={more}")
    if decision == "review":
        return Permission(tool=tool.name, how="asks", why=f"{listed} of its policy{more}")
    if decision == "allow":
        return Permission(tool=tool.name, how="runs", why=f"{listed}{more}")
    if tool.read_only or tool.idempotent:
        said = "read_only" if tool.read_only else "idempotent"
        return Permission(tool=tool.name, how="runs", why=f"{said}{more}")
    why = f"it has no confirm=, and is neither read_only nor idempotent{more}"
    return Permission(tool=tool.name, how="runs", why=why, unasked=True)


def permissions(tools: Iterable[Tool], policy: ToolPolicy | None) -> list[Permission]:
    """Return what becomes of the calls of each tool, those first that run and nobody is asked about."""
    found = [permission(tool, policy) for tool in tools]
    return sorted(found, key=lambda each: (not each.unasked, ["runs", "asks", "never"].index(each.how), each.tool))


def unasked(tools: Iterable[Tool], policy: ToolPolicy | None) -> str | None:
    """Return a warning that names the tools which change something and never ask, with the mend."""
    names = [tool.name for tool in tools if permission(tool, policy).unasked]
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
