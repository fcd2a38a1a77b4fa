"""The ready-made guards: against personal data, long texts and instructions to the model."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Final, Literal, NamedTuple

from channels import AskfirstError
from gateway.guards.base import GuardrailContext, GuardrailVerdict, checked_stages
from gateway.guards.screening import screen_aside

_EMAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}(?![\w-])")
_CARD: Final = re.compile(r"(?<![\w-])\d(?:[ -]?\d){11,18}(?![\w-])")
_IBAN: Final = re.compile(r"(?<!\w)[A-Za-z]{2}\d{2}(?: ?[A-Za-z0-9]){11,30}(?!\w)")
_SHORTEST_IBAN: Final = 15
_PHONE_PIECE: Final = 4_000
_LONGEST_PHONE: Final = 250
"""The most characters of a number in a text, with brackets, blanks and extension."""
_MOST_CHARACTERS: Final = 100_000
"""The most characters searched at once. A longer text counts as personal data, and is blocked."""


class PiiGuardrail:
    """A Guardrail for personal data. A rewrite puts ``[email]``, ``[phone]``, ``[card]`` or ``[iban]`` in its place.

    - `email`: an address with a domain of two parts or more.
    - `phone`: a number valid in its country, in the international form with + in front.
    - `card`: 12 to 19 digits, also in groups, with a right check digit (Luhn).
    - `iban`: a bank account number of 15 characters or more with the right check digits.

    Needs the extra `pii`.
    """

    name = "pii"

    def __init__(
        self,
        *,
        stages: Sequence[str] = ("input", "output"),
        action: Literal["warn", "rewrite", "block"] = "rewrite",
    ) -> None:
        """Raises ValueError for a wrong value."""
        self.stages = checked_stages("PiiGuardrail", stages, action)
        self.action = action

    async def check(self, text: str, context: GuardrailContext) -> GuardrailVerdict:
        if len(text) > _MOST_CHARACTERS:
            return GuardrailVerdict("block", detail=f"more than {_MOST_CHARACTERS} characters")
        found = await asyncio.to_thread(_found, text)
        if not found:
            return GuardrailVerdict()
        counts = Counter(each.kind for each in found)
        detail = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
        return GuardrailVerdict(
            self.action, text=_without(text, found) if self.action == "rewrite" else None, detail=detail
        )


class _Place(NamedTuple):
    start: int
    end: int
    kind: str


def _found(text: str) -> list[_Place]:
    """Return the places of personal data, in order and apart from each other."""
    places = [
        *(_Place(*match.span(), "email") for match in _EMAIL.finditer(text)),
        *_ibans(text),
        *(_Place(*match.span(), "card") for match in _CARD.finditer(text) if _is_card(match.group())),
        *(_Place(start, end, "phone") for start, end in _phone_finder()(text)),
    ]
    apart: list[_Place] = []
    for place in sorted(places, key=lambda each: (each.start, -each.end)):
        if not apart or place.start >= apart[-1].end:
            apart.append(place)
    return apart


def _ibans(text: str) -> Iterator[_Place]:
    """Yield the bank accounts of a text. The word behind an account may look like its last group."""
    for match in _IBAN.finditer(text):
        start, end = match.span()
        while end - start >= _SHORTEST_IBAN:
            if _is_iban(text[start:end]):
                yield _Place(start, end, "iban")
                break
            end = text.rfind(" ", start, end)


def _without(text: str, found: Sequence[_Place]) -> str:
    parts, at = [], 0
    for place in found:
        parts += [text[at : place.start], f"[{place.kind}]"]
        at = place.end
    return "".join([*parts, text[at:]])


def _is_card(text: str) -> bool:
    """Return True if the last digit is the check digit of the others (ISO/IEC 7812-1, Luhn)."""
    digits = [int(char) for char in reversed(text) if char.isdigit()]
    return (sum(digits[0::2]) + sum(sum(divmod(2 * digit, 10)) for digit in digits[1::2])) % 10 == 0


def _is_iban(text: str) -> bool:
    """Return True if the check digits are right (ISO 13616)."""
    plain = text.replace(" ", "").upper()
    return int("".join(str(int(char, 36)) for char in plain[4:] + plain[:4])) % 97 == 1


@cache
def _phone_finder() -> Callable[[str], Iterator[tuple[int, int]]]:
    """Load the library, at the first check: the load takes a tenth of a second."""
    try:
        import phonenumbers
    except ImportError as error:
        raise AskfirstError("PiiGuardrail needs the extra pii: pip install 'askfirst[pii]'") from error

    def phones(text: str) -> Iterator[tuple[int, int]]:
        for at in range(0, len(text), _PHONE_PIECE):  # one search of a long text would keep every thread waiting
            for match in phonenumbers.PhoneNumberMatcher(text[at : at + _PHONE_PIECE + _LONGEST_PHONE], None):
                yield at + match.start, at + match.end

    return phones


class LengthGuardrail:
    """A Guardrail for texts of more than `max_chars` characters. A rewrite cuts the text."""

    name = "length"

    def __init__(
        self,
        *,
        max_chars: int,
        stages: Sequence[str] = ("input",),
        action: Literal["warn", "rewrite", "block"] = "block",
    ) -> None:
        """Raises ValueError for a wrong value."""
        if isinstance(max_chars, bool) or not isinstance(max_chars, int) or max_chars < 1:
            raise ValueError(f"LengthGuardrail: max_chars is a positive number, not {max_chars!r}")
        self.stages = checked_stages("LengthGuardrail", stages, action)
        self.max_chars, self.action = max_chars, action

    async def check(self, text: str, context: GuardrailContext) -> GuardrailVerdict:
        if len(text) <= self.max_chars:
            return GuardrailVerdict()
        detail = f"{len(text)} characters, at most {self.max_chars}"
        cut = text[: self.max_chars] if self.action == "rewrite" else None
        return GuardrailVerdict(self.action, text=cut, detail=detail)


class InjectionGuardrail:
    """A Guardrail for lines that read like instructions to the model (`screen`). A rewrite takes these lines out."""

    name = "injection"

    def __init__(
        self,
        *,
        stages: Sequence[str] = ("tool_results",),
        action: Literal["warn", "rewrite", "block"] = "rewrite",
    ) -> None:
        """Raises ValueError for a wrong value."""
        self.stages = checked_stages("InjectionGuardrail", stages, action)
        self.action = action

    async def check(self, text: str, context: GuardrailContext) -> GuardrailVerdict:
        screened = await screen_aside(text)
        if not screened.kinds:
            return GuardrailVerdict()
        rewritten = screened.text if self.action == "rewrite" else None
        return GuardrailVerdict(self.action, text=rewritten, detail=", ".join(screened.kinds))
