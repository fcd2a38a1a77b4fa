"""LoggingObserver: one JSON object an event, in the log."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from channels import Address, Person
from gateway.observe.events import ObservedEvent
from gateway.observe.observer import AgentObserver
from gateway.observe.results import AgentResult
from gateway.providers.base import ModelMessage, Response, ToolCall, Usage
from gateway.tools.pending_action import PendingAction

log = logging.getLogger("askfirst.observe")

_NAMES: Final = frozenset({
    "action", "action_id", "actions", "batch_id", "budget", "call", "call_id", "cause", "channel",
    "conversation", "decision", "detector_name", "event_id", "event_ids", "failed_provider", "guardrail_name",
    "holder", "how", "intent", "interceptor", "kind", "message_id", "model", "new_model", "next_provider",
    "old_model", "parent_run_id", "part_id", "parts", "permission", "person", "provider", "reason",
    "requested_model", "run_id", "session_id", "sha256", "share", "stage", "state", "status", "stop_reason",
    "tool", "tool_name", "value", "what", "why",
})  # fmt: skip
"""The fields with names, ids and fixed words. Other texts may be a person's, so an unknown field is redacted."""
_TEXTS: Final = frozenset({("cancelled", "reason"), ("webhook_rejected", "why")})
"""The exceptions: fields of single events with a name from `_NAMES` and a free text."""
_CLASSES: Final = frozenset({("poll_failed", "error")})
"""The fields of single events with the name of an error's class."""
_RENAMED: Final[Mapping[str, str]] = {"tool_name": "tool", "tool_args": "arguments"}


def _utc_now() -> datetime:
    return datetime.now(UTC)


class LoggingObserver(AgentObserver):
    """An observer that writes each event as a line of JSON to the logger ``askfirst.observe``, at INFO.

    Each line has ``event``, ``timestamp`` (ISO 8601, UTC) and the numbers, names and ids of the event, among them
    ``run_id``, ``call_id``, ``tool``, ``model``, ``tokens`` and ``duration_ms``. The length of a text replaces the text
    (``result_chars``), a count replaces a list or mapping (``messages``), and the name of the class replaces an error.
    With `content`, the texts of people, the model, tools and errors are written too.
    """

    def __init__(self, *, content: bool = False, now: Callable[[], datetime] = _utc_now) -> None:
        self._content, self._now = content, now

    def on_event(self, event: ObservedEvent) -> None:
        """Write the line of an event."""
        if log.isEnabledFor(logging.INFO):
            line: dict[str, Any] = {"event": event.name, "timestamp": self._now().astimezone(UTC).isoformat()}
            for key, value in event.values().items():
                said = self._said(event.name, key, value)
                line |= {name: each for name, each in said.items() if name not in line}
            log.info("%s", json.dumps(line, default=_content_of))

    def _said(self, event: str, key: str, value: Any) -> dict[str, Any]:
        """Return the entries of one field."""
        name = _RENAMED.get(key, key)
        if value is None or isinstance(value, (bool, int, float)):
            return {name: value}
        if (key in _NAMES and (event, key) not in _TEXTS) or (event, key) in _CLASSES:
            if isinstance(value, str):
                return {name: value}
            if isinstance(value, Sequence):
                return {name: [str(each) for each in value]}
        if isinstance(value, (Address, Person)):
            return {name: str(value)}
        if isinstance(value, Usage):
            return _usage(value)
        if isinstance(value, PendingAction):
            return self._action(value)
        if isinstance(value, Response):
            return {"model": value.model, "finish": value.finish, **self._reply(value.content, value.tool_calls)}
        if isinstance(value, AgentResult):
            return self._result(value)
        if isinstance(value, BaseException):
            text = {"error_text": str(value)} if self._content else {}
            return {name: type(value).__name__, **text}
        return self._text(name, value)

    def _text(self, name: str, value: Any) -> dict[str, Any]:
        """Return the entry of a text, list or mapping: the value with `content`, else the length."""
        if self._content:
            return {name: value}
        if isinstance(value, str):
            return {f"{name}_chars": len(value)}
        return {name: len(value)} if isinstance(value, (Mapping, Sequence)) else {name: type(value).__name__}

    def _reply(self, content: str, calls: Sequence[ToolCall]) -> dict[str, Any]:
        return {**self._text("response", content), **self._text("tool_calls", calls)}

    def _result(self, result: AgentResult) -> dict[str, Any]:
        counts = {
            "stop_reason": result.stop_reason,
            "iterations": result.iterations,
            "artifacts": len(result.artifacts),
            "pending": len(result.pending),
        }
        error = self._text("error", result.error) if result.error else {}
        return {**counts, **self._reply(result.content, result.tool_calls), **_usage(result.usage), **error}

    def _action(self, action: PendingAction) -> dict[str, Any]:
        known = {
            "action_id": action.pending_action_id,
            "tool": action.kind,
            "conversation": action.conversation,
            "state": action.state,
        }
        return {**known, **self._text("arguments", action.args), **self._text("preview", action.preview)}


def _usage(usage: Usage) -> dict[str, Any]:
    """Return the numbers of a usage. `tokens` is the total."""
    parts: dict[str, Any] = {name: value for name in _COUNTS if (value := getattr(usage, name, None)) is not None}
    if usage.cost_usd is None and usage.total_tokens:
        parts |= {"cost": "unknown", "known_usd": usage.known_usd, "unpriced_calls": usage.unpriced_calls}
    return {"tokens": usage.total_tokens, **parts}


_COUNTS: Final = ("prompt_tokens", "completion_tokens", "cached_prompt_tokens", "cache_write_tokens", "cost_usd")


def _content_of(value: object) -> Any:
    """Return a JSON value for an object unknown to JSON. Called with `content` only."""
    if isinstance(value, ModelMessage):
        return {"role": value.role, "content": value.content, "tool_calls": value.tool_calls}
    if isinstance(value, ToolCall):
        return {"call_id": value.call_id, "tool": value.name, "arguments": value.args}
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, Sequence) else str(value)
