"""The gateway's own sentences for people: one TOML file a language, sentences by name.

A sentence is Markdown with ``{placeholders}``, or a table of sentences: one for each plural category of CLDR for
`{count}` in the language. A new sentence goes into every file here; a new file is a new language.

A file has one form of address. The directories `familiar` and `formal` hold the sentences that differ in the other
form: of German in `familiar`, of Spanish in `formal`. A bot speaks by its `Wording`, see `speaking`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from decimal import Decimal
from math import inf
from typing import Literal

from gateway.wording.sentences import FALLBACK, LANGUAGES, Sentence, Tone, Wording

__all__ = [
    "FALLBACK",
    "LANGUAGES",
    "Sentence",
    "Tone",
    "Wording",
    "amount",
    "clock_time",
    "date_and_time",
    "direction",
    "duration",
    "isolated",
    "listing",
    "money",
    "number",
    "prepare",
    "resolve",
    "say",
    "speaking",
]

_SECONDS_COUNT_BELOW = 120
_Unit = Literal["day", "hour", "minute", "second"]
_UNITS: tuple[tuple[_Unit, int], ...] = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))

_RIGHT_TO_LEFT = frozenset({"ar", "ckb", "dv", "fa", "he", "ps", "sd", "ug", "ur", "yi"})
_COMMAND = re.compile(r"(?<![\w/.:])/[a-z]\w*", re.ASCII)
_ISOLATE, _ISOLATE_END = "\N{FIRST STRONG ISOLATE}", "\N{POP DIRECTIONAL ISOLATE}"
_ISOLATED = re.compile(f"{_ISOLATE}[^{_ISOLATE}{_ISOLATE_END}]*{_ISOLATE_END}")
_ISOLATES = frozenset({"LRI", "RLI", "FSI"})
_NO_BREAK = dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f"), " ")
"""Spaces put beside numbers by CLDR. A single space of this kind would more than double the cost of a text message."""
_NO_MARKS = dict.fromkeys(map(ord, "\u200e\u200f\u061c"))
"""Marks of direction put beside currencies by CLDR. An isolate around the amount does the same."""
_MOST_DIGITS, _MOST_WRITTEN = 15, 30

_SPEAKING: ContextVar[Wording] = ContextVar("askfirst_wording", default=Wording())  # noqa: B039 - it is not changed


@contextmanager
def speaking(wording: Wording) -> Iterator[None]:
    """Say all sentences in this wording within the block, and in the tasks and threads begun there.

    Each way into the work of a bot enters this block: the loops of the engine, the inbox, the calls of the bot's own
    code, the operator's commands, and a command line about a bot.
    """
    token = _SPEAKING.set(wording)
    try:
        yield
    finally:
        _SPEAKING.reset(token)


def prepare(*languages: str | None) -> None:
    """Load the sentences and the locale data of these languages, or of all. Blocks for about 8 ms a language."""
    for language in {FALLBACK, *map(resolve, languages)} if languages else LANGUAGES:
        _SPEAKING.get().spoken(language)
        duration(90, language)  # Babel has one file a language, for times, lists and plurals too


def say(name: str, language: str | None, letters: Callable[[str], str] = str, /, **values: object) -> str:
    """Return the sentence of this name in this language, or in English if the language has no file.

    The sentence is of the wording of the bot at work; see `speaking`.

    `letters` transforms the letters of the sentence. Values are inserted unchanged: escape text of a person or a model.
    Unused values are ignored. In a right-to-left sentence, left-to-right values and commands are isolated. Raises
    KeyError for an unknown sentence, or a missing value.
    """
    language = resolve(language)
    spoken = _SPEAKING.get().spoken(language)
    sentence = spoken.sentences[name]
    if name in spoken.forms:
        sentence = spoken.forms[name].get(_category(values["count"], language), sentence)
    sentence = letters(sentence)
    if direction(language) == "rtl":
        sentence = _with_isolated_commands(sentence)
        values = {key: _isolated_unless_rtl(str(value)) for key, value in values.items()}
    return sentence.format_map(values)


def resolve(language: str | None) -> str:
    """Return the supported language for a BCP 47 tag: ``pt`` for ``pt-BR``, English for an unsupported language."""
    primary = (language or "").replace("_", "-").partition("-")[0].lower()
    return primary if primary in LANGUAGES else FALLBACK


def direction(language: str | None) -> str:
    """Return the writing direction of the language, as in HTML: ``ltr`` or ``rtl``."""
    return "rtl" if resolve(language) in _RIGHT_TO_LEFT else "ltr"


def duration(seconds: float, language: str | None) -> str:
    """Return a span of time in words, never longer than the real span: ``14 minutes``, ``1 hour and 30 minutes``.

    The words have the two largest units, and no seconds from two minutes on.
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
    # The threshold keeps Babel from rounding to a larger unit: 40 days to a month.
    said = (format_timedelta(span, unit, threshold=inf, locale=locale) for unit, span in shown)
    return listing(said, language).translate(_NO_BREAK)


def clock_time(at: datetime, language: str | None) -> str:
    """Return the hour and minute with the zone of `at`, without a zero in front: ``6:40 UTC``."""
    from babel.dates import format_skeleton

    written = re.sub(r"^0(?=\d)", "", format_skeleton("Hm", at, locale=resolve(language)))
    return f"{written} {at:%Z}".translate(_NO_BREAK)


def date_and_time(at: datetime, language: str | None) -> str:
    """Return the day, hour and minute with the zone of `at`: ``Nov 26, 14:02 UTC``."""
    from babel.dates import format_skeleton

    day = format_skeleton("MMMd", at, locale=resolve(language))
    return f"{day}, {clock_time(at, language)}".translate(_NO_BREAK)


def listing(items: Iterable[str], language: str | None) -> str:
    """Return a list in words: ``Ana, Bob, and Eva``.

    In a right-to-left language, left-to-right items are isolated.
    """
    from babel.lists import format_list

    if direction(language) == "rtl":
        items = map(_isolated_unless_rtl, items)
    return format_list(list(items), locale=resolve(language))


def number(value: int, language: str | None) -> str:
    """Return a whole number with the separators of the language: ``12,345``."""
    from babel.numbers import format_decimal

    return format_decimal(value, locale=resolve(language)).translate(_NO_BREAK)


def money(dollars: float, language: str | None) -> str:
    """Return an amount of US dollars with up to four decimals: ``0.50 USD``, ``0.0031 USD``."""
    from babel.numbers import format_decimal

    return f"{format_decimal(dollars, '#,##0.00##', locale=resolve(language))} USD".translate(_NO_BREAK)


def amount(value: Decimal, currency: str, language: str | None) -> str:
    """Return an exact amount in the language: ``€120.50``.

    An amount with more decimals than the currency, or with more than 15 digits, is written as a number and a code.
    """
    from babel.numbers import format_currency, get_currency_precision

    if abs(value.adjusted()) > _MOST_WRITTEN or len(value.as_tuple().digits) > _MOST_WRITTEN:
        return f"{value} {currency}"  # 1E+20 would be written with its zeros
    _, _, fraction = f"{value:f}".partition(".")
    places = len(fraction.rstrip("0"))
    if places > get_currency_precision(currency) or value.adjusted() >= _MOST_DIGITS:
        return f"{value:f} {currency}"
    written = format_currency(value, currency, locale=resolve(language), decimal_quantization=False)
    return written.translate(_NO_BREAK).translate(_NO_MARKS)


def isolated(text: str) -> str:
    """Return the text in a directional isolate: the direction of the text does not reorder the surroundings."""
    return f"{_ISOLATE}{text}{_ISOLATE_END}"


def _category(count: object, language: str) -> str:
    """Return the plural category of a number: ``one``, ``few``, ``other``."""
    from babel import Locale

    return Locale.parse(language).plural_form(int(str(count)))


def _isolated_unless_rtl(value: str) -> str:
    """Return a value in an isolate, unless an isolate is unnecessary: the value is isolated or right-to-left itself.

    An isolate ends with its paragraph, so only the commands of a text with several lines are isolated.
    """
    if "\n" in value:
        return _with_isolated_commands(value)
    if not value or _ISOLATED.fullmatch(value) or _runs_right_to_left(value):
        return value
    return isolated(value)


def _with_isolated_commands(text: str) -> str:
    return _COMMAND.sub(lambda found: isolated(found[0]), text)


def _runs_right_to_left(text: str) -> bool:
    """Return True if the first letter with a direction, outside of isolates, is right-to-left."""
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
