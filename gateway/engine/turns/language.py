"""Language detection, for conversations whose language neither the bot nor the platform names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

_LEAST_LETTERS = 20
"""The least number of letters: a shorter text could be of several languages."""
_MOST_CHARACTERS = 1_000
"""The part of a text that is looked at."""


class _Found(Protocol):
    language: str | None

    def is_reliable(self) -> bool: ...


class _Detector(Protocol):
    def detect(self, text: str) -> _Found: ...


_loaded: list[_Detector | None] = []


def prepare_detection() -> None:
    """Load the statistics of the languages once. It blocks for some 60 ms and takes 50 MB: call it in a thread."""
    if not _loaded:
        _loaded[:] = [_detector()]


def detect_language(texts: Iterable[str]) -> str | None:
    """Return the language of these texts as a BCP 47 tag. None if no text is long enough, or the result is not sure.

    The first text with a sure result decides. None also before `prepare_detection`, and without the library (the extra
    ``languages``).
    """
    detector = _loaded[0] if _loaded else None
    if detector is None:
        return None
    for text in texts:
        beginning = text[:_MOST_CHARACTERS]
        if sum(map(str.isalpha, beginning)) >= _LEAST_LETTERS:
            found = detector.detect(beginning)
            if found.language and found.is_reliable():
                return found.language
    return None


def _detector() -> _Detector | None:
    try:
        from eld import LanguageDetector
    except ImportError:
        return None
    detector: _Detector = LanguageDetector()
    return detector
