"""The shapes of the words of a language."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from typing import Any, Literal, NamedTuple, TypeAlias

from gateway.pending.folding import fold, unaccented

Intent: TypeAlias = Literal["confirm", "cancel"]
Role: TypeAlias = Literal["head", "comma head", "ack", "after", "phrase", "then"]
PlanRole: TypeAlias = Literal[
    "yes", "comma_yes", "no", "polite", "confirm", "confirm_after", "refuse", "only", "only_after", "all", "both",
    "none", "neither", "except", "except_after", "not", "not_alone", "not_after", "but_not", "and", "from", "to",
    "to_after", "mark", "item", "item_after", "place", "group",
]  # fmt: skip
"""The use of a text in a selection of items of a plan, by the key of its list in a word file (README.md)."""

INTENTS: tuple[Intent, ...] = ("confirm", "cancel")
NAMES: Mapping[Intent, str] = {"confirm": "yes", "cancel": "no"}
CARRIER_WORDS = frozenset(
    {"cancel", "end", "optout", "quit", "revoke", "start", "stop", "stopall", "unstop", "unsubscribe", "yes"}
)
"""Words that opt the sender out or in at the carrier, before the gateway gets them (Twilio, "Advanced Opt-Out")."""
EVERY = "every"
UNKNOWN_VERB = ""
"""Stands in `no_verbs` for a prompt whose verb is not known."""
UNSPACED = frozenset({"ja", "th", "zh"})
"""Languages that are written without spaces between words."""

_BETWEEN = re.compile(r"[\s,.!—–]+")
_MODEL = re.compile(r"[a-z]{0,2}\d{1,3}[a-z+]?")
"""The name of a device's model: s21, 15, a52s."""
_BEFORE, _BEHIND, _BEFORE_END = " ,.{}", " ,.!{}", " ,."
"""The characters that may stand before a doubt, behind it, and before a word of changing at the end."""
_STEM = 4
_LONGEST_PART = 8
"""The most words of a part in `Parts`; in a language without spaces, its most characters."""


class Piece(NamedTuple):
    """One way to read a text that may be a part of an answer."""

    role: Role
    """``head``: a yes or a no. ``comma head``: a head that more follows only after a comma. ``ack``: a text that only
    acknowledges. ``after``: a text that counts only behind a head. ``phrase``: a whole answer; a cancelling one stands
    behind a head only after a comma. ``then``: a whole answer that needs no comma.
    """
    intent: Intent
    verb: str | None = None
    """The verb of the phrase, which must be that of the prompt; None: it has no verb."""
    no_verbs: frozenset[str] = frozenset()
    """The verbs of NO_VERBS to whose prompts the phrase is no answer, because it holds them."""
    repeats: bool = False
    """True for the verb alone, with or without its object: "delete it". An impatient repeat is no yes."""
    acknowledges: bool = False
    """True for a text that is no answer by itself, but may stand before or behind one: "exactly"."""


class Form(NamedTuple):
    """A form of a verb: "it is the imperative of delete"."""

    name: str
    verb: str


class PlanPart(NamedTuple):
    """One way to read a text that may be a part of a selection of items of a plan."""

    role: PlanRole
    number: int = 0
    """The place of an item, or the count of a group of items. It is negative if it counts from the end."""
    suffix: bool = False
    """True if it may follow other letters or digits in the same word."""
    prefix: bool = False
    """True if other letters or digits may follow it in the same word."""


@dataclass(frozen=True, slots=True)
class PlanWords:
    """The words that select items of a plan."""

    parts: Mapping[str, frozenset[PlanPart]]
    longest: int
    suffixes: tuple[str, ...]
    """The texts that may follow other letters or digits in the same word."""
    unclear: frozenset[str]
    """Whole messages that select no item, although their parts do."""
    supported: bool
    """True if the file of the language has these words. Else only digits and the plain yes and no count."""


@dataclass(frozen=True)
class Parts:
    """Folded texts that longer texts may be made of."""

    texts: frozenset[str]
    language: str

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(word for text in self.texts for word in self._cut(text))

    def make(self, text: str) -> bool:
        """Return True for a folded text that is made of these texts, in any order."""
        words = self._cut(text)
        if not words or not self._words.issuperset(words):
            return False
        reached, space = [True], "" if self.language in UNSPACED else " "
        for end in range(1, len(words) + 1):
            starts = range(max(0, end - _LONGEST_PART), end)
            reached.append(any(reached[at] and space.join(words[at:end]) in self.texts for at in starts))
        return reached[-1]

    def _cut(self, text: str) -> Sequence[str]:
        return text if self.language in UNSPACED else text.replace(",", " ").split()


@dataclass(frozen=True, slots=True)
class Continuing:
    """The words that go on behind a yes."""

    change: frozenset[str]
    """Texts right behind the yes that begin a change: but, not."""
    instead: frozenset[str]
    """Texts anywhere behind the yes that make it a change: instead."""
    add: frozenset[str]
    """Texts right behind the yes that begin something more: and, also."""
    too: frozenset[str]
    """Texts that add as well, but stand anywhere behind the yes: too."""
    suffixes: tuple[str, ...]
    """The same at the end of a word with a digit: Korean "8도"."""
    prefixes: frozenset[str]
    """Texts of `change`, `instead` and `add` that other letters follow in the same word: Arabic "and"."""


@dataclass(frozen=True, slots=True)
class Words:
    """The words of one language, in the form that `fold` gives."""

    language: str
    typed: tuple[str, str]
    """The yes and the no that a prompt asks to type with its code, as they are shown."""
    pieces: Mapping[str, frozenset[Piece]]
    polite: frozenset[str]
    """Texts that may stand before, behind and between the pieces of an answer."""
    polite_no: frozenset[str]
    """Texts of politeness that stand only beside a no: "thanks anyway"."""
    acknowledgements: frozenset[str]
    """Texts that alone only acknowledge: ok, sure."""
    near: Parts
    """Acknowledgements and politeness."""
    mere: Parts
    """Politeness that acknowledges nothing."""
    doubts: frozenset[str]
    """Texts that stand in no yes: "if possible", "maybe"."""
    doubtful_ends: frozenset[str]
    """Words of changing, which at the end of a text are a doubt too: "yes, but"."""
    closings: frozenset[str]
    """Texts that open a signature; a name may follow."""
    sent_from: tuple[tuple[str, str], ...]
    """The lines of phones and mail programs below a message: the texts before and behind the name of the device."""
    unclear: frozenset[str]
    """Whole messages that are no answer, although their pieces are."""
    unclear_joined: frozenset[str]
    """The same for messages that a comma turns into an answer: "não deixa", but "não, deixa"."""
    slots: Mapping[str, frozenset[Intent]]
    """Phrases with a verb, written as "{the name of its form}"."""
    repeats: frozenset[str]
    """Slots with only the verb, with or without its object."""
    forms: Mapping[str, frozenset[Form]]
    """Form of a verb -> the verbs that have it."""
    longest_form: int
    first: frozenset[str]
    """The words that a piece or a polite text begins with. A language without spaces has none, nor the next."""
    first_of_forms: frozenset[str]
    prefixed: bool
    """True if a verb may follow other letters in the same word."""
    plan: PlanWords
    continuing: Continuing
    going_on: tuple[str, ...]
    """Parts of the words of "continue", as in a bare text."""
    wanting: tuple[str, ...]
    """Parts of the words of "want" and "need", as in a bare text."""

    def says_nothing(self, text: str) -> bool:
        """Return True for a folded text that is no answer in this language, even if it is one in another."""
        return text.replace(",", "") in self.unclear or text in self.unclear_joined

    def says_to_go_on(self, text: str) -> bool:
        """Return True for a folded text with a word of "continue", which may be a no to "Stop the delivery?"."""
        bare = self._bare(text)
        return any(part in bare for part in self.going_on)

    def says_to_want(self, text: str) -> bool:
        """Return True for a folded text with a word of "want" or "need", whose no may be a yes: "I don't want it"."""
        bare = self._bare(text) if self.wanting else ""
        return any(part in bare for part in self.wanting)

    def hesitates(self, text: str) -> bool:
        """Return True for a folded text with a doubt, or with a word of changing at its end."""
        if not self.doubts:
            return False
        if not self.spaced:
            ends = text[1:].endswith(tuple(self.doubtful_ends))
            return ends or any(doubt in text for doubt in self.doubts)
        ends = any(text.endswith(tuple(f"{mark}{end}" for end in self.doubtful_ends)) for mark in _BEFORE_END)
        return ends or any(_has_word(text, doubt) for doubt in self.doubts if doubt in text)

    def _bare(self, text: str) -> str:
        """Return a text without marks and accents, with a space around each word."""
        return _BETWEEN.sub(" " if self.spaced else "", f" {unaccented(text)} ").replace("'", "")

    @property
    def spaced(self) -> bool:
        """True if the language is written with spaces between words."""
        return self.language not in UNSPACED


@dataclass(frozen=True, slots=True)
class Common:
    """The rules and words of all languages."""

    everywhere: Mapping[Intent, frozenset[str]]
    with_code: Mapping[Intent, str]
    exceptions: Mapping[str, frozenset[str]]
    """Language -> the words of `everywhere` that have another meaning in it."""
    same: Mapping[str, str]
    emoji: Mapping[str, frozenset[Intent]]
    """Emoji that may follow an answer -> the intents that it may follow."""
    devices: frozenset[str]
    going_on: Mapping[str, Sequence[str]]
    """Language -> parts of the words of "continue", as they are written; `EVERY`: the parts of all languages."""
    wanting: Mapping[str, Sequence[str]]
    """The same of "want" and "need"."""
    plan: Mapping[str, Any]
    """The signs that select items of a plan in every language."""

    def is_device(self, text: str) -> bool:
        """Return True for the folded name of a phone, a system or a mail program."""
        return all(
            word in self.devices or _MODEL.fullmatch(word) or word.startswith(self._stems) for word in text.split()
        )

    @property
    def _stems(self) -> tuple[str, ...]:
        """The names to which languages add endings: iPhonu, Samsung-puhelimesta."""
        return tuple(name[:-1] for name in self.devices if len(name) > _STEM)


def _has_word(text: str, word: str) -> bool:
    """Return True if these words stand in a text, and not as a part of longer ones."""
    at = text.find(word)
    while at >= 0:
        before, behind = text[at - 1 : at], text[at + len(word) : at + len(word) + 1]
        if before in _BEFORE and behind in _BEHIND:  # an empty one is an edge of the text
            return True
        at = text.find(word, at + 1)
    return False


_MOST_TEXTS = 60
_MOST_VARIED = 3
_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_COMMA = re.compile(r"\s*,\s*")


def texts(source: Mapping[str, Any], lang: str, key: str) -> Iterator[str]:
    """Yield the texts of a list, folded, with each choice written out."""
    for line in source.get(key, ()):
        folded = fold(line)  # once, instead of up to sixty texts
        yield from (_tidied(text, lang) for text in _expanded(folded))


def text_of(text: str, lang: str) -> str:
    """Return a text folded and tidied."""
    return _tidied(fold(text), lang)


def _tidied(text: str, lang: str) -> str:
    """Return a folded text with single spaces; in a language without spaces, without them."""
    text = unicodedata.normalize("NFC", _COMMA.sub(", ", text))
    return "".join(text.split()) if lang in UNSPACED else " ".join(text.split())


def _expanded(pattern: str) -> Iterator[str]:
    parts = _CHOICE.split(pattern)
    choices = [part.split("|") if place % 2 else [part] for place, part in enumerate(parts)]
    count = 1
    for choice in choices:
        count *= len(choice)
    if count > _MOST_TEXTS or "[" in "".join(parts) or "]" in "".join(parts):
        raise ValueError(f"{pattern!r} is {count} texts, or its brackets do not match: at most {_MOST_TEXTS}.")
    return ("".join(each) for each in product(*choices))


def spellings(text: str) -> set[str]:
    """Return a folded text, and the same with each word also without accents and apostrophes."""
    words = [sorted({word, _plain(word)}) for word in text.split()]
    if sum(len(each) > 1 for each in words) > _MOST_VARIED:
        return {text, " ".join(map(_plain, text.split()))}
    return {" ".join(each) for each in product(*words)}


@lru_cache(4096)
def _plain(word: str) -> str:
    return (word if word.isascii() else unaccented(word)).replace("'", "")
