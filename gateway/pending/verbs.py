"""The verbs of answers: which a text holds, and how it reads with the verb of the phrases (verbs.toml)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from gateway.pending.folding import base_language, fold, unaccented
from gateway.tools.verbs import VERBS

__all__ = ["check_verbs", "in_place", "verb_of", "verbs_in"]

_EXEMPLAR = "delete"
"""The verb that the phrases of words.toml are written with."""
_PRONOUNS = {"es": ("lo", "la", "los", "las"), "pt": ("-lo", "-la", "-los", "-las")}
_WORD = re.compile(r"[^\s,]+")
_TABLE: Mapping[str, Mapping[str, list[str]]] = tomllib.loads(
    files(__package__).joinpath("verbs.toml").read_text(encoding="utf-8")
)


class _Form(NamedTuple):
    verb: str
    place: str
    """The form of the verb."""


def in_place(text: str, lang: str) -> Iterator[tuple[str, str]]:
    """Yield the folded text with another verb's form replaced by the phrases' own, and which verb that was."""
    forms, own = _forms(lang)
    for match in _WORD.finditer(text):
        for form in forms.get(match[0], ()):
            if form.verb != _EXEMPLAR and form.place in own:
                for word in own[form.place]:
                    yield text[: match.start()] + word + text[match.end() :], form.verb


def verbs_in(text: str, lang: str) -> frozenset[str]:
    """Return the verbs that a folded text has a form of."""
    forms, _ = _forms(lang)
    return frozenset(form.verb for word in _WORD.findall(text) for form in forms.get(word, ()))


def verb_of(question: str, lang: str) -> str | None:
    """Return the verb that a question begins with, looked up in this language, then in English; None: none we know."""
    found = _WORD.search(fold(question).lstrip("¿¡*_\"'“«"))
    for language in dict.fromkeys((base_language(lang), "en")):
        forms, _ = _forms(language)
        verbs = {form.verb for form in forms.get(found[0] if found else "", ())}
        if len(verbs) == 1:
            return verbs.pop()
    return None


def check_verbs() -> None:
    """Raise ValueError when the table has other verbs than `VERBS`: the tests hold verbs.toml to it."""
    for lang, section in _TABLE.items():
        if different := VERBS.symmetric_difference(section):
            raise ValueError(f"verbs.toml: [{lang}] and VERBS differ in: {', '.join(sorted(different))}.")


@cache
def _forms(lang: str) -> tuple[dict[str, list[_Form]], dict[str, list[str]]]:
    """Return the forms by word, and the words of the phrases' own verb by form."""
    base = base_language(lang)
    forms: dict[str, list[_Form]] = {}
    own: dict[str, list[str]] = {}
    for verb, lines in _TABLE.get(base, {}).items():
        for line in lines:
            for place, word in _places(base, line.split()):
                if verb == _EXEMPLAR:
                    own.setdefault(place, []).append(word)
                for written in {word, unaccented(word)}:
                    forms.setdefault(written, []).append(_Form(verb, place))
    return forms, own


def _places(base: str, parts: list[str]) -> Iterator[tuple[str, str]]:
    parts = [fold(part) for part in parts]
    if base == "en":
        yield "base", parts[0]
        return
    if base == "es":
        imperative, infinitive, subjunctive, informal, formal = parts
        for pronoun in _PRONOUNS["es"]:
            yield f"informal {pronoun}", f"{informal}{pronoun}"
            yield f"formal {pronoun}", f"{formal}{pronoun}"
            yield f"infinitive {pronoun}", f"{infinitive}{pronoun}"
    else:
        imperative, subjunctive, infinitive, stem = parts
        for pronoun in _PRONOUNS["pt"]:
            yield f"infinitive {pronoun}", f"{stem}{pronoun}"
        for pronoun in ("-o", "-a", "-os", "-as"):
            yield f"subjunctive {pronoun}", f"{subjunctive}{pronoun}"
    yield from (("imperative", imperative), ("infinitive", infinitive), ("subjunctive", subjunctive))
