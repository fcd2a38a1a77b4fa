"""The memory of a conversation: the newest messages within limits, and a summary of the messages before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field

from gateway.config.options import checked
from gateway.memory.tokens import TokenCount, message_size
from gateway.providers import Completes
from gateway.providers.base import ModelMessage

_MOST_UNSUMMARIZED: Final = 200
"""The most dropped messages waiting for a summary. Only a failing model leaves more than a few messages waiting."""


class Cut(NamedTuple):
    """One cut of a trim, with the fields of `MemoryTrim`."""

    messages_removed: int
    messages_remaining: int
    reason: Literal["enforce_limits", "tool_pair_boundary"]


@dataclass(frozen=True, slots=True)
class Trim:
    """A conversation after a trim: the newest messages, the dropped messages before, and each cut."""

    kept: list[ModelMessage]
    dropped: list[ModelMessage]
    cuts: list[Cut]


class ConversationMemory:
    """The limits of a memory, and one conversation within the limits.

    In an Agent, the memory holds the conversation of `Agent.run`. In a chat only the limits count: each conversation
    has a separate history in the bot's store.

    The oldest messages are dropped, first by number and then by tokens. At least one message is kept. No call of a tool
    is separated from the result. Notes of the gateway (the role ``event``) count for neither limit.
    """

    @checked
    def __init__(
        self,
        max_messages: Annotated[int, Field(ge=1)] = 20,
        max_tokens: Annotated[int, Field(ge=1)] | None = None,
        *,
        summarize_on_trim: bool = False,
        summarize_provider: str | Completes | None = None,
        summarize_model: Annotated[str, Field(min_length=1)] | None = None,
        summarize_max_tokens: Annotated[int, Field(ge=1)] = 150,
    ) -> None:
        """Make a memory of at most `max_messages` messages and `max_tokens` tokens.

        `summarize_on_trim`: a small call to a model sums up the dropped messages in 2 or 3 sentences, of at most
        `summarize_max_tokens` tokens. `summarize_provider` is as for an Agent; None: the agent's own. Without a
        `summarize_model` the model is the provider's default, or with the agent's own provider the config's model.
        Raises WrongOption, a ValueError, for a limit below 1.
        """
        self.max_messages, self.max_tokens = max_messages, max_tokens
        self.summarize_on_trim, self.summarize_max_tokens = summarize_on_trim, summarize_max_tokens
        self.summarize_provider, self.summarize_model = summarize_provider, summarize_model
        self.summary: str | None = None
        """The summary of the dropped messages of this conversation."""
        self._messages: list[ModelMessage] = []
        self._unsummarized: list[ModelMessage] = []
        self._summaries, self._clears = 0, 0
        """The number of summaries that were set, and of calls of `clear`."""
        self._tokens = TokenCount()

    def add(self, message: ModelMessage) -> None:
        """Add a message to the conversation, and trim the conversation."""
        self.add_many([message])

    def add_many(self, messages: Iterable[ModelMessage]) -> None:
        """Add messages to the conversation, and trim the conversation."""
        self.append(messages, self._tokens)

    def get_history(self) -> list[ModelMessage]:
        """Return the messages of the conversation, oldest first."""
        return list(self._messages)

    def clear(self) -> None:
        """Forget the conversation and the summary."""
        self._messages, self._unsummarized, self.summary = [], [], None
        self._clears += 1

    def __len__(self) -> int:
        return len(self._messages)

    # ── for the agent and the engine ──

    def append(self, messages: Iterable[ModelMessage], tokens: TokenCount) -> Trim:
        """Add messages to the conversation, and return the trim. `tokens` counts from now on."""
        self._tokens = tokens
        trim = self.trim([*self._messages, *messages], tokens)
        self._messages = trim.kept
        if self.summarize_on_trim:
            self._unsummarized = [*self._unsummarized, *trim.dropped][-_MOST_UNSUMMARIZED:]
        return trim

    def trim(self, messages: Sequence[ModelMessage], tokens: TokenCount) -> Trim:
        """Return these messages within the limits. The conversation of this object does not count and stays."""
        limit = self._first_within(messages, tokens)
        first = _first_beginning(messages, limit)
        cuts = [Cut(limit, len(messages) - limit, "enforce_limits")] if limit else []
        if first > limit:
            cuts.append(Cut(first - limit, len(messages) - first, "tool_pair_boundary"))
        elif first < limit:
            cuts = [Cut(first, len(messages) - first, "enforce_limits")] if first else []
        return Trim(kept=list(messages[first:]), dropped=list(messages[:first]), cuts=cuts)

    def take_dropped(self) -> tuple[list[ModelMessage], tuple[int, int]]:
        """Take out the dropped messages without a summary, and the state of the summary for `put_summary`."""
        taken, self._unsummarized = self._unsummarized, []
        return taken, (self._summaries, self._clears)

    def put_summary(self, summary: str | None, taken: Sequence[ModelMessage], state: tuple[int, int]) -> bool:
        """Set the new summary, made with the `taken` messages. None: a failure, and the messages wait again.

        Return False if the summary is not set. A summary of another run may have been faster, and then the messages
        wait again. After `clear` the messages are forgotten.
        """
        summaries, clears = state
        if clears != self._clears:
            return False
        if summaries == self._summaries and summary is not None:
            self.summary = summary
            self._summaries += 1
            return True
        self._unsummarized = [*taken, *self._unsummarized][-_MOST_UNSUMMARIZED:]
        return False

    def _first_within(self, messages: Sequence[ModelMessage], tokens: TokenCount) -> int:
        """Return the index of the first message within the limits."""
        counted, used, most = 0, 0, self.max_messages
        room = None if self.max_tokens is None else tokens.size(self.max_tokens)
        for index in range(len(messages) - 1, -1, -1):
            message = messages[index]
            if message.role == "event":
                continue
            counted += 1
            used += message_size(message) if room is not None else 0
            if counted > most or (room is not None and used > room and counted > 1):
                return index + 1
        return 0


def _first_beginning(messages: Sequence[ModelMessage], begin: int) -> int:
    """Return the first index from `begin` on that separates no call from the result.

    Without any, return the last fitting index before `begin`, to keep at least one message.
    """
    whole = may_begin(messages)
    later = (index for index in range(begin, len(messages)) if whole[index])
    earlier = (index for index in range(begin - 1, -1, -1) if whole[index])
    return next(later, next(earlier, max(0, min(begin, len(messages) - 1))))


def may_begin(messages: Sequence[ModelMessage]) -> list[bool]:
    """Return for each index True if a conversation may begin there.

    A conversation may not begin at a result, at a reply with calls without a result, or between a call and the result.
    """
    calls = _calls_of(messages)
    answered = {(made, messages[index].call_id) for index, made in calls.items()}
    whole = [False] * len(messages)
    first = len(messages)
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        first = min(first, calls.get(index, first))
        lacks = any((index, call.call_id) not in answered for call in message.tool_calls)
        whole[index] = message.role != "tool" and not lacks and first >= index
    return whole


def without_halves(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return these messages without replies lacking a result of a call, and without results lacking the call."""
    calls = _calls_of(messages)
    answered = {(made, messages[index].call_id) for index, made in calls.items()}

    def is_half(index: int | None) -> bool:
        if index is None:
            return True
        if messages[index].role == "tool":
            return is_half(calls.get(index))
        return any((index, call.call_id) not in answered for call in messages[index].tool_calls)

    return [message for index, message in enumerate(messages) if not is_half(index)]


def _calls_of(messages: Sequence[ModelMessage]) -> dict[int, int]:
    """Return for the index of each result the index of the calling reply: the last reply with this call."""
    calls: dict[int, int] = {}
    made: dict[str | None, int] = {}
    for index, message in enumerate(messages):
        made |= {call.call_id: index for call in message.tool_calls}
        if message.role == "tool" and message.call_id in made:
            calls[index] = made[message.call_id]
    return calls
