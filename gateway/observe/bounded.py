"""The bounded form of a trace, for storage: at most a given number of bytes of JSON, however long the run was."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import orjson

from channels import Json
from gateway.observe.trace import AgentTrace, TraceStep

_Size: TypeAlias = Callable[[Json], int]

MOST_BYTES: Final = 16_384
"""The byte limit of a stored trace."""
LEAST_BYTES: Final = 2_048
"""The least allowed limit: room for the head of a trace."""

_TEXTS: Final[Mapping[str, int]] = {
    "type": 40,
    "summary": 200,
    "error": 500,
    "reasoning": 500,
    "tool_name": 100,
    "tool_result": 200,
    "model": 100,
    "call_id": 100,
    "provider": 100,
    "error_type": 100,
}
"""Field of a step -> the number of characters kept."""
_ARGS_BYTES: Final = 500
_VALUE_CHARACTERS: Final = 100
_METADATA_SHARE: Final = 4
_MARK_BYTES: Final = 160
"""The bytes reserved for the step in place of the left-out steps."""


def bounded(trace: AgentTrace, max_bytes: int = MOST_BYTES) -> AgentTrace:
    """Return the trace with at most `max_bytes` of compact JSON. A trace within the limit is returned unchanged.

    Otherwise the texts of the steps and the metadata are cut. If the trace is still too long, steps in the middle are
    left out, and a step of the type ``left_out`` has their number. Raises ValueError for a limit below LEAST_BYTES.
    """
    return _bounded(trace, max_bytes)[0]


def bounded_json(trace: AgentTrace, max_bytes: int = MOST_BYTES) -> dict[str, Json]:
    """Return the JSON of the bounded trace. Raises ValueError as `bounded` does."""
    return _bounded(trace, max_bytes)[1]


def _bounded(trace: AgentTrace, max_bytes: int) -> tuple[AgentTrace, dict[str, Json]]:
    """Return the bounded trace and the measured JSON."""
    if max_bytes < LEAST_BYTES:
        raise ValueError(f"a trace is bounded to {LEAST_BYTES} bytes or more, not {max_bytes}")
    size = _measure(whole := trace.to_dict())
    if size(whole) <= max_bytes:
        return trace, whole
    cut = replace(
        trace,
        metadata=_cut_mapping(trace.metadata, max_bytes // _METADATA_SHARE, size),
        steps=tuple([_cut(step, size) for step in trace.steps]),
    )
    if size(whole := cut.to_dict()) <= max_bytes:
        return cut, whole
    room = max_bytes - size(replace(cut, steps=()).to_dict()) - _MARK_BYTES
    ends = replace(cut, steps=_ends(cut.steps, room, size))
    return ends, ends.to_dict()


def _measure(value: Json) -> _Size:
    """Return a function to measure JSON as `json_text` writes this value: in UTF-8, or entirely in ASCII."""
    try:
        orjson.dumps(value)
    except TypeError:
        return lambda part: len(json.dumps(part, separators=(",", ":"), default=dict))
    return lambda part: len(orjson.dumps(part))


def _ends(trace_steps: Sequence[TraceStep], room: int, size: _Size) -> tuple[TraceStep, ...]:
    """Return the first and the last steps within the room, with a marking step in place of the steps between."""
    steps = [(step, size(step.to_dict()) + 1) for step in trace_steps]
    head: list[TraceStep] = []
    tail: list[TraceStep] = []
    # The last step first: it says how the run ended.
    while steps:
        step, length = steps[0 if len(tail) > len(head) else -1]
        if length > room or step.left_out:
            break
        room -= length
        if len(tail) > len(head):
            head.append(steps.pop(0)[0])
        else:
            tail.append(steps.pop()[0])
    count = sum(step.left_out or 1 for step, _ in steps)
    between = [step.started_at for step, _ in steps]
    mark = TraceStep(type="left_out", started_at=between[0], summary=_steps(count), left_out=count)
    return (*head, mark, *reversed(tail))


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _cut(step: TraceStep, size: _Size) -> TraceStep:
    changed: dict[str, Any] = {
        name: f"{text[: most - 1]}…"
        for name, most in _TEXTS.items()
        if (text := getattr(step, name)) is not None and len(text) > most
    }
    args = None if step.tool_args is None else _cut_mapping(step.tool_args, _ARGS_BYTES, size)
    return replace(step, tool_args=args, **changed)


def _cut_mapping(value: Mapping[str, Json], most: int, size: _Size) -> Mapping[str, Json]:
    """Return a mapping of at most `most` bytes of JSON: with long values cut, then without the last keys."""
    if size(dict(value)) <= most:
        return value
    kept: dict[str, Json] = {}
    room = most - len('{"\\u2026":"1000000 more"}')
    for key, each in value.items():
        short = _cut_value(each, size)
        length = size({key: short}) - 1  # without the braces, with a comma
        if length > room:
            kept["…"] = f"{len(value) - len(kept)} more"
            break
        room -= length
        kept[key] = short
    return kept


def _cut_value(value: Json, size: _Size) -> Json:
    if isinstance(value, str):
        return value if len(value) <= _VALUE_CHARACTERS else f"{value[: _VALUE_CHARACTERS - 1]}…"
    length = size(value)
    return value if length <= _VALUE_CHARACTERS else f"… ({length} bytes of JSON)"
