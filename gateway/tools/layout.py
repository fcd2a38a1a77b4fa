"""The author's way of writing a question: templates, and the labels and formats of arguments, by language."""

from __future__ import annotations

import re
import types
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import cached_property, lru_cache
from string import Formatter
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from channels import Json
from gateway.tools.escape import shown, visible
from gateway.wording import FALLBACK, LANGUAGES, amount, resolve

_EACH = ""
"""The language of a text for all languages."""
_LONGEST_LABEL = 60
_JOINS_BEFORE = re.compile(r"[\w.,+-]$")
_JOINS_AFTER = re.compile(r"[\w-]|[.,]\w")
T = TypeVar("T")


@dataclass(frozen=True)
class Label:
    """The name of a parameter in a question: ``Annotated[str, Label("Invoice")]``.

    `text` is the label, or a mapping of languages to labels. Raises ValueError for an empty label, a label over 60
    characters or with a line end, and a language without sentences.
    """

    text: str | Mapping[str, str]

    def __post_init__(self) -> None:
        for written in by_language(self.text, "Label").values():
            if not isinstance(written, str) or not 0 < len(written.strip()) <= _LONGEST_LABEL or "\n" in written:
                raise ValueError(f"Label: a label is one line of 1 to {_LONGEST_LABEL} characters, not {written!r}")


@dataclass(frozen=True)
class Money:
    """The currency of an amount in a question: ``Annotated[Decimal, Money("EUR")]``.

    The amount is written in the person's language, without rounding. Raises ValueError for an unknown code of ISO 4217.
    """

    currency: str

    def __post_init__(self) -> None:
        from babel.numbers import is_currency  # takes 20 ms, so only a bot with amounts pays for it

        if not isinstance(self.currency, str) or not is_currency(self.currency):
            raise ValueError(f'Money: {self.currency!r} is no currency: write its code of ISO 4217, like "EUR"')

    def text(self, value: int | float | Decimal, language: str | None) -> str:
        """Return an amount as a question writes it, for an author's own texts: ``€120.50``. Raises ValueError for a
        value that is no number."""
        number = _number(value if isinstance(value, int | float) else str(value))
        if number is None:
            raise ValueError(f"Money: {value!r} is no amount")
        return amount(number, self.currency, language)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The author's way of writing a tool's questions. The record of each question keeps the layout of the ask."""

    templates: Mapping[str, str] = field(default_factory=dict)
    """Language -> template. An empty language stands for all."""
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Argument -> language -> label."""
    currencies: Mapping[str, str] = field(default_factory=dict)
    """Argument -> currency."""

    @classmethod
    def of(cls, ask: str | Mapping[str, str] | None, parameters: Mapping[str, Any]) -> Layout | None:
        """Return the layout of these templates and annotations of parameters; None without templates and marks.

        Raises ValueError for no template, a text that is no template, a language without sentences, and a mark at a
        wrong place.
        """
        templates = {} if ask is None else by_language(ask, "confirm")
        for text in templates.values():
            Template(text, parameters)
        labels: dict[str, Mapping[str, str]] = {}
        currencies: dict[str, str] = {}
        for name, annotation in parameters.items():
            for mark in _marks(name, annotation):
                if isinstance(mark, Label):
                    labels[name] = by_language(mark.text, "Label")
                else:
                    currencies[name] = mark.currency
        _check_labels(labels, parameters)
        made = cls(templates=templates, labels=labels, currencies=currencies)
        return made if templates or labels or currencies else None

    def template(self, language: str | None) -> Template | None:
        """Return the template of a language; without one, the English or the first; None without templates."""
        return _read(in_language(self.templates, language)) if self.templates else None

    def sentence(self, values: Mapping[str, Json], language: str | None) -> str:
        """Return the template of a language with these values, each escaped. Raises ValueError without a template."""
        template = self.template(language)
        if template is None:
            raise ValueError("a layout without a template")
        return template.render({name: self.value(name, values[name], language) for name in template.names})

    def name(self, name: str, language: str | None) -> str:
        """Return the name of an argument in a question: the label, or the parameter's own name."""
        if name in self.labels:
            return in_language(self.labels[name], language)
        return name if name.isidentifier() and visible(name) == name else f"“{visible(name)}”"

    def value(self, name: str, value: Json, language: str | None, *, bare: bool = False) -> str:
        """Return the text of an argument's value: an amount with the currency, any other value as `shown`."""
        number = _number(value) if name in self.currencies else None
        if number is None:
            return shown(value, bare=bare)
        return amount(number, self.currencies[name], language)

    def to_json(self) -> dict[str, Json]:
        """Return the layout for a digest."""
        labels: dict[str, Json] = {name: dict(texts) for name, texts in self.labels.items()}
        return {"templates": dict(self.templates), "labels": labels, "currencies": dict(self.currencies)}


NO_LAYOUT = Layout()


class Template:
    """A text with ``{name}`` fields.

    Attributes, indexes, conversions and format specifications are refused. A value is shown whole: a rounded or cut
    value would not be the tool's argument. ``{{`` stands for a brace.
    """

    def __init__(self, text: str, names: Collection[str] | None) -> None:
        """Raises ValueError when `text` is not a template, or has a field outside `names`. None allows all names."""
        try:
            pieces = list(Formatter().parse(text))
        except ValueError as error:
            raise ValueError(f"{text!r} is not a template: {error}; write {{{{ or }}}} for a brace") from None
        for _, name, spec, conversion in pieces:
            if name is None:
                continue
            if spec or conversion:
                raise ValueError(f"{text!r}: write {{{name}}} alone, without ':' or '!': values are shown as they are")
            if names is not None and name not in names:
                from difflib import get_close_matches  # imported only after an error

                close = get_close_matches(name, names, n=1)
                hint = f"did you mean {{{close[0]}}}?" if close else f"it can use: {', '.join(sorted(names)) or 'none'}"
                raise ValueError(f"{text!r} names {{{name}}}, which is not an argument: {hint}")
        self.text = text
        self._pieces = tuple((literal, name) for literal, name, _, _ in pieces)
        self.names = frozenset(name for _, name in self._pieces if name is not None)

    @cached_property
    def apart(self) -> frozenset[str]:
        """The names written apart from letters, digits and each other, so that a reader sees where each value ends."""
        found = set()
        for number, (before, name) in enumerate(self._pieces):
            after = self._pieces[number + 1][0] if number + 1 < len(self._pieces) else ""
            joined = number > 0 and not before
            joined = joined or (number + 1 < len(self._pieces) and not after)
            if name is not None and not joined and not _JOINS_BEFORE.search(before) and not _JOINS_AFTER.match(after):
                found.add(name)
        return frozenset(found)

    def render(self, texts: Mapping[str, str]) -> str:
        """Return the template with each name replaced by the text."""
        return "".join(literal + ("" if name is None else texts[name]) for literal, name in self._pieces)


@lru_cache(256)
def _read(text: str) -> Template:
    return Template(text, None)


def by_language(text: str | Mapping[str, str], what: str) -> dict[str, str]:
    """Return language -> text. Raises ValueError for no text, and for a language without sentences."""
    if not isinstance(text, str | Mapping):
        raise ValueError(f"{what} is a text, or a mapping of languages to texts, not {text!r}")
    written = {_EACH: text} if isinstance(text, str) else dict(text)
    if not written:
        raise ValueError(f"{what}: {{}} has no text: write a language and its text, like {{'en': 'Pay?'}}")
    if unknown := [language for language in written if language not in {_EACH, *LANGUAGES}]:
        known = ", ".join(sorted(LANGUAGES))
        raise ValueError(f"{what}: {unknown[0]!r} is no language of the questions: there are {known}")
    return written


def in_language(texts: Mapping[str, T], language: str | None) -> T:
    """Return the text of a language, else the English text or the first."""
    return texts[next((each for each in (resolve(language), FALLBACK) if each in texts), next(iter(texts)))]


def _marks(name: str, annotation: Any) -> list[Label | Money]:
    """Return the labels and currencies of a parameter. Raises ValueError for a wrong place, and for two of a kind."""
    found = list(_found(annotation, at_top=True, name=name))
    for kind in (Label, Money):
        if sum(isinstance(mark, kind) for mark in found) > 1:
            raise ValueError(f"{name!r} has more than one {kind.__name__}: keep one")
    return found


def _found(annotation: Any, *, at_top: bool, name: str) -> list[Label | Money]:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is not Annotated:
        at_top = at_top and origin in (Union, types.UnionType)
        return [mark for each in inner for mark in _found(each, at_top=at_top, name=name)]
    marks = [mark for mark in inner[1:] if isinstance(mark, Label | Money)]
    if marks and not at_top:
        raise ValueError(f"{name!r}: {type(marks[0]).__name__} names a whole parameter: put it around the whole type")
    if any(isinstance(mark, Money) for mark in marks) and not _is_amount(inner[0]):
        raise ValueError(f"{name!r}: Money is for an int, a float or a Decimal")
    return [*marks, *_found(inner[0], at_top=at_top, name=name)]


def _is_amount(annotation: Any) -> bool:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _is_amount(inner[0])
    if origin in (Union, types.UnionType):
        return all(each is types.NoneType or _is_amount(each) for each in inner)
    return any(annotation is each for each in (int, float, Decimal))


def _check_labels(labels: Mapping[str, Mapping[str, str]], parameters: Collection[str]) -> None:
    """Check that no two rows of a question have the same name. Raises ValueError."""
    for language in LANGUAGES if labels else ():
        named: dict[str, str] = {}
        for name in parameters:
            row = in_language(labels[name], language).strip().casefold() if name in labels else name.casefold()
            if row in named:
                raise ValueError(f"{named[row]!r} and {name!r} would both read {row!r}: give one another label")
            named[row] = name


def _number(value: Json) -> Decimal | None:
    """Return the exact number of a value; None for another value. A Decimal is a text in JSON."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = Decimal(repr(value) if isinstance(value, float) else value)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None
