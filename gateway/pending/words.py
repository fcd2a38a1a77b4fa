"""The table of words that answer a prompt (words.toml)."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain, product
from typing import Any, Literal, TypeAlias

from gateway.pending.folding import base_language, fold, unaccented

__all__ = ["CARRIER_WORDS", "INTENTS", "TABLE", "Intent", "WordTable", "Words", "check_words", "safe_words"]

Intent: TypeAlias = Literal["confirm", "cancel"]

INTENTS: tuple[Intent, ...] = ("confirm", "cancel")

CARRIER_WORDS = frozenset(
    {"cancel", "end", "optout", "quit", "revoke", "start", "stop", "stopall", "unstop", "unsubscribe", "yes"}
)
"""Words by which carriers and Twilio opt the sender out or in before we see them (Twilio, "Advanced Opt-Out")."""

_NAMES: Mapping[Intent, str] = {"confirm": "yes", "cancel": "no"}


@dataclass(frozen=True, slots=True)
class Words:
    """The answers of one language. All but `typed` are in the form that `fold` gives."""

    phrases: Mapping[Intent, frozenset[str]]
    """Whole messages, but for politeness."""
    with_code: Mapping[Intent, frozenset[str]]
    """The same next to a code, where more counts."""
    emoji: Mapping[str, frozenset[Intent]]
    """Emoji that may stand after a phrase, and after a phrase of which intents."""
    polite: tuple[str, ...]
    """May stand behind any phrase and before a no, and before a yes that begins with one of `heads`."""
    heads: frozenset[str]
    typed: tuple[str, str]
    """The yes and the no that a prompt tells people to type with its code."""


class WordTable:
    """The words of every language, made from the text of a table in the form that words.toml explains."""

    def __init__(self, source: bytes) -> None:
        self.version = hashlib.sha256(source).hexdigest()[:8]
        sections = tomllib.loads(source.decode())
        self.languages = tuple(name for name, section in sections.items() if "yes_phrases" in section)
        self._known = {"", *self.languages, *sections["everywhere"]["except"]}
        self._sections = sections
        self._emoji = _emoji(sections["emoji"])
        self._words: dict[str, Words] = {}
        self._openings = tuple(f"{fold(opening)} " for opening in sections["signature"]["openings"])
        self._devices = _folded(sections["signature"]["devices"])

    def of(self, lang: str) -> Words:
        """The words of a language given as a BCP 47 tag; the region does not matter.

        A language that is not in the table has the few words that count everywhere.
        """
        base = base_language(lang)
        base = base if base in self._known else ""
        if base not in self._words:  # few are ever asked for, and each is hundreds of phrases
            self._words[base] = _words(self._sections, base, self._emoji)
        return self._words[base]

    def is_signature(self, line: str) -> bool:
        """Whether a folded line is what a phone or mail program puts below a message."""
        return any(
            line.startswith(opening)
            and all(word in self._devices or _MODEL.fullmatch(word) for word in line.removeprefix(opening).split())
            for opening in self._openings
        )


_MODEL = re.compile(r"[a-z]{0,2}\d{1,3}[a-z+]?")
"""The name of a device's model: s21, 15, a52s."""


def _words(sections: Mapping[str, Any], base: str, emoji: Mapping[str, frozenset[Intent]]) -> Words:
    own, everywhere = sections.get(base, {}), sections["everywhere"]
    other_meaning = set(everywhere["except"].get(base, ()))
    typed = own.get("typed") or sections["en"]["typed"]
    phrases = {
        intent: _folded(chain(_composed(own, name), set(everywhere[name]) - other_meaning))
        for intent, name in _NAMES.items()
    }
    return Words(
        phrases=phrases,
        with_code={intent: phrases[intent] | {fold(everywhere["with_code"][name])} for intent, name in _NAMES.items()},
        emoji=emoji,
        polite=tuple(sorted(_folded(own.get("polite", ())))),
        heads=_folded(chain(own.get("yes", ()), everywhere["yes"])),
        typed=(typed["yes"], typed["no"]),
    )


def _emoji(section: Mapping[str, Any]) -> Mapping[str, frozenset[Intent]]:
    listed = {intent: {fold(emoji) for emoji in section[name]} for intent, name in _NAMES.items()}
    return {
        emoji: frozenset(intent for intent in INTENTS if emoji in listed[intent])
        for emoji in sorted(listed["confirm"] | listed["cancel"])
    }


def _composed(section: Mapping[str, Any], name: str) -> Iterator[str]:
    """Every phrase that the lists of words.toml spell out for a yes or a no."""
    heads, after, bare, after_comma, phrases = (
        section.get(f"{name}{part}", ()) for part in ("", "_then", "_then_bare", "_then_comma", "_phrases")
    )
    yield from chain(heads, phrases)
    yield from (f"{head} {tail}" for head, tail in product(heads, chain(after, bare)))
    yield from (f"{head}, {tail}" for head, tail in product(heads, chain(after, after_comma)))


def _folded(entries: Iterable[str]) -> frozenset[str]:
    """The entries, and each word of theirs also without accents and apostrophes."""
    return frozenset(
        " ".join(words)
        for entry in entries
        for words in product(*({word, _plain(word)} for word in fold(entry).split()))
    )


def _plain(word: str) -> str:
    return (word if word.isascii() else unaccented(word)).replace("'", "")


TABLE = WordTable(files(__package__).joinpath("words.toml").read_bytes())
"""The one that comes with the gateway."""


def check_words(table: WordTable = TABLE) -> None:
    """Raise ValueError, naming the words, when the table contradicts itself: the tests hold words.toml to it.

    No word may be a yes in one language and a no in another. The words that a prompt tells people to type must be read
    as what they say, and no carrier may act on them.
    """
    read = {lang: table.of(lang).with_code for lang in table.languages}
    yes, no = (frozenset(chain.from_iterable(words[intent] for words in read.values())) for intent in INTENTS)
    if both := yes & no:
        raise ValueError(f"words.toml: both a yes and a no: {', '.join(sorted(both))}. Take each out on one side.")
    for lang, words in read.items():
        for word, intent in zip(table.of(lang).typed, INTENTS, strict=True):
            if fold(word) in CARRIER_WORDS or fold(word) not in words[intent]:
                raise ValueError(f"words.toml: [{lang}] typed: {word!r} is a carrier's word, or not read as {intent}.")


def safe_words(lang: str) -> tuple[str, str]:
    """The yes and the no that a prompt tells people to type with its code. No carrier acts on them."""
    return TABLE.of(lang).typed
