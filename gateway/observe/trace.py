"""The trace of a run: the steps in order, as text, as JSON and as OpenTelemetry spans.

A trace is for operators. The arguments and results of tools and the texts of the model are never written to a log, and
only `to_otel_spans(content=True)` passes these to a collector.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Self

import orjson

from channels import Json
from gateway.observe import genai
from gateway.tools.pending_action import json_text

FORM: Final = 1
"""The version of the JSON form of a trace. A reader of the form n ignores unknown fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStep:
    """A step of a run.

    Steps of tool calls have a `call_id`. Only `error_type` is certain to contain no text of people.
    """

    type: str
    started_at: datetime
    duration_ms: float | None = 0.0
    """0: the step is a moment. None: the duration is unknown."""
    summary: str = ""
    error: str | None = None
    reasoning: str | None = None
    """The model's text beside the call."""
    tool_name: str | None = None
    tool_args: Mapping[str, Json] | None = None
    tool_result: str | None = None
    model: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    """US dollars; None: the price is unknown."""
    call_id: str | None = None
    from_checkpoint: bool = False
    """An earlier attempt at the turn made this step, so the duration is unknown."""
    provider: str | None = None
    error_type: str | None = None
    """The class of the error, for statistics."""
    requested_model: str | None = None
    """The requested model, if the answering model (`model`) has another name."""
    left_out: int = 0
    """The number of steps replaced by this step. For the type ``left_out``."""

    def to_dict(self) -> dict[str, Json]:
        """Return the step as JSON, without unset fields."""
        value: dict[str, Json] = {
            "type": self.type,
            "started_at": self.started_at.astimezone(UTC).isoformat(),
            "duration_ms": self.duration_ms,
        }
        for name, unset in _OPTIONAL:
            if (found := getattr(self, name)) != unset:
                value[name] = dict(found) if name == "tool_args" else found
        return value

    @classmethod
    def from_dict(cls, value: Mapping[str, Json]) -> Self:
        """Return the step from the JSON of `to_dict`. Raises ValueError."""
        return cls(
            type=_of_kind(value, "type", str),
            started_at=_time(_of_kind(value, "started_at", str)),
            duration_ms=_of_kind(value, "duration_ms", float | int | None, None),
            **{name: _of_kind(value, name, _KINDS[name], unset) for name, unset in _OPTIONAL},
        )


_OPTIONAL: Final = tuple((each.name, each.default) for each in fields(TraceStep)[3:])
"""The optional fields in the JSON form of a step, with the defaults."""
_KINDS: Final[Mapping[str, Any]] = {name: str | None for name, _ in _OPTIONAL} | {
    "summary": str,
    "tool_args": dict | None,
    "prompt_tokens": int | None,
    "completion_tokens": int | None,
    "cost_usd": float | int | None,
    "from_checkpoint": bool,
    "left_out": int,
}
"""The kinds of the optional fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTrace:
    """The steps of one run, in order. Iterable, and has a length."""

    run_id: str
    parent_run_id: str | None = None
    """The run that started this run with a task."""
    metadata: Mapping[str, Json] = field(default_factory=dict)
    steps: tuple[TraceStep, ...] = ()
    started_at: datetime
    ended_at: datetime | None = None
    stop_reason: str | None = None
    total_duration_ms: float = 0.0

    def __iter__(self) -> Iterator[TraceStep]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def filter(self, *, type: str) -> list[TraceStep]:
        """Return the steps of a type, in order."""
        return [step for step in self.steps if step.type == type]

    def to_dict(self) -> dict[str, Json]:
        """Return the trace as JSON. Times are ISO 8601 in UTC."""
        value: dict[str, Json] = {
            "form": FORM,
            "run_id": self.run_id,
            "start_time": self.started_at.astimezone(UTC).isoformat(),
            "end_time": None if self.ended_at is None else self.ended_at.astimezone(UTC).isoformat(),
            "stop_reason": self.stop_reason,
            "total_duration_ms": self.total_duration_ms,
            "step_count": len(self.steps),
            "steps": [step.to_dict() for step in self.steps],
        }
        if self.parent_run_id is not None:
            value["parent_run_id"] = self.parent_run_id
        if self.metadata:
            value["metadata"] = dict(self.metadata)
        return value

    @classmethod
    def from_dict(cls, value: Mapping[str, Json]) -> Self:
        """Return the trace from the JSON of `to_dict`, also of a later release with further fields.

        Raises ValueError for another form, or a value that is no trace.
        """
        form = value.get("form")
        if isinstance(form, bool) or form != FORM:
            raise ValueError(f"the trace has the form {form!r}: this release reads the form {FORM}")
        steps = _of_kind(value, "steps", list, [])
        ended = _of_kind(value, "end_time", str | None, None)
        return cls(
            run_id=_of_kind(value, "run_id", str),
            parent_run_id=_of_kind(value, "parent_run_id", str | None, None),
            metadata=_of_kind(value, "metadata", dict, {}),
            steps=tuple([TraceStep.from_dict(step if isinstance(step, dict) else {}) for step in steps]),
            started_at=_time(_of_kind(value, "start_time", str)),
            ended_at=None if ended is None else _time(ended),
            stop_reason=_of_kind(value, "stop_reason", str | None, None),
            total_duration_ms=_of_kind(value, "total_duration_ms", float | int, 0.0),
        )

    def to_json(self, path: str | Path) -> None:
        """Write the trace to a file, atomically: the file has either the old content or all of the new content.

        Only the owner may read a new file. Raises OSError.
        """
        target, content = Path(path), _indented(self.to_dict())
        with tempfile.NamedTemporaryFile(prefix=f".{target.name}.", dir=target.parent, delete=False) as file:
            aside = Path(file.name)
            try:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                aside.replace(target)
            except BaseException:
                aside.unlink(missing_ok=True)
                raise

    def timeline(self) -> str:
        """Return the trace as text: a line for the run, and a line for each step, with the offset from the start."""
        count = "1 step" if len(self.steps) == 1 else f"{len(self.steps)} steps"
        lines = [f"run {self.run_id}: {self.stop_reason or 'not ended'}, {self.total_duration_ms:.1f} ms, {count}"]
        for step in self.steps:
            offset = (step.started_at - self.started_at).total_seconds() * 1000
            lasted = "?" if step.duration_ms is None else f"{step.duration_ms:.1f} ms" if step.duration_ms else ""
            line = f"{offset:>10.1f} ms  {step.type:<18} {lasted:>12}  {_described(step)}"
            lines.append("".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in line).rstrip())
        return "\n".join(lines)

    def to_otel_spans(self, *, content: bool = False, agent_name: str = "") -> list[dict[str, Any]]:
        """Return the trace as OpenTelemetry spans: a root and one child for each step.

        The names are from the GenAI semantic conventions (`gateway.observe.genai`). The trace id is the run id, and the
        same trace always gives the same span ids. The root of a child run links to the parent run. Arguments, results,
        the model's text, error texts and the metadata are left out unless `content` is set.
        """
        tools = {step.tool_name for step in self.steps if step.type != "tool_selection"}
        steps = (_child(self, number, step, content, tools) for number, step in enumerate(self.steps, start=1))
        return [_root(self, content, agent_name), *steps]


_MISSING: Final = object()


def _of_kind(value: Mapping[str, Json], key: str, kind: Any, default: Any = _MISSING) -> Any:
    """Return a field of the JSON form. Raises ValueError for a missing field without a default, or a wrong kind."""
    found = value.get(key, default)
    if found is _MISSING or not isinstance(found, kind):
        raise ValueError(f"not a trace: its field {key} is " + ("missing" if found is _MISSING else "of a wrong kind"))
    return found


def _time(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"not a trace: the time {text} has no time zone")
    return at


def _described(step: TraceStep) -> str:
    parts = [step.summary, "from an earlier attempt" if step.from_checkpoint else "", step.error and f"! {step.error}"]
    return " ".join(", ".join(part for part in parts if part).split())


def _indented(value: Any) -> bytes:
    """Return indented JSON.

    A value beyond the limits of orjson (lone surrogates, integers of more than 64 bits) is written in ASCII.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        return json.dumps(value, indent=2, allow_nan=False, default=dict).encode() + b"\n"


_FAILED = frozenset({"error", "provider_error"})
"""The stop reasons of failed runs."""


def _root(trace: AgentTrace, content: bool, agent_name: str) -> dict[str, Any]:
    calls = trace.filter(type="llm_call")
    attributes: dict[str, Any] = {
        genai.OPERATION: genai.INVOKE_AGENT,
        genai.AGENT_NAME: agent_name or None,
        genai.PROVIDER: calls[-1].provider if calls else None,
        genai.REQUEST_MODEL: calls[-1].requested_model or calls[-1].model if calls else None,
        genai.INPUT_TOKENS: sum(step.prompt_tokens or 0 for step in calls),
        genai.OUTPUT_TOKENS: sum(step.completion_tokens or 0 for step in calls),
        genai.STOP_REASON: trace.stop_reason,
    }
    failed = trace.stop_reason in _FAILED
    if failed:
        attributes[genai.ERROR_TYPE] = next(
            (step.error_type for step in reversed(trace.steps) if step.error_type), "_OTHER"
        )
    if content:
        attributes |= {f"{genai.METADATA}{key}": _attribute(value) for key, value in trace.metadata.items()}
    span = _span(trace, 0, f"{genai.INVOKE_AGENT} {agent_name}".rstrip(), "INTERNAL", attributes)
    ends = [step.started_at + timedelta(milliseconds=step.duration_ms or 0.0) for step in trace.steps]
    span["parent_span_id"] = None
    if trace.parent_run_id is not None:
        span["links"] = [genai.root_link(trace.parent_run_id)]
    span["start_time_unix_nano"] = genai.nanoseconds(trace.started_at)
    span["end_time_unix_nano"] = genai.nanoseconds(trace.ended_at or max(ends, default=trace.started_at))
    span["status"] = {"status_code": "ERROR" if failed else "UNSET"}
    return span


def _child(
    trace: AgentTrace, number: int, step: TraceStep, content: bool, tools: Container[str | None]
) -> dict[str, Any]:
    name, kind, attributes = _conventional(step, content, tools)
    attributes |= {genai.STEP_TYPE: step.type, genai.FROM_CHECKPOINT: step.from_checkpoint or None}
    if step.left_out:
        attributes[genai.STEPS_LEFT_OUT] = step.left_out
    if step.error is not None:
        attributes[genai.ERROR_TYPE] = step.error_type or "_OTHER"
    if content:
        attributes |= {genai.STEP_SUMMARY: step.summary or None, genai.STEP_REASONING: step.reasoning or None}
    span = _span(trace, number, name, kind, attributes)
    span["parent_span_id"] = genai.span_id(trace.run_id, 0)
    span["start_time_unix_nano"] = genai.nanoseconds(step.started_at)
    span["end_time_unix_nano"] = genai.nanoseconds(step.started_at + timedelta(milliseconds=step.duration_ms or 0.0))
    span["status"] = {"status_code": "UNSET" if step.error is None else "ERROR"}
    if content and step.error is not None:
        span["status"]["description"] = step.error
    return span


def _conventional(step: TraceStep, content: bool, tools: Container[str | None]) -> tuple[str, str, dict[str, Any]]:
    """Return the name, the kind and the attributes of a step's span by the conventions."""
    is_failed_call = step.type == "error" and step.model is not None
    if step.type == "llm_call" or is_failed_call:
        attributes: dict[str, Any] = {
            genai.OPERATION: genai.CHAT,
            genai.PROVIDER: step.provider,
            genai.REQUEST_MODEL: step.requested_model or step.model,
            genai.RESPONSE_MODEL: None if is_failed_call else step.model,
            genai.INPUT_TOKENS: step.prompt_tokens,
            genai.OUTPUT_TOKENS: step.completion_tokens,
            genai.COST_USD: step.cost_usd,
        }
        return f"{genai.CHAT} {step.model or ''}".rstrip(), "CLIENT", attributes
    # A selection has the name that the model wrote, which may be no tool's. The other steps have a tool's name.
    named = content or step.type != "tool_selection" or step.tool_name in tools
    attributes = {genai.TOOL_NAME: step.tool_name if named else None, genai.TOOL_CALL_ID: step.call_id}
    if content:
        attributes[genai.TOOL_ARGUMENTS] = None if step.tool_args is None else json_text(dict(step.tool_args))
        attributes[genai.TOOL_RESULT] = step.tool_result
    if step.type == "tool_execution":
        attributes |= {genai.OPERATION: genai.EXECUTE_TOOL, genai.TOOL_TYPE: "function"}
        return f"{genai.EXECUTE_TOOL} {step.tool_name or ''}".rstrip(), "INTERNAL", attributes
    return step.type, "INTERNAL", attributes


def _span(trace: AgentTrace, number: int, name: str, kind: str, attributes: dict[str, Any]) -> dict[str, Any]:
    known = {key: value for key, value in attributes.items() if value is not None}
    return {
        "name": name,
        "kind": kind,
        "trace_id": genai.trace_id(trace.run_id),
        "span_id": genai.span_id(trace.run_id, number),
        "attributes": known,
        "links": [],
    }


def _attribute(value: Any) -> Any:
    """Return a value allowed as an attribute of a span."""
    return value if value is None or isinstance(value, (str, bool, int, float)) else json_text(value)
