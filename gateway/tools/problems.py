"""Problems in a model's arguments, worded so that the model can correct them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic_core import ErrorDetails

from gateway.tools.errors import Problem

__all__ = ["problems"]


def problems(errors: Sequence[ErrorDetails], given: Mapping[str, Any], properties: Mapping[str, Any]) -> list[Problem]:
    """Return one problem for each place in the arguments that pydantic found wrong.

    `given` are the arguments, and `properties` those of the schema.
    """
    found: dict[str, Problem] = {}
    for error in errors:
        path, value = _locate(error, given)
        name = str(error["loc"][0])
        where = properties.get(name, {})
        if error["type"] == "extra_forbidden":
            known = properties if path == name else ()
            found[path] = Problem(path, "Unexpected parameter(s)", _suggest(path, known, "is not a valid parameter"))
        elif error["type"] == "missing":
            found[path] = Problem(path, "Missing required parameter")
        else:
            found.setdefault(path, _wrong(path, value, error, where if path == name else {}))
    return list(found.values())


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


def _wrong(path: str, value: Any, error: ErrorDetails, schema: Mapping[str, Any]) -> Problem:
    expected = _type_name(schema)
    if choices := _choices(schema):
        return Problem(path, f"{_short(value)} is not allowed", _suggest(str(value), choices, f"must be {expected}"))
    issue = f"Wrong type or value {_short(value)} ({error['msg'].removeprefix('Value error, ')})"
    if "string" in expected.split(" or ") and isinstance(value, (bool, int, float)):
        return Problem(path, issue, f"Try: {path}=str({value!r})")
    return Problem(path, issue, f"Expected type: {expected}" if expected else "")


def _choices(schema: Mapping[str, Any]) -> list[Any]:
    found = list(schema.get("enum", [schema["const"]] if "const" in schema else []))
    for option in schema.get("anyOf", ()):
        found += _choices(option)
    return found


def _type_name(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(filter(None, map(_type_name, schema["anyOf"])))
    if choices := _choices(schema):
        return " or ".join(repr(choice) for choice in choices)
    name = str(schema.get("type", ""))
    inner = _type_name(schema["items"]) if "items" in schema else ""
    return f"{name} of {inner}" if inner else name


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
