"""The tools of a server. A tool asks unless the operator's policy allows it."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol

import mcp_types

from channels import Json
from gateway.mcp.exchange import INPUT, with_input
from gateway.mcp.text import Cleaned, bounded_schema, described, one_line
from gateway.tools import Confirm, Preview, Tool, ToolContext, ToolPolicy
from gateway.tools.pending_action import PendingAction, canonical_json
from gateway.tools.policy import Decision
from gateway.tools.schema_arguments import SchemaArguments, without_wrong_defaults
from gateway.tools.tool import SchemaTool

log = logging.getLogger("askfirst.mcp")

_LARGEST_SCHEMA = 32_000
"""The most bytes of a schema: the model reads it with every request."""
_LARGEST_SCHEMAS = 256 * 1024
"""The most bytes of all schemas of a server together."""
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")


class ToolServer(Protocol):
    """The server of a tool."""

    label: str
    prefix: str
    policy: ToolPolicy | None
    timeout_seconds: float
    identity: str
    clean: Cleaned

    async def call(self, tool: MCPTool, arguments: Mapping[str, Json], ctx: ToolContext) -> str | None: ...

    async def lists(self, tool: MCPTool, within_seconds: float | None) -> bool:
        """Return False if the server lists the tool no more, or with another definition."""


class MCPTool(SchemaTool):
    """A tool of an MCP server. Asks, unless the policy of the server's operator allows the tool."""

    def __init__(self, listed: mcp_types.Tool, server: ToolServer, *, takes_input: bool) -> None:
        """Raises ToolValidationError for an unusable definition."""
        name = f"{server.prefix}{_NO_NAME.sub('_', listed.name)}"
        schema = bounded_schema(listed.input_schema)
        fitting = _with_fitting_defaults(name, schema)
        self.remote_name = listed.name
        self._server = server

        async def call(ctx: ToolContext, **arguments: Any) -> str | None:
            return await server.call(self, arguments, ctx)

        policy = server.policy
        allowed = policy is not None and policy.decide(name, {})[0] == "allow"
        super().__init__(
            call,
            with_input(fitting) if takes_input else fitting,
            name=name,
            description=described(server.label, server.clean(listed.description or "")),
            confirm=False if allowed else Confirm(after="resume"),
            version=_version(listed, server.identity),
            timeout_seconds=server.timeout_seconds + 5,  # the server's own limit comes first
            screen_output=True,
        )
        self.origin = f"of {server.label}{_hints(listed.annotations)}"

    def under(self, policy: ToolPolicy | None) -> ToolPolicy | None:
        """Return the strictest of the policies for each call: the agent's, the server's, and `_ANSWERS_ASK`."""
        own = self._server.policy
        if own is None:
            return policy  # the tool asks in any case
        return Strictest(*([policy] if policy is not None else []), own, _ANSWERS_ASK)

    def compares(self, action: PendingAction) -> bool:
        """Return True: the definition is requested from the server again right before the launch."""
        return True

    async def done_text(self, args: Mapping[str, Json], result: Any, language: str) -> str | None:
        """Return an empty text: a stranger's words go to the model, and the model answers the person."""
        return ""

    async def preview(
        self, args: Mapping[str, Json], ctx: ToolContext, *, timeout_seconds: float | None = None
    ) -> Preview:
        """Return the preview of a call. Raises ValueError when the server has changed the tool since the question."""
        if ctx.action is not None and not await self._server.lists(self, timeout_seconds):
            raise ValueError(f"{self._server.label} has changed this tool since it was asked")
        return await super().preview(args, ctx, timeout_seconds=timeout_seconds)


class Strictest(ToolPolicy):
    """Several policies: the strictest decides."""

    def __init__(self, *policies: ToolPolicy) -> None:
        super().__init__()
        self._policies = policies

    def rules_for(self, tool_name: str) -> list[dict[str, str]]:
        """Return the rules of `deny_when` for this tool."""
        return [rule for policy in self._policies for rule in policy.rules_for(tool_name)]

    def decide(self, tool_name: str, args: Mapping[str, Json]) -> tuple[Decision, str]:
        """Return the decision for this call, and the deciding rule."""
        order: tuple[Literal["deny", "review", "allow"], ...] = ("deny", "review", "allow")
        return min((policy.decide(tool_name, args) for policy in self._policies), key=lambda each: order.index(each[0]))


class _AnswersAsk(ToolPolicy):
    """A policy for answers given by a model to a server in a person's name: the person confirms these answers."""

    def decide(self, tool_name: str, args: Mapping[str, Json]) -> tuple[Decision, str]:
        """Return the decision for this call, and the deciding rule."""
        return ("review", "it has answers in the person's name") if INPUT in args else ("allow", "it has no answers")


_ANSWERS_ASK = _AnswersAsk()


def made(listed: Iterable[mcp_types.Tool], server: ToolServer, *, takes_input: bool) -> tuple[Tool, ...]:
    """Return the tools of a list. An unusable definition is left out, with the reason in the log."""
    tools: dict[str, Tool] = {}
    size = 0
    for each in listed:
        name = one_line(each.name, 80)
        try:
            own = len(canonical_json(each.input_schema))
            if own > _LARGEST_SCHEMA:
                raise ValueError(f"its schema has more than {_LARGEST_SCHEMA} bytes")
            if size + own > _LARGEST_SCHEMAS:
                raise ValueError(f"with it the schemas of this server have more than {_LARGEST_SCHEMAS} bytes")
            tool = MCPTool(each, server, takes_input=takes_input)
        except Exception as error:  # noqa: BLE001 - a server may send anything
            log.error("the tool %r of %s is left out: %s", name, server.label, one_line(str(error), 300))
            continue
        size += own
        if tools.setdefault(tool.name, tool) is not tool:
            log.error("the tool %r of %s is left out: another one of it has the name %s", name, server.label, tool.name)
    return tuple(tools.values())


def _with_fitting_defaults(name: str, schema: Mapping[str, Json]) -> Mapping[str, Json]:
    bare = without_wrong_defaults(schema, [key for key, each in _properties(schema).items() if "default" in each])
    wrong = SchemaArguments(name, bare, hidden=frozenset()).unfit(
        {key: each["default"] for key, each in _properties(schema).items() if "default" in each}
    )
    return without_wrong_defaults(schema, wrong)


def _properties(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    found = schema.get("properties")
    return {k: v for k, v in found.items() if isinstance(v, Mapping)} if isinstance(found, Mapping) else {}


def _version(listed: mcp_types.Tool, identity: str) -> str:
    told = {"server": identity, "name": listed.name, "said": listed.description, "schema": listed.input_schema}
    return hashlib.sha256(canonical_json(told)).hexdigest()


def _hints(annotations: mcp_types.ToolAnnotations | None) -> str:
    """Return the server's hints about the effects of a tool. Hints are a stranger's words: no decision follows them."""
    if annotations is None:
        return ", which says nothing about its effects"
    hints = {
        "read-only": annotations.read_only_hint,
        "destructive": annotations.destructive_hint,
        "idempotent": annotations.idempotent_hint,
    }
    said = [name if value else f"not {name}" for name, value in hints.items() if value is not None]
    return f", which says: {', '.join(said)}" if said else ", which says nothing about its effects"
