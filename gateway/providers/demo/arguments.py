"""The extraction of a tool's arguments from a sentence, by the tool's JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta

from babel.dates import get_day_names, get_month_names

from channels import Json
from gateway.providers.demo.schema import ID, Kind, Parameter
from gateway.providers.demo.words import STOP_WORDS, fold, label, names, stem, stems

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

    A weekday is the first one after today. A day without a year is the next one, today included.
    """
    for match in _DAY.finditer(text):
        found = _date_in(match, today)
        if found:
            yield match.span(), found


def _date_in(match: re.Match[str], today: date) -> date | None:
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


_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_NUMBER = re.compile(r"(?<![\w.,-])[$€£]?(\d+(?:[.,]\d+)*)(?![\w-])")
_MOST = 2.0**53
"""The largest number: JSON numbers above are not exact."""
_QUOTED = re.compile(r"[\"“«]([^\"”»]+)[\"”»]|(?<!\w)['‘]([^'’]+)['’](?!\w)")
_NUMBER_WORDS = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
    "dos": 2, "tres": 3, "cuatro": 4, "cinco": 5, "seis": 6, "siete": 7, "ocho": 8, "nueve": 9, "diez": 10,
    "dois": 2, "duas": 2, "quatro": 4, "sete": 7, "oito": 8, "nove": 9, "dez": 10,
}  # fmt: skip

_PEOPLE = stems("person recipient assignee owner user customer client guest contact member doctor patient to name for")
_PLACES = stems("city place location room destination address country town restaurant where")
_SAYINGS = stems("title subject topic text message note body content reason description comment query search")
_BEFORE = {  # the words before a value of this kind, in English, Spanish and Portuguese
    "people": r"to|for|with|by|of|a|para|con|com|ao|de|do|da",
    "places": r"in|at|to|near|en|em|no|na",
    "sayings": r"called|named|titled|saying|that says|about|because|llamad[oa]|que diga|sobre|porque|chamad[oa]"
    "|dizendo",
}
_NO = r"(?:not|non|no|without|sin|sem|nao)"


@dataclass(slots=True)
class Sentence:
    """A person's sentence. The parts already read are crossed out of `left`, letter for letter."""

    text: str
    left: str = field(init=False)

    def __post_init__(self) -> None:
        self.left = fold(self.text)

    def take(self, span: tuple[int, int], about: Set[str] = frozenset()) -> str:
        """Cross out the text of a span, and return the text.

        Neighbouring words for the role of the text, like "due" before a day, are crossed out too.
        """
        start, end = span
        before = re.search(r"(\w+)\W?\s*(?:(?:is|to|of|on|by|de|el|a) )?$", self.left[:start])
        after = re.match(r"\s*(\w+)", self.left[end:])
        crossed_from = before.start() if before and stem(before[1]) in about else start
        crossed_to = end + after.end() if after and stem(after[1]) in about else end
        self.left = self.left[:crossed_from] + "\0" * (crossed_to - crossed_from) + self.left[crossed_to:]
        return self.text[start:end]


def read_arguments(
    wanted: Sequence[Parameter], sentence: Sentence, *, today: date, known: Sequence[str], bare: bool = False
) -> dict[str, Json]:
    """Return the arguments in the sentence, and cross out the text of the arguments.

    `known` are earlier ids, in the original spelling. With `bare` the sentence answers a question, so a text argument
    may be the whole sentence.
    """
    found: dict[str, Json] = {}
    readers: list[tuple[Kind, Callable[[Parameter], Json]]] = [
        ("email", lambda p: _email(p, sentence)),
        ("id", lambda p: next(iter(_ids(p, sentence, known, 1)), None)),
        ("choice", lambda p: _choice(p, sentence)),
        ("moment", lambda p: _moment(p, sentence, today)),
        ("day", lambda p: _day(p, sentence, today)),
        ("time", lambda p: _time(p, sentence)),
        ("list", lambda p: _list(p, sentence, today, known)),
        ("flag", lambda p: _flag(p, sentence)),
        ("number", lambda p: _number(p, sentence, near=True)),
        ("number", lambda p: _number(p, sentence, near=False)),
    ]
    for kind, reader in readers:
        for parameter in sorted(wanted, key=lambda p: not p.required):
            if parameter.kind == kind and parameter.name not in found and (value := reader(parameter)) is not None:
                found[parameter.name] = value
    texts = [parameter for parameter in wanted if parameter.kind == "text"]
    found.update(_texts(texts, sentence, bare))
    return found


def all_ids(parameter: Parameter, sentence: Sentence, known: Sequence[str]) -> list[str]:
    """Return all ids in the sentence for this parameter."""
    return _ids(parameter, sentence, known, 100)


def _email(parameter: Parameter, sentence: Sentence) -> str | None:
    match = _EMAIL.search(sentence.left)
    return sentence.take(match.span(), parameter.words) if match else None


def _ids(parameter: Parameter, sentence: Sentence, known: Sequence[str], most: int) -> list[str]:
    shape = _shape(parameter.example) if parameter.example else None
    candidates = [match.span() for match in ID.finditer(sentence.left)]
    if parameter.matches:
        words = [match.span() for match in re.finditer(r"[^\s,;!?\0]+", sentence.left)]
        candidates = [span for span in words if _fits_pattern(parameter, sentence.text[slice(*span)])]
    elif shape and any(shape.fullmatch(sentence.text[slice(*span)]) for span in candidates):
        candidates = [span for span in candidates if shape.fullmatch(sentence.text[slice(*span)])]
    elif not candidates:
        candidates = [match.span(1) for match in _NUMBER.finditer(sentence.left)]
    # "C-9" is more likely a customer's id than an invoice's.
    candidates.sort(key=lambda span: not _prefix_fits(parameter, sentence.text[slice(*span)]))
    found = [_spelled(sentence.text[slice(*span)], parameter, known) for span in candidates[:most]]
    for span in candidates[:most]:
        sentence.take(span)
    return list(dict.fromkeys(found))


def _fits_pattern(parameter: Parameter, text: str) -> bool:
    return parameter.matches is not None and (parameter.matches(text) or parameter.matches(text.upper()))


def _shape(example: str) -> re.Pattern[str]:
    """Return a pattern of an example id: INV-42 matches all ids with the same letters and any digits."""
    return re.compile(re.sub(r"\d+", r"\\d+", re.escape(example)), re.IGNORECASE)


def _prefix_fits(parameter: Parameter, text: str) -> bool:
    letters = fold(re.sub(r"[^A-Za-z].*", "", text))
    return bool(letters) and any(word.startswith(letters) or letters.startswith(word) for word in parameter.words)


def _spelled(text: str, parameter: Parameter, known: Sequence[str]) -> str:
    """Return the spelling of the id in earlier messages, or else the spelling of the schema's example or pattern."""
    text = text.removeprefix("#") if not (parameter.example or "").startswith("#") else text
    for one in known:
        if one.casefold() == text.casefold() or (text.isdigit() and re.fullmatch(rf"\D+{text}", one)):
            return one
    for one in known:
        letters = re.match(r"[A-Za-z]*", one)
        if letters and letters[0] and re.match(rf"{letters[0]}(?![A-Za-z])", text, re.IGNORECASE):
            return letters[0] + text[letters.end() :]
    if parameter.example and parameter.example.isupper():
        return text.upper()
    if parameter.matches and not parameter.matches(text):
        return text.upper()
    return text


def _choice(parameter: Parameter, sentence: Sentence) -> Json:
    for choice in sorted(parameter.choices, key=lambda choice: -len(str(choice))):
        words = [re.escape(fold(word)) for word in names(str(choice))]
        if words and (match := re.search(r"\b" + r"[\s_-]*".join(words) + r"(?:s|es)?\b", sentence.left)):
            sentence.take(match.span(), parameter.words)
            return choice
    return None


def _day(parameter: Parameter, sentence: Sentence, today: date) -> str | None:
    for span, day in find_days(sentence.left, today):
        sentence.take(span, parameter.words)
        return day.isoformat()
    return None


def _time(parameter: Parameter, sentence: Sentence) -> str | None:
    for span, moment in find_times(sentence.left):
        sentence.take(span, parameter.words)
        return moment.strftime("%H:%M")
    return None


def _moment(parameter: Parameter, sentence: Sentence, today: date) -> str | None:
    days, times = list(find_days(sentence.left, today)), list(find_times(sentence.left))
    if not times:
        return None
    for span, _ in (*days[:1], *times[:1]):
        sentence.take(span, parameter.words)
    return datetime.combine(days[0][1] if days else today, times[0][1]).isoformat()


def _flag(parameter: Parameter, sentence: Sentence) -> bool | None:
    meant = [word for word in names(parameter.name) if fold(word) not in STOP_WORDS]
    for match in re.finditer(r"[a-z]+", sentence.left):
        if stem(match[0]) in {stem(word) for word in meant}:
            denied = re.search(rf"\b{_NO}\s+(?:\w+\s+)?$", sentence.left[: match.start()])
            said = re.match(rf"\s*[:=]\s*(?:{_NO}|false)\b", sentence.left[match.end() :])
            sentence.take((denied.start() if denied else match.start(), match.end()))
            return not (denied or said)
    return None


def _number(parameter: Parameter, sentence: Sentence, *, near: bool) -> Json:
    """Return a number beside the parameter's own words; without `near`, any remaining number."""
    about = parameter.words | stems(parameter.description)
    pattern = re.compile(rf"{_NUMBER.pattern}|\b(?P<word>{'|'.join(_NUMBER_WORDS)})\b")
    for match in pattern.finditer(sentence.left):
        around = re.findall(r"\w+", sentence.left[: match.start()])[-1:]
        around += re.findall(r"\w+", sentence.left[match.end() :])[:1]
        if near and not {stem(word) for word in around} & about:
            continue
        value = float(_NUMBER_WORDS[match["word"]]) if match["word"] else _as_number(match[1])
        if value > _MOST or (parameter.whole and value != int(value)):
            continue
        sentence.take(match.span(), about)
        return int(value) if parameter.whole or value == int(value) else value
    return None


def _as_number(text: str) -> float:
    """Return the number of a text: "1,250.50", "1.250,50" and "1250.5" alike.

    A mark before exactly three last digits groups thousands.
    """
    *_, last = re.split(r"[.,]", text)
    digits = re.sub(r"[.,]", "", text)
    return float(digits) if len(last) == 3 or last == text else float(f"{digits[: -len(last)]}.{last}")


def _list(parameter: Parameter, sentence: Sentence, today: date, known: Sequence[str]) -> Json:
    found: list[Json] = []
    while parameter.item and len(found) < 50:
        one = read_arguments([parameter.item], sentence, today=today, known=known)
        if not one:
            break
        found.extend(one.values())
    return found or None


def _texts(texts: Sequence[Parameter], sentence: Sentence, bare: bool) -> Iterator[tuple[str, Json]]:
    """Yield the text arguments.

    Quoted texts come first, then the texts after the parameter's name or a word for the parameter's role, then the
    rest.
    """
    open_texts = sorted(texts, key=lambda p: (not p.required, not p.words & _SAYINGS))
    for match in _QUOTED.finditer(sentence.text):
        if open_texts:
            sentence.take(match.span())
            yield open_texts.pop(0).name, (match[1] or match[2]).strip()
    for parameter in list(open_texts):
        if value := _after_its_word(parameter, sentence):
            open_texts.remove(parameter)
            yield parameter.name, value
    needed = [parameter for parameter in open_texts if parameter.required]
    if len(needed) == 1 and (value := _left_over(sentence, bare)):
        yield needed[0].name, value


def _after_its_word(parameter: Parameter, sentence: Sentence) -> str | None:
    named = re.escape(label(parameter.name)).replace(r"\ ", r"[\s_]")
    before = [rf"\b{named}\s*[:=]\s*(?P<value>[^\0]+)", rf"\b(?:with |con |com )?(?:the )?{named} (?P<value>[^\0]+)"]
    role = "sayings" if parameter.words & _SAYINGS else "places" if parameter.words & _PLACES else ""
    role = role or ("people" if parameter.words & _PEOPLE else "")
    if role == "sayings":
        before.append(rf"\b(?:{_BEFORE[role]})\s*:?\s+(?P<value>[^\0]+)")
    elif role:
        stops = "|".join({*_BEFORE["people"].split("|"), *_BEFORE["places"].split("|"), "on", "from", "because", "and"})
        before.append(rf"\b(?:{_BEFORE[role]})\s+(?P<value>[^\0,;]+?)(?=\s+(?:{stops})\b|[\0,;.!?]|\s*$)")
    for pattern in before:
        match = re.search(pattern, sentence.left)
        if match and (span := _trimmed(sentence, match.span("value"))):
            value = sentence.text[slice(*span)]
            sentence.take(match.span())
            return value
    return None


def _left_over(sentence: Sentence, bare: bool) -> str | None:
    for match in re.finditer(r"[^\0]+", sentence.left):
        span = match.span() if bare else _trimmed(sentence, match.span())
        if span and (value := sentence.text[slice(*span)].strip(" \t\n.,;:!?")):
            sentence.take(span)
            return value
    return None


def _trimmed(sentence: Sentence, span: tuple[int, int]) -> tuple[int, int] | None:
    """Return the span without stop words and marks at both ends."""
    words = [match.span() for match in re.finditer(r"[\w'’-]+", sentence.left[: span[1]]) if match.start() >= span[0]]
    while words and sentence.left[slice(*words[0])] in STOP_WORDS:
        words.pop(0)
    while words and sentence.left[slice(*words[-1])] in STOP_WORDS:
        words.pop()
    return (words[0][0], words[-1][1]) if words else None
