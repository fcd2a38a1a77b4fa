"""The compiled words of a language, written by `make words` from the word file and read by a bot at first use.

Reading takes a millisecond, compared to 50 to 250 for the word file: the large tables stay unparsed lines. A line is
parsed at the first lookup of a text with the same beginning.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any, Final, TypeVar

import orjson

from gateway.pending.words.table import Continuing, Form, Parts, Piece, PlanPart, PlanWords, Words

_Meaning = TypeVar("_Meaning")
_LETTERS: Final = 3
"""The number of first letters by which the texts of a table are grouped."""


def written(words: Words) -> bytes:
    """Return the compiled form of the words of a language: the same bytes for the same words.

    The first line has everything except the texts of the large tables. Each further line has the texts of a table with
    the same beginning.
    """
    plan, lines = words.plan, list[bytes]()
    found: dict[str, Any] = {name: getattr(words, name) for name in Words.__dataclass_fields__}
    found |= {
        "pieces": _closed(words.pieces, lambda piece: [*piece[:3], sorted(piece.no_verbs), *piece[4:]], lines),
        "slots": _closed(words.slots, str, lines),
        "forms": _closed(words.forms, list, lines),
        "near": words.near.texts,
        "mere": words.mere.texts,
        "plan": {name: getattr(plan, name) for name in PlanWords.__dataclass_fields__}
        | {"parts": _closed(plan.parts, list, lines)},
        "continuing": asdict(words.continuing),
    }
    return b"\n".join([orjson.dumps(found, default=_joined), *lines, b""])


def read(data: bytes) -> Words:
    """Return the words of a compiled form."""
    first, *rest = data.split(b"\n")
    found, lines = orjson.loads(first), iter(rest)
    lang, plan, continuing = found["language"], found["plan"], found["continuing"]
    for name in ("polite", "polite_no", "acknowledgements", "doubts", "doubtful_ends", "closings", "unclear"):
        found[name] = _texts(found[name])
    for name in ("unclear_joined", "repeats", "first", "first_of_forms"):
        found[name] = _texts(found[name])
    found["pieces"] = _Table(found["pieces"], _piece, lines)
    found["slots"] = _Table(found["slots"], str, lines)
    found["forms"] = _Table(found["forms"], Form._make, lines)
    return Words(
        **found
        | {
            "typed": tuple(found["typed"]),
            "near": Parts(_texts(found["near"]), lang),
            "mere": Parts(_texts(found["mere"]), lang),
            "sent_from": tuple(map(tuple, found["sent_from"])),
            "going_on": tuple(found["going_on"]),
            "wanting": tuple(found["wanting"]),
            "plan": PlanWords(
                parts=_Table(plan["parts"], PlanPart._make, lines),
                longest=plan["longest"],
                suffixes=tuple(plan["suffixes"]),
                unclear=_texts(plan["unclear"]),
                supported=plan["supported"],
            ),
            "continuing": Continuing(
                **{name: _texts(continuing[name]) for name in ("change", "instead", "add", "too", "prefixes")},
                suffixes=tuple(continuing["suffixes"]),
            ),
        }
    )


def _piece(row: Sequence[Any]) -> Piece:
    role, intent, verb, no_verbs, repeats, acknowledges = row
    return Piece(role, intent, verb, frozenset(no_verbs), repeats, acknowledges)


def _closed(table: Mapping[str, Iterable[Any]], row: Callable[[Any], Any], lines: list[bytes]) -> dict[str, Any]:
    """Return the meanings of a table and the beginnings of its texts, and add to `lines` a line for each beginning.

    A line groups the texts by their meanings.
    """
    meanings: dict[bytes, int] = {}
    parts: defaultdict[str, defaultdict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for text in sorted(table):
        rows = orjson.dumps(sorted(map(row, table[text]), key=orjson.dumps))
        parts[text[:_LETTERS]][meanings.setdefault(rows, len(meanings))].append(text)
    lines += [orjson.dumps([(place, _joined(texts)) for place, texts in part.items()]) for part in parts.values()]
    return {"meanings": list(map(orjson.loads, meanings)), "begins": _joined(parts)}


class _Table(Mapping[str, frozenset[_Meaning]]):
    """A table with lines parsed at the first lookup of a text with the line's beginning."""

    def __init__(self, found: Mapping[str, Any], meaning: Callable[[Any], _Meaning], lines: Iterator[bytes]) -> None:
        self._rows, self._meaning = found["meanings"], meaning
        begins: str = found["begins"]
        self._closed = {begin: next(lines) for begin in begins.split("\n")} if begins else {}
        self._open: dict[str, dict[str, frozenset[_Meaning]]] = {}

    def _part(self, text: str) -> dict[str, frozenset[_Meaning]]:
        """Return the part of the table with the beginning of this text."""
        begin = text[:_LETTERS]
        if begin not in self._open:
            if begin not in self._closed:
                return {}
            part: dict[str, frozenset[_Meaning]] = {}
            for place, texts in orjson.loads(self._closed[begin]):
                part |= dict.fromkeys(texts.split("\n"), frozenset(map(self._meaning, self._rows[place])))
            self._open[begin] = part
        return self._open[begin]

    def __getitem__(self, text: str) -> frozenset[_Meaning]:
        return self._part(text)[text]

    def get(self, text: str, default: Any = None) -> Any:
        return self._part(text).get(text, default)

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and text in self._part(text)

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(map(self._part, self._closed))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _joined(texts: Iterable[str]) -> str:
    return "\n".join(sorted(texts))


def _texts(joined: str) -> frozenset[str]:
    return frozenset(joined.split("\n")) if joined else frozenset()
