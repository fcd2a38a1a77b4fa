"""What the gateway itself says to a person in a chat: one TOML file a language, sentences by name.

A sentence is Markdown with ``{placeholders}``, or a table of such, one for each plural category that CLDR has for
`{count}` in the language. A new one goes into every file here and nowhere else; a new file is a new language.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache
from importlib.resources import files
from math import inf
from typing import Literal, NamedTuple

__all__ = ["FALLBACK", "LANGUAGES", "clock_time", "direction", "duration", "listing", "prepare", "resolve", "say"]

FALLBACK = "en"

_SECONDS_COUNT_BELOW = 120
_Unit = Literal["day", "hour", "minute", "second"]
_UNITS: tuple[tuple[_Unit, int], ...] = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))

_RIGHT_TO_LEFT = frozenset({"ar", "ckb", "dv", "fa", "he", "ps", "sd", "ug", "ur", "yi"})
_COMMAND = re.compile(r"(?<![\w/.:])/[a-z]\w*", re.ASCII)
_ISOLATE, _ISOLATE_END = "\N{FIRST STRONG ISOLATE}", "\N{POP DIRECTIONAL ISOLATE}"
_ISOLATED = re.compile(f"{_ISOLATE}[^{_ISOLATE}{_ISOLATE_END}]*{_ISOLATE_END}")
_ISOLATES = frozenset({"LRI", "RLI", "FSI"})
_NO_BREAK = dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f"), " ")
"""Spaces that CLDR has beside numbers. One of them would make all of a text message cost more than twice as much."""


class _Spoken(NamedTuple):
    sentences: Mapping[str, str]
    """Name -> sentence; of one that has plural forms, the form `other`."""
    forms: Mapping[str, Mapping[str, str]]
    """Name -> plural category -> sentence."""


class _Languages(Mapping[str, Mapping[str, str]]):
    """Reads a language when its sentences are first asked for."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = dict.fromkeys(names)

    def __getitem__(self, language: str) -> Mapping[str, str]:
        if language not in self._names:
            raise KeyError(language)
        return _read(language).sentences

    def __contains__(self, language: object) -> bool:
        return language in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@cache
def _read(language: str) -> _Spoken:
    """Return the sentences of a language that there is a file of. Blocks for a millisecond or two the first time."""
    sentences: dict[str, str] = {}
    forms: dict[str, Mapping[str, str]] = {}
    text = files(__name__).joinpath(f"{language}.toml").read_text(encoding="utf-8")
    for name, written in tomllib.loads(text).items():
        if isinstance(written, dict):
            forms[name] = written
        sentences[name] = written["other"] if isinstance(written, dict) else written
    return _Spoken(sentences, forms)


LANGUAGES: Mapping[str, Mapping[str, str]] = _Languages(
    sorted(file.name.removesuffix(".toml") for file in files(__name__).iterdir() if file.name.endswith(".toml"))
)
"""Language -> name of a sentence -> the sentence. Which languages there are is known at import; see `prepare`."""


def prepare(*languages: str | None) -> None:
    """Read what these languages, or all, are spoken with, which blocks: call it in a thread before a bot runs.

    Not at import: all sentences and what Babel makes times, durations and lists with take a tenth of a second.
    """
    for language in {FALLBACK, *map(resolve, languages)} if languages else LANGUAGES:
        _read(language)
        duration(90, language)  # Babel has one file a language, for times, lists and plurals too


def say(name: str, language: str | None, letters: Callable[[str], str] = str, /, **values: object) -> str:
    """The sentence of that name in that language, or in English when we do not speak it; `letters` spells it.

    Values are put in as they are: escape what a person or a model wrote. Those the sentence does not use are ignored.
    In a sentence that is read from right to left, values and commands that are not are isolated.
    Raises KeyError for a sentence we do not have, or a value it lacks.
    """
    language = resolve(language)
    spoken = _read(language)
    sentence = spoken.sentences[name]
    if name in spoken.forms:
        sentence = spoken.forms[name].get(_category(values["count"], language), sentence)
    sentence = letters(sentence)
    if direction(language) == "rtl":
        sentence = _with_isolated_commands(sentence)
        values = {key: _isolated(str(value)) for key, value in values.items()}
    return sentence.format_map(values)


def resolve(language: str | None) -> str:
    """The language we speak for a BCP 47 tag: ``pt-BR`` is ``pt``, and what we do not speak is English."""
    primary = (language or "").replace("_", "-").partition("-")[0].lower()
    return primary if primary in LANGUAGES else FALLBACK


def direction(language: str | None) -> str:
    """Return how we write that language: ``ltr`` or ``rtl``, as HTML has it."""
    return "rtl" if resolve(language) in _RIGHT_TO_LEFT else "ltr"


def duration(seconds: float, language: str | None) -> str:
    """A span of time as one says it, never longer than it is: ``14 minutes``, ``1 hour and 30 minutes``.

    In its two largest units; from two minutes on nobody counts the seconds.
    """
    from babel.dates import format_timedelta  # babel.units has no Portuguese day

    locale = resolve(language)
    left = max(int(seconds), 0)
    left -= left % 60 if left >= _SECONDS_COUNT_BELOW else 0
    spans: list[tuple[_Unit, int]] = []
    for unit, length in _UNITS:
        span = left - left % length
        left -= span
        if span or spans:
            spans.append((unit, span))
    shown = [(unit, span) for unit, span in spans[:2] if span] or [("second", 0)]
    # The threshold keeps Babel from saying it in a larger unit, where it rounds: 40 days as a month.
    said = (format_timedelta(span, unit, threshold=inf, locale=locale) for unit, span in shown)
    return listing(said, language).translate(_NO_BREAK)


def clock_time(at: datetime, language: str | None) -> str:
    """Hour and minute in the zone of `at`, which it names: ``14:02 UTC``."""
    from babel.dates import format_skeleton

    return f"{format_skeleton('Hm', at, locale=resolve(language))} {at:%Z}".translate(_NO_BREAK)


def listing(items: Iterable[str], language: str | None) -> str:
    """``Ana, Bob, and Eva``; read from right to left, each that is not is isolated."""
    from babel.lists import format_list

    if direction(language) == "rtl":
        items = map(_isolated, items)
    return format_list(list(items), locale=resolve(language))


def _category(count: object, language: str) -> str:
    """Return the plural category of a number: ``one``, ``few``, ``other``."""
    from babel import Locale

    return Locale.parse(language).plural_form(int(str(count)))


def _isolated(value: str) -> str:
    """Return a value as it stays readable between letters that are written from right to left.

    An isolate ends with its paragraph, so of a text of several lines only the commands are isolated.
    """
    if "\n" in value:
        return _with_isolated_commands(value)
    if not value or _ISOLATED.fullmatch(value) or _runs_right_to_left(value):
        return value
    return f"{_ISOLATE}{value}{_ISOLATE_END}"


def _with_isolated_commands(text: str) -> str:
    return _COMMAND.sub(lambda found: f"{_ISOLATE}{found[0]}{_ISOLATE_END}", text)


def _runs_right_to_left(text: str) -> bool:
    """Return True when the first letter that has a direction, outside of isolates, is written from right to left."""
    depth = 0
    for char in text:
        kind = unicodedata.bidirectional(char)
        if kind in _ISOLATES:
            depth += 1
        elif kind == "PDI":
            depth = max(depth - 1, 0)
        elif depth == 0 and kind in ("L", "R", "AL"):
            return kind != "L"
    return False
