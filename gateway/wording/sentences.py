"""The sentences of each language, and the wording of a bot: a form of address, and the author's own sentences."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal, NamedTuple, TypeAlias

FALLBACK: Final = "en"

Sentence: TypeAlias = str | Mapping[str, str]
"""A sentence, or a sentence for each plural category of `{count}`."""
Tone: TypeAlias = Literal["formal", "familiar"]

_FILES: Final = files("gateway.wording")
_HEADING: Final = re.compile(r"# ── (?P<heading>.*) ──|(?P<name>\w+) = ")


class Spoken(NamedTuple):
    """The sentences of a language."""

    sentences: Mapping[str, str]
    """Name -> sentence, or the form `other` of a sentence with plural forms."""
    forms: Mapping[str, Mapping[str, str]]
    """Name -> plural category -> sentence."""

    def replaced(self, written: Mapping[str, Sentence]) -> Spoken:
        """Return these sentences, with the written ones in the place of those of the same names."""
        one = {name: each if isinstance(each, str) else each["other"] for name, each in written.items()}
        forms = {name: each for name, each in written.items() if not isinstance(each, str)}
        kept = {name: each for name, each in self.forms.items() if name not in written}
        return Spoken({**self.sentences, **one}, {**kept, **forms})


class _Languages(Mapping[str, Mapping[str, str]]):
    """A mapping of languages. Each language is read when its sentences are first used."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = dict.fromkeys(names)

    def __getitem__(self, language: str) -> Mapping[str, str]:
        if language not in self._names:
            raise KeyError(language)
        return read(language).sentences

    def __contains__(self, language: object) -> bool:
        return language in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


LANGUAGES: Final[Mapping[str, Mapping[str, str]]] = _Languages(
    sorted(file.name.removesuffix(".toml") for file in _FILES.iterdir() if file.name.endswith(".toml"))
)
"""Language -> name of a sentence -> the sentence, as the files have them. The languages are known at import."""


@cache
def read(language: str) -> Spoken:
    """Return the sentences of a language with a file. The first call blocks for a millisecond or two."""
    return Spoken({}, {}).replaced(_written(f"{language}.toml"))


@cache
def _in_tone(language: str, tone: Tone | None) -> Spoken:
    """Return the sentences of a language in a form of address. Without another form, the file's own sentences."""
    there = _FILES.joinpath(tone, f"{language}.toml") if tone is not None else None
    if there is None or not there.is_file():
        return read(language)
    return read(language).replaced(_written(f"{tone}/{language}.toml"))


@cache
def headings() -> Mapping[str, str]:
    """Return the heading of each sentence in the files, by name."""
    found: dict[str, str] = {}
    heading = ""
    for line in _text(f"{FALLBACK}.toml").splitlines():
        if (match := _HEADING.match(line)) is None:
            continue
        if match["heading"] is not None:
            heading = match["heading"]
        else:
            found[match["name"]] = heading
    return found


def _written(path: str) -> dict[str, Any]:
    return tomllib.loads(_text(path))


def _text(path: str) -> str:
    return _FILES.joinpath(path).read_text(encoding="utf-8")


class Wording:
    """The sentences of a bot: in a form of address, with the author's own in the place of some."""

    def __init__(self, tone: Tone | None = None, own: Mapping[str, Mapping[str, Sentence]] | None = None) -> None:
        """`tone` None: the form of address of each file. `own`: language -> name -> sentence, already checked."""
        self.tone: Final = tone
        self.own: Final[Mapping[str, Mapping[str, Sentence]]] = own or {}
        self._spoken: dict[str, Spoken] = {}

    def spoken(self, language: str) -> Spoken:
        """Return the sentences of a language with a file. The first call may block as `read` does."""
        found = self._spoken.get(language)
        if found is None:
            found = _in_tone(language, self.tone).replaced(self.own.get(language, {}))
            self._spoken[language] = found
        return found
