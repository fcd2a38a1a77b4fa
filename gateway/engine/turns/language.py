"""Language detection, for conversations without a language named by the bot or the platform."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Protocol

from channels.cancellable_threads import WORK, in_thread

_LEAST_LETTERS = 20
"""The least number of letters: a shorter text could be of several languages."""
_MOST_CHARACTERS = 1_000
"""The part of a text used for detection."""


class _Found(Protocol):
    language: str | None

    def is_reliable(self) -> bool: ...


class _Detector(Protocol):
    def detect(self, text: str) -> _Found: ...


_loaded: list[_Detector | None] = []
_loading = Lock()
_LOAD = "from eld import LanguageDetector; LanguageDetector()"


def prepare_detection() -> None:
    """Load the statistics of the languages once. Blocks for about 60 ms and takes 40 MB: call it in a thread.

    Without bytecode, compiling them takes two seconds and 370 MB. A separate process compiles them, and stores the
    bytecode if permitted.
    """
    with _loading:
        if not _loaded:
            _compile()
            _loaded[:] = [_detector()]


async def prepare_for(texts: Iterable[str]) -> None:
    """Load the statistics in a thread if a text is long enough. Most gateways never need them."""
    if not _loaded and any(map(_is_long_enough, texts)):
        await in_thread(prepare_detection, threads=WORK)


def detect_language(texts: Iterable[str]) -> str | None:
    """Return the language of these texts as a BCP 47 tag. None if no text is long enough, or the result is not sure.

    The first text with a sure result decides. None also before `prepare_detection`, and without the library (the extra
    ``languages``).
    """
    detector = _loaded[0] if _loaded else None
    if detector is None:
        return None
    for text in texts:
        if _is_long_enough(text):
            found = detector.detect(text[:_MOST_CHARACTERS])
            if found.language and found.is_reliable():
                return found.language
    return None


def _is_long_enough(text: str) -> bool:
    return sum(map(str.isalpha, text[:_MOST_CHARACTERS])) >= _LEAST_LETTERS


def _compile() -> None:
    """Compile the library in another process, unless bytecode exists."""
    spec = find_spec("eld")
    if spec is None or spec.cached is None or Path(spec.cached).exists():
        return
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run([sys.executable, "-c", _LOAD], env=variables, capture_output=True, timeout=60, check=False)  # noqa: S603


def _detector() -> _Detector | None:
    try:
        from eld import LanguageDetector
    except ImportError:
        return None
    detector: _Detector = LanguageDetector()
    return detector
