"""Extraction: a model takes facts out of the messages of a conversation, for later turns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar, Final, Literal, Protocol, TypeAlias, runtime_checkable

from pydantic import Field

from channels import Json
from gateway.providers import Completes
from gateway.providers.aside import Aside
from gateway.providers.base import ModelMessage, ProviderError

Positive: TypeAlias = Annotated[int, Field(ge=1)]
"""The type of a limit in the settings of a memory."""
ModelName: TypeAlias = Annotated[str, Field(min_length=1)]
Extracts: TypeAlias = Literal["entities", "relations"]

_MOST_OF_A_MESSAGE: Final = 2000
"""The most characters of one message for the model."""
_MOST_TOKENS: Final = 800
"""The tokens of the reply with the facts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """The value of a memory after an extraction."""

    value: Json
    count: int
    """The number of facts in the reply."""


@runtime_checkable
class Extraction(Protocol):
    """A memory of one conversation, filled by a model from the messages of each turn."""

    extracts: ClassVar[Extracts]
    system: ClassVar[str]
    """The instruction for the extracting model."""
    provider: str | Completes | None
    model: str | None
    relevance_window: int
    alone: Json
    """The value for `Agent.run`, which has no store."""
    runs: int
    """The number of calls to a model behind `alone`."""

    def learn(self, known: Json, reply: str, *, at: datetime, turn: int) -> Learned:
        """Return the value with the facts of a model's reply. Raises ValueError for an unreadable reply."""
        ...

    def lines(self, known: Json, about: str) -> list[str]:
        """Return the lines of the memory's section, for a turn `about` this text."""
        ...


def about(messages: Sequence[ModelMessage], memory: Extraction) -> str:
    """Return the text of the last messages, for a memory to choose the lines of the memory's section."""
    return "\n".join(message.content for message in with_words(messages)[-memory.relevance_window :])


def with_words(messages: Iterable[ModelMessage]) -> list[ModelMessage]:
    """Return the messages of people and of the bot with a text. A memory reads and counts no others."""
    return [message for message in messages if message.role in ("user", "assistant") and message.content]


async def extract(
    memory: Extraction, aside: Aside, known: Json, messages: Sequence[ModelMessage], *, at: datetime, turn: int
) -> Learned:
    """Return the value of a memory with the facts of these messages, by one small call to a model.

    `messages` come from `with_words`. `aside` has the provider, the model, the timeout and the book of the usage.
    `turn`: the number of this call. Raises ProviderError, also for an unreadable reply. The caller then keeps the
    earlier value.
    """
    response = await aside.ask(_conversation_text(messages), system=memory.system, max_tokens=_MOST_TOKENS)
    try:
        return memory.learn(known, response.content, at=at, turn=turn)
    except ValueError as error:
        fault = f"the {memory.extracts} of its reply cannot be read"
        raise ProviderError(aside.provider.name, fault, retryable=True) from error


def _conversation_text(messages: Iterable[ModelMessage]) -> str:
    """Return the texts of messages as one JSON array."""
    said = [
        {"role": message.role, "text": message.content[:_MOST_OF_A_MESSAGE]}
        | ({"speaker": message.speaker} if message.speaker else {})
        for message in messages
    ]
    return json.dumps(said, ensure_ascii=False)


def one_line(text: str, most: int) -> str:
    """Return a text as one line of at most so many characters."""
    return " ".join(text.split())[:most]
