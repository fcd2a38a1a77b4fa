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
"""The use of a text in a selection of items of a plan, by the key of the text's list in a word file (README.md)."""

INTENTS: tuple[Intent, ...] = ("confirm", "cancel")
NAMES: Mapping[Intent, str] = {"confirm": "yes", "cancel": "no"}
CARRIER_WORDS = frozenset(
    {"cancel", "end", "optout", "quit", "revoke", "start", "stop", "stopall", "unstop", "unsubscribe", "yes"}
)
"""Opt-out and opt-in words of carriers, handled before the gateway (Twilio, "Advanced Opt-Out")."""
EVERY = "every"
UNKNOWN_VERB = ""
"""Stands in `no_verbs` for a prompt with an unknown verb."""
UNSPACED = frozenset({"ja", "th", "zh"})
"""Languages written without spaces between words."""

_BETWEEN = re.compile(r"[\s,.!—–]+")
_MODEL = re.compile(r"[a-z]{0,2}\d{1,3}[a-z+]?")
"""The name of a device's model: s21, 15, a52s."""
_BEFORE, _BEHIND, _BEFORE_END = " ,.{}", " ,.!{}", " ,."
"""The characters allowed before a doubt, after a doubt, and before a word of changing at the end."""
_STEM = 4
_LONGEST_PART = 8
"""The most words of a part in `Parts`; in a language without spaces, the most characters."""


class Piece(NamedTuple):
    """A possible reading of a text as a part of an answer."""

    role: Role
    """``head``: a yes or a no. ``comma head``: a head followed by more only after a comma. ``ack``: a text that only
    acknowledges. ``after``: a text that counts only behind a head. ``phrase``: a whole answer; a cancelling phrase
    stands behind a head only after a comma. ``then``: a whole answer without the need for a comma.
    """
    intent: Intent
    verb: str | None = None
    """The verb of the phrase, required to be the prompt's verb; None: no verb."""
    no_verbs: frozenset[str] = frozenset()
    """The verbs of NO_VERBS contained in the phrase. The phrase does not answer prompts of these verbs."""
    repeats: bool = False
    """True for the verb alone, with or without an object: "delete it". An impatient repeat is no yes."""
    acknowledges: bool = False
    """True for a text that is no answer alone, but may stand before or after an answer: "exactly"."""


class Form(NamedTuple):
    """A form of a verb: "it is the imperative of delete"."""

    name: str
    verb: str


class PlanPart(NamedTuple):
    """A possible reading of a text as a part of a selection of items of a plan."""

    role: PlanRole
    number: int = 0
    """The place of an item, or the size of a group of items. A negative number counts from the end."""
    suffix: bool = False
    """True if the text may follow other letters or digits in the same word."""
    prefix: bool = False
    """True if other letters or digits may follow the text in the same word."""


@dataclass(frozen=True, slots=True)
class PlanWords:
    """The words for selecting items of a plan."""

    parts: Mapping[str, frozenset[PlanPart]]
    longest: int
    suffixes: tuple[str, ...]
    """The texts allowed after other letters or digits in the same word."""
    unclear: frozenset[str]
    """Whole messages without any selected item, although their parts select items."""
    supported: bool
    """True if the file of the language has these words. Else only digits and the plain yes and no count."""


@dataclass(frozen=True)
class Parts:
    """Folded texts that longer texts may consist of."""

    texts: frozenset[str]
    language: str

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(word for text in self.texts for word in self._cut(text))

    def make(self, text: str) -> bool:
        """Return True for a folded text made of these texts, in any order."""
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
    """The words after a yes that continue the answer."""

    change: frozenset[str]
    """Texts right behind the yes, beginning a change: but, not."""
    instead: frozenset[str]
    """Texts anywhere behind the yes, turning the answer into a change: instead."""
    add: frozenset[str]
    """Texts right behind the yes, beginning an addition: and, also."""
    too: frozenset[str]
    """Texts of adding anywhere behind the yes: too."""
    suffixes: tuple[str, ...]
    """The same at the end of a word with a digit: Korean "8도"."""
    prefixes: frozenset[str]
    """Texts of `change`, `instead` and `add` followed by other letters in the same word: Arabic "and"."""


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a language, in the form made by `fold`."""

    language: str
    typed: tuple[str, str]
    """The yes and the no to be typed with the code of a prompt, as shown."""
    pieces: Mapping[str, frozenset[Piece]]
    polite: frozenset[str]
    """Texts allowed before, after and between the pieces of an answer."""
    polite_no: frozenset[str]
    """Texts of politeness allowed only beside a no: "thanks anyway"."""
    acknowledgements: frozenset[str]
    """Texts that only acknowledge when alone: ok, sure."""
    near: Parts
    """Acknowledgements and politeness."""
    mere: Parts
    """Politeness that acknowledges nothing."""
    doubts: frozenset[str]
    """Texts excluded from every yes: "if possible", "maybe"."""
    doubtful_ends: frozenset[str]
    """Words of changing, also a doubt at the end of a text: "yes, but"."""
    closings: frozenset[str]
    """Texts at the start of a signature; a name may follow."""
    sent_from: tuple[tuple[str, str], ...]
    """The lines of phones and mail programs below a message: the texts before and after the name of the device."""
    unclear: frozenset[str]
    """Whole messages that are no answer, although made of pieces."""
    unclear_joined: frozenset[str]
    """The same for messages turned into an answer by a comma: "não deixa", but "não, deixa"."""
    slots: Mapping[str, frozenset[Intent]]
    """Phrases with a verb, written as "{the name of the verb's form}"."""
    repeats: frozenset[str]
    """Slots with only the verb, with or without an object."""
    forms: Mapping[str, frozenset[Form]]
    """Form of a verb -> the verbs with this form."""
    longest_form: int
    first: frozenset[str]
    """The first words of pieces and polite texts. Empty for a language without spaces, like `first_of_forms`."""
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
        """Return True for a folded text that is no answer in this language, but possibly in another."""
        return text.replace(",", "") in self.unclear or text in self.unclear_joined

    def says_to_go_on(self, text: str) -> bool:
        """Return True for a folded text with a word of "continue", possibly a no to "Stop the delivery?"."""
        bare = self._bare(text)
        return any(part in bare for part in self.going_on)

    def says_to_want(self, text: str) -> bool:
        """Return True for a folded text with a word of "want" or "need": a no may be a yes, "I don't want it"."""
        bare = self._bare(text) if self.wanting else ""
        return any(part in bare for part in self.wanting)

    def hesitates(self, text: str) -> bool:
        """Return True for a folded text with a doubt, or with a word of changing at the end."""
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
        """True if the language separates words by spaces."""
        return self.language not in UNSPACED


@dataclass(frozen=True, slots=True)
class Common:
    """The rules and words of all languages."""

    everywhere: Mapping[Intent, frozenset[str]]
    with_code: Mapping[Intent, str]
    exceptions: Mapping[str, frozenset[str]]
    """Language -> the words of `everywhere` with another meaning in this language."""
    same: Mapping[str, str]
    emoji: Mapping[str, frozenset[Intent]]
    """Emoji allowed after an answer -> the intents of these answers."""
    devices: frozenset[str]
    going_on: Mapping[str, Sequence[str]]
    """Language -> parts of the words of "continue", as written; `EVERY`: the parts of all languages."""
    wanting: Mapping[str, Sequence[str]]
    """The same of "want" and "need"."""
    plan: Mapping[str, Any]
    """The signs for selecting items of a plan in every language."""

    def is_device(self, text: str) -> bool:
        """Return True for the folded name of a phone, a system or a mail program."""
        return all(
            word in self.devices or _MODEL.fullmatch(word) or word.startswith(self._stems) for word in text.split()
        )

    @property
    def _stems(self) -> tuple[str, ...]:
        """The names used with endings in some languages: iPhonu, Samsung-puhelimesta."""
        return tuple(name[:-1] for name in self.devices if len(name) > _STEM)


def _has_word(text: str, word: str) -> bool:
    """Return True if these words stand in a text, not as a part of longer words."""
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
    """Return a folded text with single spaces; in a language without spaces, without any."""
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
