"""What the gateway itself says to a person in a chat: one TOML file a language, sentences by name.

A sentence is Markdown with ``{placeholders}``. A new one goes into every file here and nowhere else; a new file is a
new language.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from importlib.resources import files
from math import inf
from typing import Literal

__all__ = ["FALLBACK", "LANGUAGES", "clock_time", "direction", "duration", "listing", "prepare", "resolve", "say"]

FALLBACK = "en"
LANGUAGES: Mapping[str, Mapping[str, str]] = {
    file.name.removesuffix(".toml"): tomllib.loads(file.read_text(encoding="utf-8"))
    for file in files(__name__).iterdir()
    if file.name.endswith(".toml")
}
"""Language -> name of a sentence -> the sentence. Read at import: a turn reads no file."""

_SECONDS_COUNT_BELOW = 120
_Unit = Literal["day", "hour", "minute", "second"]
_UNITS: tuple[tuple[_Unit, int], ...] = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


def prepare() -> None:
    """Read what times, durations and lists are made with, which blocks: call it in a thread before a bot runs.

    Not at import, since `say` does without it, and it is a tenth of what the process takes.
    """
    for language in LANGUAGES:
        clock_time(datetime.now(UTC), language)
        direction(language)
        duration(90, language)


def say(name: str, language: str | None, letters: Callable[[str], str] = str, /, **values: object) -> str:
    """The sentence of that name in that language, or in English when we do not speak it; `letters` spells it.

    Values are put in as they are: escape what a person or a model wrote. Those the sentence does not use are ignored.
    Raises KeyError for a sentence we do not have, or a value it lacks.
    """
    return letters(LANGUAGES[resolve(language)][name]).format_map(values)


def resolve(language: str | None) -> str:
    """The language we speak for a BCP 47 tag: ``pt-BR`` is ``pt``, and what we do not speak is English."""
    primary = (language or "").replace("_", "-").partition("-")[0].lower()
    return primary if primary in LANGUAGES else FALLBACK


def direction(language: str | None) -> str:
    """Return how that language is written: ``ltr`` or ``rtl``, as HTML has it."""
    from babel import Locale

    return Locale.parse(resolve(language)).text_direction


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
    return listing((format_timedelta(span, unit, threshold=inf, locale=locale) for unit, span in shown), language)


def clock_time(at: datetime, language: str | None) -> str:
    """Hour and minute in the zone of `at`, which it names: ``14:02 UTC``."""
    from babel.dates import format_skeleton

    return f"{format_skeleton('Hm', at, locale=resolve(language))} {at:%Z}"


def listing(items: Iterable[str], language: str | None) -> str:
    """``Ana, Bob, and Eva``."""
    from babel.lists import format_list

    return format_list(list(items), locale=resolve(language))
