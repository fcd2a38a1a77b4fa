"""The feedback on a decision: the name of a sentence, worded where it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.wording import say

__all__ = ["PressFeedback"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PressFeedback:
    """The feedback on a decision. After a press, it goes to the presser alone; after a reply, to the chat."""

    key: str
    """The name of the sentence in `gateway.wording`."""
    values: Mapping[str, str | int] = field(default_factory=dict)
    language: str | None = None
    """The language of the action that the sentence is about; None: it is about none, and in the reader's language."""
    told: bool = False
    """True if the chat has been told already, so that it gets no feedback."""

    def text(self, language: str) -> str:
        """Return the sentence for a reader of this language."""
        return say(self.key, self.language or language, **self.values)
