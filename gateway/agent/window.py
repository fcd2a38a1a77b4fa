"""The window: the fitting end of a conversation for the model's context.

The limit of a model is counted in tokens (`memory/tokens.py`). The limit comes from the agent's configuration, or from
the vendor's refusal of a too long request. A refusal without a number halves the window. Learnt limits hold until the
process ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gateway.memory.tokens import TokenCount, message_size, size
from gateway.providers.base import ModelMessage, ProviderError, Request

MOST_BYTES = 200_000
"""The window of a model with an unknown limit, in bytes: about 50,000 tokens."""
LEAST_BYTES = 24_000
"""The window after a refusal without a number, in bytes: about 6,000 tokens, the size for a small local model beside
tools and answer."""
_LEAST_ROOM = 8_000
"""The least room for messages, in bytes. A model with less room can hold no conversation."""
_USED_SHARE = 0.95
"""The usable share of the limit: later text may have more tokens than earlier text."""
_LARGEST_SHARE = 4
"""One message takes at most this fraction of the window: 1/4."""
_LEAST_OF_A_MESSAGE = 400


@dataclass(slots=True)
class Window:
    """The known limits of one agent's models."""

    context_tokens: int | None = None
    """The limit of the configuration, for the prompt and the answer together."""
    _learnt: dict[str | None, int] = field(default_factory=dict)
    """The limits in tokens learnt from refusals, by model."""
    counts: bool = False
    """True if the token count also serves other limits."""
    tokens: TokenCount = field(default_factory=TokenCount)

    def room(self, request: Request) -> int:
        """Return the most bytes for the messages of this request, beside system text, tools and answer."""
        limit = self._limit(request.model)
        if limit is None:
            return MOST_BYTES
        answer = min(request.max_tokens or 0, limit // 2)
        most = self.tokens.size((limit - answer) * _USED_SHARE)
        return max(_LEAST_ROOM, most - _fixed_size(request))

    def tokens_of(self, request: Request, messages: Sequence[ModelMessage]) -> int:
        """Return the tokens of this request with these messages, including system text and tools."""
        return self.tokens.tokens(_fixed_size(request) + size(messages))

    def most_tokens(self, model: str | None) -> int:
        """Return the limit of a model, for the prompt and the answer together."""
        return self._limit(model) or self.tokens.tokens(MOST_BYTES)

    def counted(self, request: Request, prompt_tokens: int) -> None:
        """Take the vendor's token count of a request, if a limit depends on token counts."""
        if self.counts or self._limit(request.model) is not None:
            self.tokens.learn(_fixed_size(request) + size(request.messages), prompt_tokens)

    def was_too_large(self, request: Request, refusal: ProviderError) -> int:
        """Learn from a refusal as too long, and return the bytes for the messages of the next try."""
        sent = _fixed_size(request) + size(request.messages)
        self.tokens.learn(sent, refusal.sent_tokens or 0)
        half = self.tokens.tokens(max(LEAST_BYTES, sent // 2))
        known = self._limit(request.model)
        told = refusal.taken_tokens
        self._learnt[request.model] = min(known or told or half, told or half)
        return self.room(request) if told else min(LEAST_BYTES, self.room(request))

    def _limit(self, model: str | None) -> int | None:
        return self._learnt.get(model, self.context_tokens)


def fitted(messages: Sequence[ModelMessage], most: int, since: int | None = None) -> Sequence[ModelMessage]:
    """Return the end of a conversation within `most` bytes.

    The part begins with a person's message or a note. The last message of a person up to the index `since` and all
    messages after it are always included. None: the last message of all, possibly a correction of the model's answer.
    Too long texts are cut, with a note in the text. No call of a tool is separated from the result.
    """
    if size(messages) <= most:
        return messages
    starts = _starts(messages, len(messages) if since is None else since)
    kept = [_cut(message, most // _LARGEST_SHARE) for message in messages]
    sizes = [message_size(message) for message in kept]
    total, first = sum(sizes), 0
    for start in starts:
        if total <= most:
            break
        total -= sum(sizes[first:start])
        first = start
    kept = kept[first:]
    share = most // _LARGEST_SHARE
    while size(kept) > most and share > _LEAST_OF_A_MESSAGE:
        share //= 2
        kept = [_cut(message, share) for message in kept]
    return kept


def _starts(messages: Sequence[ModelMessage], since: int) -> list[int]:
    """Return the possible first indexes of the kept part.

    A kept part may begin at a person's message or at a note, up to the last message of a person not after `since`,
    except between a call and the result of the call.
    """
    starts: list[int] = []
    apart, spoken = False, False
    for index in range(len(messages) - 1, 0, -1):
        role = messages[index].role
        spoken = spoken or (role == "user" and index <= since)
        if role in ("assistant", "tool"):
            apart = role == "tool"
        elif spoken and not apart:
            starts.append(index)
    return starts[::-1]


def _fixed_size(request: Request) -> int:
    """Return the size of the constant part of an agent's calls, in bytes: the system text and the tools."""
    tools = sum(len(tool.name) + len(tool.description) + len(str(tool.parameters)) for tool in request.tools)
    return len(request.system.encode("utf-8", "replace")) + tools


def _cut(message: ModelMessage, most: int) -> ModelMessage:
    data = message.content.encode("utf-8", "replace")
    if len(data) <= most:
        return message
    begin = data[:most].decode("utf-8", "ignore")
    left_out = len(message.content) - len(begin)
    return replace(
        message, content=f"{begin}\n[{left_out} characters left out here: too long for the model]", echo=None
    )
