"""Days and times in natural language: English, Spanish and Portuguese."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, time, timedelta

from babel.dates import get_day_names, get_month_names

from gateway.providers.demo.words import fold

__all__ = ["find_days", "find_times"]

Span = tuple[int, int]

_LANGUAGES = ("en", "es", "pt")
_MONTHS = {
    fold(name).rstrip("."): number
    for language in _LANGUAGES
    for width in ("wide", "abbreviated")
    for number, name in get_month_names(width, locale=language).items()
}
# Portuguese uses "sexta" for "sexta-feira".
_WEEKDAYS = {
    fold(name).removesuffix("-feira"): number
    for language in _LANGUAGES
    for number, name in get_day_names("wide", locale=language).items()
}
_RELATIVE = {
    "day after tomorrow": 2, "pasado manana": 2, "depois de amanha": 2,
    "today": 0, "tonight": 0, "tomorrow": 1, "yesterday": -1,
    "hoy": 0, "manana": 1, "ayer": -1, "hoje": 0, "amanha": 1, "ontem": -1,
}  # fmt: skip
_COUNTS = {
    "a": 1, "one": 1, "two": 2, "three": 3, "un": 1, "una": 1, "dos": 2, "tres": 3,
    "um": 1, "uma": 1, "dois": 2, "duas": 2,
}  # fmt: skip


def _any(words: dict[str, int]) -> str:
    return "|".join(sorted((re.escape(word) for word in words), key=len, reverse=True))


_DAY = re.compile(
    r"\b(?P<iso>\d{4}-\d{2}-\d{2})\b"
    rf"|\b(?P<relative>{_any(_RELATIVE)})\b"
    rf"|\b(?:in|en|em|dentro de|daqui a) (?P<count>\d{{1,3}}|{_any(_COUNTS)}) "
    r"(?P<unit>days?|weeks?|dias?|semanas?)\b"
    rf"|\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?: of| de)? (?P<month>{_any(_MONTHS)})\b\.?"
    r"(?:,? (?:de |del )?(?P<year>\d{4})\b)?"
    rf"|\b(?P<month2>{_any(_MONTHS)})\.? (?P<day2>\d{{1,2}})(?:st|nd|rd|th)?\b(?:,? (?P<year2>\d{{4}})\b)?"
    rf"|\b(?:(?:on|this|next|el|este|esta|proxim[oa]|na|no) )*(?P<weekday>{_any(_WEEKDAYS)})(?:-feira)?\b"
    r"(?: que viene| que vem)?"
)
_TIME = re.compile(
    r"(?:\b(?:at|a las?|as|ao?s?) )?\b(?P<hour>\d{1,2})(?::(?P<minute>\d{2})(?: ?(?P<half>[ap])\.?m\b\.?)?"
    r"| ?(?P<half2>[ap])\.?m\b\.?|h(?P<minute2>\d{2})?\b)"
    r"|\b(?:at|a las?|as) (?P<hour2>\d{1,2})\b(?![-/.,]?\d)"
)


def find_days(text: str, today: date) -> Iterator[tuple[Span, date]]:
    """Yield the days in a folded text, in order.

    A weekday is the first one after today. A day without a year is the next one.
    """
    for match in _DAY.finditer(text):
        found = _day(match, today)
        if found:
            yield match.span(), found


def _day(match: re.Match[str], today: date) -> date | None:
    part = match.groupdict()
    try:
        if part["iso"]:
            return date.fromisoformat(part["iso"])
        if part["relative"]:
            return today + timedelta(days=_RELATIVE[part["relative"]])
        if part["count"]:
            count = _COUNTS.get(part["count"]) or int(part["count"])
            return today + timedelta(days=count if part["unit"].startswith("d") else 7 * count)
        if part["weekday"]:
            return today + timedelta(days=(_WEEKDAYS[part["weekday"]] - today.weekday() - 1) % 7 + 1)
        month, day = _MONTHS[part["month"] or part["month2"]], int(part["day"] or part["day2"])
        if year := part["year"] or part["year2"]:
            return date(int(year), month, day)
        this_year = date(today.year, month, day)
        return this_year if this_year >= today else date(today.year + 1, month, day)
    except (ValueError, OverflowError):
        return None


def find_times(text: str) -> Iterator[tuple[Span, time]]:
    """Yield the times of day in a folded text, in order."""
    for match in _TIME.finditer(text):
        part = match.groupdict()
        hour, minute = int(part["hour"] or part["hour2"]), int(part["minute"] or part["minute2"] or 0)
        half = part["half"] or part["half2"]
        if half and 1 <= hour <= 12:
            hour = hour % 12 + (12 if half == "p" else 0)
        if hour < 24 and minute < 60:
            yield match.span(), time(hour, minute)
