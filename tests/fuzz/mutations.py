"""Mutations of a payload: of the structure, the values, and the written bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

__all__ = ["flipped", "mutated", "odd_text", "written"]

_TEXTS = [
    "",
    " ",
    "\x00",
    "a\x00b",
    "\ud800",
    "\u202e\u2066",
    "😀" * 40,
    "e\u0301" * 300,
    "/stop",
    "/new@somebody_else_bot",
    "yes",
    "OK K7P2",
    "<@U0LAN0Z89>",
    "../../etc/passwd",
    "%00%ff",
    "1e400",
    "-0",
    "null",
    "\r\nSet-Cookie: a=b",
    "telegram:1:2",
    "x" * 5000,
]
_NUMBERS: list[Any] = [0, -1, 1, 2**31, 2**53 + 1, -(2**63), 10**30, 10**400, 1.5, -0.0, 1e308, True, False]
_EMPTY: list[Any] = [None, [], {}, [[]], [None], {"": None}, [[], {}, ""], float("nan"), float("inf")]
_DEEP = [50, 500, 20_000]
_DEEPER = "\ue000deep"
"""The mark for a value nested too deeply for `json`: a private character followed by the depth."""


def odd_text(chance: Random) -> str:
    return chance.choice(_TEXTS)


def _odd(chance: Random) -> Any:
    return deepcopy(chance.choice([odd_text(chance), chance.choice(_NUMBERS), chance.choice(_EMPTY)]))


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Each (container, key) within a value."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, dict):
            keys: list[Any] = list(inner)
        else:
            keys = list(range(len(inner))) if isinstance(inner, list) else []
        found += [(inner, key) for key in keys]
        waiting += [inner[key] for key in keys]
    return found


def mutated(payload: Any, chance: Random) -> Any:
    """Return a copy with up to four changes, most often one."""
    whole = {"": deepcopy(payload)}
    for _ in range(chance.choice([0, 1, 1, 1, 2, 4])):
        places = _places(whole)
        inner, key = chance.choice(places)
        match chance.randrange(8):
            case 0 | 1 | 2:
                inner[key] = _odd(chance)
            case 3 if inner is not whole:
                del inner[key]
            case 4:
                other, its_key = chance.choice(places)
                inner[key] = deepcopy(other[its_key])
            case 5:
                inner[key] = [inner[key]] * chance.choice([1, 2, 100])
            case 6 if isinstance(inner, dict) and inner is not whole:
                inner[chance.choice([str(key).upper(), odd_text(chance), f"{key}2"])] = inner[key]
            case _:
                inner[key] = f"{_DEEPER}{chance.choice(_DEEP)}"
    return whole.get("")


def written(payload: Any, chance: Random) -> bytes:
    """Write as JSON, nearly always in UTF-8."""
    text = json.dumps(payload, ensure_ascii=chance.random() < 0.5)
    for depth in _DEEP:
        for marker in (json.dumps(f"{_DEEPER}{depth}"), f'"{_DEEPER}{depth}"'):
            nested = "[" * depth + "]" * depth if chance.random() < 0.5 else '{"a":' * depth + "1" + "}" * depth
            text = text.replace(marker, nested, 1)
    if chance.random() < 0.03 and text.startswith("{"):
        text = '{"update_id": 1, "type": "x", ' + text[1:]  # a key that comes twice
    encoding = chance.choice(["utf-16", "utf-8-sig", "utf-32", "latin-1"]) if chance.random() < 0.03 else "utf-8"
    return text.encode(encoding, "surrogatepass" if encoding != "latin-1" else "replace")


def flipped(data: bytes, chance: Random, allowed: Callable[[int], bool] = lambda byte: True) -> bytes:
    """Change one to three bytes."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        byte = chance.randrange(256)
        if changed and allowed(byte):
            changed[chance.randrange(len(changed))] = byte
    return bytes(changed)
