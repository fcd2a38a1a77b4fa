"""The offline demo model: no network and no key, for the tools of any bot.

The demo reads the tools' names, descriptions and JSON Schemas, compares them with the person's message (English,
Spanish, Portuguese), and puts results into words. The demo has no knowledge of any bot and no state: the request is the
only input.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import date, datetime

from gateway.providers.base import (
    ModelMessage,
    ProviderConfigurationError,
    Request,
    Response,
    ToolCall,
    Usage,
)
from gateway.providers.demo.answers import ask_for, say, small_talk, tell
from gateway.providers.demo.choice import Context, IncompleteOrder, Order, choose, completed
from gateway.providers.demo.schema import ID
from gateway.providers.demo.words import NOTHING, fold, label

__all__ = ["DemoProvider", "from_environ"]


def from_environ(model: str, environ: Mapping[str, str]) -> DemoProvider:
    """Make the provider. Raises ProviderConfigurationError when a model is named: the demo has none."""
    if model:
        raise ProviderConfigurationError("demo", f"it has no models to choose from; write demo instead of demo:{model}")
    return DemoProvider(today=lambda: datetime.now().astimezone().date())


class DemoProvider:
    """A deterministic provider with rules. `today` returns the day for counting "tomorrow"."""

    name = "demo"

    def __init__(self, *, today: Callable[[], date]) -> None:
        self._today = today

    async def complete(self, request: Request) -> Response:
        """Return the reply. Never raises ProviderError."""
        content, calls = _Reply(request, self._today()).make()
        return Response(
            content=content, tool_calls=calls, usage=Usage(), model=self.name, finish="tools" if calls else "stop"
        )

    async def stream(self, request: Request) -> AsyncIterator[str | Response]:
        """Yield the text word by word, as a model would."""
        response = await self.complete(request)
        for piece in re.findall(r"\s*\S+\s*", response.content):
            yield piece
        yield response

    async def close(self) -> None:
        """Do nothing: the demo has no connections."""


class _Reply:
    """The answer to one request."""

    def __init__(self, request: Request, today: date) -> None:
        self._tools, self._language, self._today = request.tools, request.language, today
        self._messages = [m for m in request.messages if m.content or m.tool_calls or m.role == "tool"]

    def make(self) -> tuple[str, tuple[ToolCall, ...]]:
        last = max((i for i, message in enumerate(self._messages) if message.role == "user"), default=-1)
        since = self._messages[last + 1 :]
        results = [message for message in since if message.role == "tool"]
        if results:
            return "\n\n".join(tell(message.content, self._language) for message in _newest(results, since)), ()
        if last < 0 or since:
            return "\n\n".join(m.content for m in since if m.role == "event") or self._say_nothing_new(), ()
        return self._answer(last)

    def _say_nothing_new(self) -> str:
        return small_talk("", self._tools, self._language)

    def _answer(self, last: int) -> tuple[str, tuple[ToolCall, ...]]:
        text = self._messages[last].content
        match self._understood(last):
            case IncompleteOrder() as asked:
                return ask_for(asked.tool, asked.missing, self._language), ()
            case [*wanted] if wanted:
                return "", tuple(self._calls([*self._wanted_before(last), *wanted], last))
            case _ if NOTHING.fullmatch(fold(text)) and self._question_before(last):
                return say(self._language, "dropped"), ()
        return small_talk(text, self._tools, self._language), ()

    def _wanted_before(self, last: int) -> list[Order]:
        """Return the calls in the unanswered messages right before `last`. Each message must be a clear order."""
        wanted: list[Order] = []
        for at in range(last - 1, -1, -1):
            if self._messages[at].role == "event":
                continue
            wants = self._understood(at) if self._messages[at].role == "user" else None
            if not isinstance(wants, list) or not wants:
                break
            wanted[:0] = wants
        return wanted

    def _understood(self, at: int) -> list[Order] | IncompleteOrder | None:
        """Return the calls wanted by a user message. The message may answer an earlier question of the demo."""
        text, context = self._messages[at].content, self._context(at)
        wants = choose(text, self._tools, context)
        if isinstance(wants, list) or NOTHING.fullmatch(fold(text)):
            return wants if isinstance(wants, list) else None
        if question := self._question_before(at):
            answered = completed(question, text, context)
            if answered:
                return [answered] if isinstance(answered, Order) else answered
        return wants

    def _question_before(self, at: int) -> IncompleteOrder | None:
        """Return the question in the demo's message before this message, made again from the earlier messages."""
        if at < 2 or self._messages[at - 1].role != "assistant" or self._messages[at - 2].role != "user":
            return None
        said = self._messages[at - 1].content
        if not any(f"**{label(tool.name)}**" in said for tool in self._tools):
            return None
        before = self._understood(at - 2)
        if isinstance(before, IncompleteOrder) and ask_for(before.tool, before.missing, self._language) == said:
            return before
        return None

    def _context(self, at: int) -> Context:
        mentioned = [list(dict.fromkeys(_ids(message))) for message in self._messages[:at]]
        single = [ids[0] for ids in mentioned if len(ids) == 1]
        known = [one for ids in reversed(mentioned) for one in ids]
        return Context(today=self._today, known=known, it=single[-1] if single else None)

    def _calls(self, wanted: Sequence[Order], last: int) -> Iterator[ToolCall]:
        number = 0
        for want in wanted:
            for arguments in want.arguments:
                number += 1
                yield ToolCall(call_id=f"demo_{last}_{number}", name=want.tool.name, args=arguments)


def _newest(results: Sequence[ModelMessage], since: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
    """Return the results of the last reply with tool calls."""
    calls = [{call.call_id for call in message.tool_calls} for message in since if message.tool_calls]
    return [message for message in results if not calls or message.call_id in calls[-1]] or results


def _ids(message: ModelMessage) -> Iterator[str]:
    """Yield the ids in a message, including the arguments of the calls."""
    yield from ID.findall(message.content)
    for call in message.tool_calls:
        for value in call.args.values():
            if isinstance(value, str) and ID.fullmatch(value):
                yield value
