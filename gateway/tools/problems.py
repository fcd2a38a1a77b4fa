"""Problems in a model's arguments, worded so that the model can correct them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic_core import ErrorDetails

from gateway.tools.errors import Problem

if TYPE_CHECKING:
    from gateway.json_schema import Fault

__all__ = ["problems", "schema_problems", "unexpected"]

_INJECTED = "A parameter that config_injector fills in is annotated Injected[...] (from askfirst)"
_MOST_SAID = 200
"""The most characters of a fault that the library of JSON Schema words: it quotes the value."""


def problems(
    errors: Sequence[ErrorDetails], given: Mapping[str, Any], properties: Mapping[str, Any], *, injects: bool = False
) -> list[Problem]:
    """Return one problem for each place in the arguments that pydantic found wrong.

    `given` are the arguments, and `properties` those of the schema. `injects`: the tool has a config_injector.
    """
    found: dict[str, Problem] = {}
    for error in errors:
        path, value = _locate(error, given)
        name = str(error["loc"][0])
        where = properties.get(name, {})
        if error["type"] == "extra_forbidden":
            known = properties if path == name else ()
            found[path] = unexpected(path, known)
        elif error["type"] == "missing":
            found[path] = replace(_missing(path), suggestion=_INJECTED if injects else "")
        else:
            said = error["msg"].removeprefix("Value error, ")
            found.setdefault(path, _wrong(path, value, said, where if path == name else {}))
    return list(found.values())


def schema_problems(faults: Iterable[Fault], given: Mapping[str, Any], properties: Mapping[str, Any]) -> list[Problem]:
    """Return one problem for each place in the arguments that does not fit their JSON Schema."""
    found: dict[str, Problem] = {}
    for fault in faults:
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in fault.path).removeprefix(".")
        if fault.keyword == "required":
            for name in fault.schema["required"]:
                if name not in fault.value:
                    found.setdefault(where := f"{path}.{name}".removeprefix("."), _missing(where))
        elif not fault.path:
            found.setdefault("", Problem("", fault.message[:_MOST_SAID]))
        else:
            top = properties.get(str(fault.path[0]))
            where_schema = top if len(fault.path) == 1 and isinstance(top, Mapping) else {}
            found.setdefault(path, _wrong(path, fault.value, fault.message[:_MOST_SAID], where_schema))
    return list(found.values())


def unexpected(path: str, known: Iterable[str]) -> Problem:
    """Return the problem of a parameter that is not among the known ones."""
    return Problem(path, "Unexpected parameter(s)", _suggest(path, known, "is not a valid parameter"))


def _missing(path: str) -> Problem:
    return Problem(path, "Missing required parameter")


def _locate(error: ErrorDetails, given: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the path of an error in the arguments, and the value there.

    pydantic also names members of unions, which are not part of the path.
    """
    loc = error["loc"]
    path, value = str(loc[0]), given.get(str(loc[0]))
    for step in loc[1:]:
        if isinstance(value, list) and isinstance(step, int) and step < len(value):
            path, value = f"{path}[{step}]", value[step]
        elif isinstance(value, dict) and step in value:
            path, value = f"{path}.{step}", value[step]
        elif error["type"] == "missing" and step == loc[-1]:
            path, value = f"{path}.{step}", None
    return path, value


def _suggest(word: str, known: Iterable[Any], otherwise: str) -> str:
    from difflib import get_close_matches  # imported only after an error

    close = get_close_matches(word, [str(name) for name in known], n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}?" if close else f"{word!r} {otherwise}"


def _wrong(path: str, value: Any, said: str, schema: Mapping[str, Any]) -> Problem:
    expected = _type_name(schema)
    if choices := _choices(schema):
        return Problem(path, f"{_short(value)} is not allowed", _suggest(str(value), choices, f"must be {expected}"))
    issue = f"Wrong type or value {_short(value)} ({said})"
    if "string" in expected.split(" or ") and isinstance(value, (bool, int, float)):
        return Problem(path, issue, f"Try: {path}=str({value!r})")
    return Problem(path, issue, f"Expected type: {expected}" if expected else "")


def _choices(schema: Any) -> list[Any]:
    if not isinstance(schema, Mapping):
        return []
    found = list(schema.get("enum", [schema["const"]] if "const" in schema else []))
    for option in schema.get("anyOf", ()):
        found += _choices(option)
    return found


def _type_name(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return ""
    if "anyOf" in schema:
        return " or ".join(filter(None, map(_type_name, schema["anyOf"])))
    if choices := _choices(schema):
        return " or ".join(repr(choice) for choice in choices)
    kinds = schema.get("type", "")
    name = " or ".join(map(str, kinds)) if isinstance(kinds, list) else str(kinds)
    inner = _type_name(schema["items"]) if "items" in schema else ""
    return f"{name} of {inner}" if inner else name


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
