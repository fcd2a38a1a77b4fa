"""The table of words that answer a prompt (words.toml), and the one form in which texts and words are compared."""

from __future__ import annotations

import hashlib
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import chain, product
from typing import Any, Literal, TypeAlias

__all__ = [
    "CARRIER_WORDS",
    "INTENTS",
    "Intent",
    "Words",
    "check_words",
    "fold",
    "is_signature",
    "languages",
    "safe_words",
    "table_version",
    "words_of",
]

Intent: TypeAlias = Literal["confirm", "cancel"]

INTENTS: tuple[Intent, ...] = ("confirm", "cancel")

CARRIER_WORDS = frozenset(
    {"cancel", "end", "optout", "quit", "revoke", "start", "stop", "stopall", "unstop", "unsubscribe", "yes"}
)
"""What carriers and Twilio act on before we see it, opting the sender out or in (Twilio, "Advanced Opt-Out")."""

_NAMES: Mapping[Intent, str] = {"confirm": "yes", "cancel": "no"}
_APOSTROPHES = dict.fromkeys(map(ord, "’‘ʼ´`＇"), "'")


@dataclass(frozen=True, slots=True)
class Words:
    """What one language says. All but `typed` is in the form that `fold` gives."""

    phrases: Mapping[Intent, frozenset[str]]
    """Whole messages, but for politeness."""
    with_code: Mapping[Intent, frozenset[str]]
    """The same next to a code, where more counts."""
    emoji: Mapping[str, frozenset[Intent]]
    """What may stand after a phrase, and of which intents."""
    polite: tuple[str, ...]
    """Longest first."""
    typed: tuple[str, str]
    """The yes and the no that a prompt tells people to type with its code."""


def fold(text: str) -> str:
    """One form for all ways of typing the same words.

    Width, case, composed or decomposed accents, invisible characters, skin tones, the kind of apostrophe, the two
    Turkish i, and space, also around a comma, make no difference. Accents and the script of a letter do.
    """
    visible = "".join(char for char in text.translate(_APOSTROPHES) if not _invisible(char))
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())
    one_i = folded.replace("i\N{COMBINING DOT ABOVE}", "i").replace("\N{LATIN SMALL LETTER DOTLESS I}", "i")
    return " ".join(re.sub(r"\s*,\s*", ", ", one_i).split())


def _invisible(char: str) -> bool:
    """Format characters, variation selectors, the grapheme joiner; and skin tones, which only colour an emoji."""
    return (
        unicodedata.category(char) == "Cf"
        or "\N{VARIATION SELECTOR-1}" <= char <= "\N{VARIATION SELECTOR-16}"
        or char == "\N{COMBINING GRAPHEME JOINER}"
        or "\N{EMOJI MODIFIER FITZPATRICK TYPE-1-2}" <= char <= "\N{EMOJI MODIFIER FITZPATRICK TYPE-6}"
    )


@cache
def languages() -> tuple[str, ...]:
    """The languages the table has words of."""
    return tuple(name for name, section in _table().items() if "yes_phrases" in section)


def words_of(lang: str) -> Words:
    """The words of a language given as a BCP 47 tag; the region does not matter.

    A language that is not in the table has the few words that count everywhere.
    """
    base = re.split("[-_]", lang, maxsplit=1)[0].casefold()
    return _words(base if base in languages() or base in _table()["everywhere"]["except"] else "")


def safe_words(lang: str) -> tuple[str, str]:
    """The yes and the no that a prompt tells people to type with its code. No carrier acts on them."""
    return words_of(lang).typed


def check_words() -> None:
    """For the start: raise ValueError, naming the words, when the table of words contradicts itself.

    No word may be a yes in one language and a no in another, and what people are told to type must be read, not taken
    by a carrier.
    """
    tables = [words_of(lang).with_code for lang in languages()]
    yes, no = (frozenset(chain.from_iterable(table[intent] for table in tables)) for intent in INTENTS)
    if both := yes & no:
        raise ValueError(f"words.toml: both a yes and a no: {', '.join(sorted(both))}. Take each out on one side.")
    for lang in languages():
        for word, intent in zip(safe_words(lang), INTENTS, strict=True):
            if fold(word) in CARRIER_WORDS or fold(word) not in words_of(lang).with_code[intent]:
                raise ValueError(f"words.toml: [{lang}] typed: {word!r} is a carrier's word, or not read as {intent}.")


def is_signature(line: str) -> bool:
    """Whether a folded line is what a phone or mail program puts below a message."""
    openings, devices = _signature()
    return any(
        line.startswith(opening)
        and all(word in devices or _MODEL.fullmatch(word) for word in line.removeprefix(opening).split())
        for opening in openings
    )


_MODEL = re.compile(r"[a-z]{0,2}\d{1,3}[a-z+]?")
"""The name of a model: s21, 15, a52s."""


def table_version() -> str:
    """Eight hex digits that change with every change of the table."""
    return hashlib.sha256(_source()).hexdigest()[:8]


@cache
def _source() -> bytes:
    return files(__package__).joinpath("words.toml").read_bytes()


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads(_source().decode())


@cache
def _signature() -> tuple[tuple[str, ...], frozenset[str]]:
    section = _table()["signature"]
    return tuple(f"{fold(opening)} " for opening in section["openings"]), _folded(section["devices"])


@cache
def _words(base: str) -> Words:
    own, everywhere = _table().get(base, {}), _table()["everywhere"]
    other_meaning = set(everywhere["except"].get(base, ()))
    typed = own.get("typed") or _table()["en"]["typed"]
    phrases = {
        intent: _folded(chain(_composed(own, name), set(everywhere[name]) - other_meaning))
        for intent, name in _NAMES.items()
    }
    return Words(
        phrases=phrases,
        with_code={intent: phrases[intent] | {fold(everywhere["with_code"][name])} for intent, name in _NAMES.items()},
        emoji=_emoji(),
        polite=tuple(sorted(_folded(own.get("polite", ())), key=len, reverse=True)),
        typed=(typed["yes"], typed["no"]),
    )


def _emoji() -> Mapping[str, frozenset[Intent]]:
    listed = {intent: {fold(emoji) for emoji in _table()["emoji"][name]} for intent, name in _NAMES.items()}
    return {
        emoji: frozenset(intent for intent in INTENTS if emoji in listed[intent])
        for emoji in sorted(listed["confirm"] | listed["cancel"])
    }


def _composed(section: Mapping[str, Any], name: str) -> Iterator[str]:
    """Every phrase that the lists of words.toml spell out for a yes or a no."""
    heads, after, after_comma = (section.get(name + part, ()) for part in ("", "_then", "_then_comma"))
    yield from section.get(f"{name}_phrases", ())
    yield from heads
    yield from (f"{head} {tail}" for head, tail in product(heads, after))
    yield from (f"{head}, {tail}" for head, tail in product(heads, chain(after, after_comma)))


def _folded(entries: Iterable[str]) -> frozenset[str]:
    """The entries, and each word of theirs also without accents and apostrophes."""
    return frozenset(
        " ".join(words)
        for entry in entries
        for words in product(*({word, _plain(word)} for word in fold(entry).split()))
    )


def _plain(word: str) -> str:
    letters = unicodedata.normalize("NFD", word)
    return "".join(char for char in letters if not unicodedata.combining(char) and char != "'")
