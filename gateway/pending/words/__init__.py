"""The words for answers to prompts: a file for each language, in the form explained in README.md of this folder.

No file is read at import. `make words` compiles the files; the compiled words of a language are read at first use, and
block for a millisecond or two. Call `prepare` in a thread to read the words beforehand.
"""

from __future__ import annotations

import re
import threading
import tomllib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import orjson

from gateway.pending.folding import base_language, fold, unaccented
from gateway.pending.words.compiling import read
from gateway.pending.words.table import (
    CARRIER_WORDS,
    INTENTS,
    NAMES,
    UNKNOWN_VERB,
    Common,
    Form,
    Intent,
    Piece,
    PlanPart,
    PlanRole,
    PlanWords,
    Words,
)

__all__ = [
    "CARRIER_WORDS",
    "INTENTS",
    "UNKNOWN_VERB",
    "Common",
    "Form",
    "Heads",
    "Intent",
    "Piece",
    "PlanPart",
    "PlanRole",
    "PlanWords",
    "Words",
    "common",
    "heads",
    "is_answer",
    "languages",
    "prepare",
    "safe_words",
    "verb_of",
    "words_of",
]

_LONGEST_VERB = 3
"""The most words of a verb."""
_LONGEST_VERB_UNSPACED = 8
"""The most characters of a verb in a language without spaces."""
_HERE = files(__name__)
COMPILED = _HERE / "compiled"
_words: dict[str, Words] = {}
_reading = threading.Lock()


@dataclass(frozen=True, slots=True)
class Heads:
    """The plain yes and no of every language: the generated file index.json."""

    readings: Mapping[str, Mapping[str, Intent]]
    """Folded word -> language -> its meaning in this language."""
    typed: Mapping[str, tuple[str, str]]
    """Language -> the yes and the no to be typed with the code of a prompt."""


@cache
def languages() -> tuple[str, ...]:
    """Return the languages with a file, sorted."""
    names = (file.name.removesuffix(".toml") for file in _HERE.iterdir() if file.name.endswith(".toml"))
    return tuple(sorted(name for name in names if name != "common"))


@cache
def common() -> Common:
    """Return the contents of common.toml."""
    source = tomllib.loads((_HERE / "common.toml").read_text(encoding="utf-8"))
    everywhere, emoji = source["everywhere"], source["emoji"]
    listed = {intent: {fold(each) for each in emoji[name]} for intent, name in NAMES.items()}
    return Common(
        everywhere={intent: frozenset(map(fold, everywhere[name])) for intent, name in NAMES.items()},
        with_code={intent: fold(everywhere["with_code"][name]) for intent, name in NAMES.items()},
        exceptions={lang: frozenset(map(fold, words)) for lang, words in everywhere["except"].items()},
        same=source["same"],
        going_on=source["going_on"],
        wanting=source["wanting"],
        emoji={
            each: frozenset(intent for intent in INTENTS if each in listed[intent])
            for each in sorted(listed["confirm"] | listed["cancel"], key=len, reverse=True)
        },
        devices=frozenset(
            spelling(fold(word)) for word in source["signature"]["devices"] for spelling in (str, unaccented)
        ),
        plan=source["plan"],
    )


@cache
def heads() -> Heads:
    """Return the plain yes and no of every language."""
    source = orjson.loads((_HERE / "index.json").read_bytes())
    readings: dict[str, dict[str, Intent]] = defaultdict(dict)
    for lang, entry in source.items():
        for intent in INTENTS:
            for text in entry[intent]:
                readings[text][lang] = intent
    typed = {lang: (yes, no) for lang, entry in source.items() for yes, no in [entry["typed"]]}
    return Heads(dict(readings), typed)


def words_of(lang: str) -> Words:
    """Return the words of a language, given as a BCP 47 tag; the region does not matter.

    A language without a file has only the words valid everywhere.
    """
    name = _name(lang)
    if name not in _words:
        _words[name] = read((COMPILED / f"{name}.json").read_bytes())
    return _words[name]


def prepare(*tags: str) -> None:
    """Read the words of these languages. This call blocks: use a thread. Concurrent calls read the words once."""
    with _reading:
        heads()
        for tag in tags:
            words_of(tag)


def safe_words(lang: str) -> tuple[str, str]:
    """Return the yes and the no to be typed with the code of a prompt. No carrier acts on these words."""
    typed = heads().typed
    return typed.get(_name(lang)) or typed["en"]


def is_answer(word: str) -> bool:
    """Return True for a word that any language, or a carrier, reads as an answer or an opt-out."""
    text = fold(word)
    everywhere = {*common().with_code.values(), *CARRIER_WORDS}.union(*common().everywhere.values())
    return text in everywhere or text in heads().readings


def verb_of(question: str, lang: str) -> str | None:
    """Return the verb at the beginning of a question, looked up in this language, then in English; None: unknown."""
    text = fold(question).lstrip("¿¡*_\"'“«「")
    for language in dict.fromkeys((base_language(lang), "en")):
        words = words_of(language)
        parts = (
            re.findall(r"[^\s,?!.;:؟？]+", text)[:_LONGEST_VERB]
            if words.spaced
            else list(text[:_LONGEST_VERB_UNSPACED])
        )
        for count in range(len(parts), 0, -1):
            forms = words.forms.get((" " if words.spaced else "").join(parts[:count]), ())
            if len(found := {form.verb for form in forms}) == 1:
                return found.pop()
    return None


def _name(tag: str) -> str:
    """Return the name of the words of a tag: "-" without a file, "-lv" if the language also has an exception."""
    base = base_language(tag)
    base = common().same.get(base, base)
    return base if base in languages() else f"-{base}" if base in common().exceptions else "-"
