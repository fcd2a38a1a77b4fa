"""An event of each class, with texts known to the test."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, get_args, get_origin, get_type_hints

from channels import Address, Person
from gateway.observe import AgentResult
from gateway.observe.events import ObservedEvent
from gateway.providers.base import ModelMessage, Response, ToolCall, Usage
from gateway.tools.pending_action import PendingAction

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TEXT = "my card is 4111"
"""The text of a person, in every place for a text."""
ARGS = {"card": TEXT}
CALL = ToolCall(call_id="c1", name="pay", args=ARGS)
USAGE = Usage(prompt_tokens=100, completion_tokens=50)
RESPONSE = Response(content=TEXT, tool_calls=(CALL,), usage=USAGE, model="gpt-x")
RESULT = AgentResult(content=TEXT, stop_reason="answered", usage=USAGE, iterations=2, tool_calls=(CALL,), error=TEXT)
ACTION = PendingAction(
    pending_action_id="a1", kind="pay", args=ARGS, preview=TEXT, requester="web:-:ana", conversation="web:-:ana",
    requested_at=NOW, requester_name=TEXT, remark=TEXT, code="1234",
)  # fmt: skip
PERSON = Person(channel="web", account="-", user_id="ana", name=TEXT)
ADDRESS = Address(channel="web", account="-", place="ana")

_BY_TYPE: Mapping[Any, Any] = {
    int: 7, float: 12.5, bool: True, BaseException: ValueError(TEXT), Usage: USAGE, Response: RESPONSE,
    AgentResult: RESULT, PendingAction: ACTION, Address: ADDRESS, Person: PERSON,
}  # fmt: skip


def sample(kind: type[ObservedEvent], /, **fields: Any) -> Any:
    """Return an event with these fields. The others have a value of their type; a text holds `TEXT`."""
    hints = get_type_hints(kind)
    return kind(**{name: fields[name] if name in fields else _value(name, hints[name]) for name in _fields(kind)})


def texts(kind: type[ObservedEvent]) -> dict[str, str | list[str]]:
    """Return the text fields of a class, single or several, each with an id as the value."""
    hints = get_type_hints(kind)
    kinds = {name: _plain(hints[name]) for name in _fields(kind)}
    ids: dict[Any, str | list[str]] = {str: "an id", Sequence[str]: ["an id"]}
    return {name: ids[kinds[name]] for name in kinds if kinds[name] in ids}


def _fields(kind: type[ObservedEvent]) -> list[str]:
    return [each.name for each in dataclasses.fields(kind)]  # type: ignore[arg-type]


def _plain(hint: Any) -> Any:
    if get_origin(hint) in (typing.Union, types.UnionType):
        return next(each for each in get_args(hint) if each is not type(None))
    return hint


def _value(name: str, hint: Any) -> Any:
    hint = _plain(hint)
    if hint is str:
        return f"{name}: {TEXT}"
    if get_origin(hint) is Literal:
        return get_args(hint)[0]
    if hint == Sequence[str]:
        return [f"{name}: {TEXT}"]
    if hint == Sequence[ModelMessage]:
        return [ModelMessage(role="user", content=TEXT), RESPONSE.message]
    return ARGS if issubclass(get_origin(hint) or hint, Mapping) else _BY_TYPE[hint]
