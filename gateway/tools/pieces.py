"""The values of a generator, joined to one text within bounds."""

from __future__ import annotations

from typing import Any, Final

from gateway.tools.errors import OutcomeUnknown

__all__ = ["MOST_CHARACTERS", "Pieces"]

MOST_CHARACTERS: Final = 1_000_000
"""The most characters that the values of one generator may have together."""
_MOST_PIECES: Final = 100_000
"""The most values of one generator. An async one that awaits nothing would otherwise hold the event loop for ever."""


class Pieces:
    """The values that a generator has yielded."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._characters = 0

    def add(self, value: Any) -> str:
        """Take a value, and return it as text.

        Raises OutcomeUnknown for one value too many: the generator is closed where it stands.
        """
        text = str(value)
        self._characters += len(text)
        if self._characters > MOST_CHARACTERS or len(self._texts) == _MOST_PIECES:
            raise OutcomeUnknown("it was stopped, because it yielded more than a result can hold")
        self._texts.append(text)
        return text

    def joined(self) -> str:
        """Return the values as one text."""
        return "".join(self._texts)
