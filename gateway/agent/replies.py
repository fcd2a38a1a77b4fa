"""The replies of the model in one turn: send the fitting part of the conversation, and record each reply."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson

from channels import Json, Media
from gateway.agent.aside import Expenses
from gateway.agent.caching import hit
from gateway.agent.compress import ContextCompressor
from gateway.agent.config import ModelSelector
from gateway.agent.journal import Progress
from gateway.agent.model import ModelCaller
from gateway.agent.spec import AgentSpec
from gateway.agent.window import fitted
from gateway.artifacts.pictures import HEAD_BYTES, picture_type
from gateway.logs import describe_error
from gateway.memory.tokens import size
from gateway.observe.events import IterationStart, LlmEnd, MemoryTrim, ModelSwitch
from gateway.observe.teller import RunTeller
from gateway.providers import FallbackProvider
from gateway.providers.answer_schema import asking_for
from gateway.providers.base import ModelMessage, Provider, ProviderError, Request, Response, Usage
from gateway.structured import (
    ResponseFormat,
    parse_and_validate,
    schema_from_response_format,
)

SHOWN_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"})
"""The types accepted by both vendors. https://platform.claude.com/docs/en/build-with-claude/vision and
https://platform.openai.com/docs/guides/images-vision."""
LARGEST_IMAGE: Final = 5_000_000
"""In bytes. Anthropic takes 5 MB for one picture, OpenAI more."""
LARGEST_PDF: Final = 15_000_000
_MOST_FILES: Final = 10
_MOST_BYTES: Final = 20_000_000
"""The bytes of all files of a call. In base64 the files stay below Anthropic's 32 MB for a request."""
ReadFile: TypeAlias = Callable[[Media], Awaitable[bytes | None]]
"""Returns the bytes of a file; None for a missing file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineMedia(Media):
    """A file with inline bytes, for a run outside of a chat."""

    content: bytes


def image_message(image: Path | bytes, prompt: str) -> ModelMessage:
    """Return a message with a picture or a PDF for `Agent.run`, to pass in a list: ``run([message])``.

    Raises OSError for an unreadable file, and ValueError for a file not accepted by models.
    """
    content = image.read_bytes() if isinstance(image, Path) else image
    pdf = "application/pdf" if content.startswith(b"%PDF-") else ""
    mime_type = picture_type(content[:HEAD_BYTES]) or pdf
    media = InlineMedia(
        sha256=hashlib.sha256(content).hexdigest(),
        mime_type=mime_type,
        filename=image.name if isinstance(image, Path) else f"file.{mime_type.rpartition('/')[2]}",
        size=len(content),
        content=content,
    )
    if not is_shown(media):
        kind = mime_type or "another type"
        raise ValueError(
            f"a model takes PNG, JPEG, GIF and WebP pictures of at most {LARGEST_IMAGE // 10**6} MB, "
            f"and PDFs of at most {LARGEST_PDF // 10**6} MB; these {len(content)} bytes are {kind}"
        )
    return ModelMessage(role="user", content=prompt, files=(media,))


async def read_contents(messages: Sequence[ModelMessage], read: ReadFile | None) -> Mapping[str, bytes]:
    """Return the bytes of the newest files of these messages, by hash, up to the limits of a call."""
    contents: dict[str, bytes] = {}
    left = _MOST_BYTES
    for message in reversed(messages):
        for file in message.files:
            if len(contents) == _MOST_FILES or file.size > left or not is_shown(file):
                continue
            content = file.content if isinstance(file, InlineMedia) else await read(file) if read is not None else None
            if content is not None and file.sha256 not in contents:
                contents[file.sha256] = content
                left -= len(content)
    return contents


def is_shown(file: Media) -> bool:
    """Return True for a file of an accepted type and size."""
    most = LARGEST_PDF if file.mime_type == "application/pdf" else LARGEST_IMAGE
    return file.mime_type in SHOWN_TYPES and 0 < file.size <= most


_CUT_OFF = "the answer was cut off at its length limit: give a shorter one"
_REFUSED = "the model refused to answer"


async def answer_format(response_format: ResponseFormat) -> AnswerFormat:
    """Return the format of an answer, made in a thread: checking the schema loads a library.

    Raises as `schema_from_response_format` does.
    """
    key = _key(response_format)
    if (known := _KNOWN.get(key)) is None:
        known = AnswerFormat(response_format, await asyncio.to_thread(schema_from_response_format, response_format))
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = known
    return known


def _key(response_format: ResponseFormat) -> object:
    if isinstance(response_format, type):
        return response_format
    try:
        return orjson.dumps(response_format, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # no JSON, which is refused
        return object()


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """A response format with its JSON Schema."""

    response_format: ResponseFormat
    schema: Mapping[str, Json]

    def asked_of(self, provider: Provider, request: Request) -> Request:
        """Return the request with the format; see `asking_for`."""
        return asking_for(provider, request, self.schema)

    def read(self, response: Response) -> Any:
        """Return the value of an answer. Raises ValueError with the faults."""
        if response.finish == "refused":
            raise ValueError(_REFUSED)
        try:
            return parse_and_validate(response.content, self.response_format)
        except ValueError:
            if response.finish == "length":
                raise ValueError(_CUT_OFF) from None
            raise


_KNOWN: Final[dict[object, AnswerFormat]] = {}
"""The formats of this process by model, or by the JSON of the schema."""
_MOST_KNOWN: Final = 256


log = logging.getLogger(__name__)

_UNBOUNDED_TOKENS: Final = 4_096
"""The estimated length of an answer without a configured limit."""


@dataclass(slots=True, kw_only=True)
class Replies:
    """The replies of the model in one turn. `request` is the last request, without the messages of the turn."""

    spec: AgentSpec
    events: RunTeller
    caller: ModelCaller
    progress: Progress
    expenses: Expenses | None
    request: Request
    answer_format: AnswerFormat | None
    person: str
    read_file: ReadFile | None
    compressor: ContextCompressor | None
    """Sums up the older messages, if configured."""

    async def reply(self, number: int, messages: Sequence[ModelMessage], used: Usage) -> tuple[Response, bool]:
        """Return the `number`-th reply, to the conversation and these messages of the turn. The flag marks a new reply.

        A reply recorded by an earlier attempt at the turn is not requested again. Raises ProviderError, Stopped.
        """
        conversation = (*self.request.messages, *messages)
        await self.events.tell(IterationStart, iteration=number, messages=conversation)
        if (response := self.progress.reply(number)) is None:
            return await self._ask(number, conversation, used), True
        name = response.usage.provider or self.caller.provider.name
        await self.events.tell(
            LlmEnd, response=response, usage=response.usage, provider=name, duration_ms=0.0, from_checkpoint=True
        )
        return response, False

    def estimate(self, messages: Sequence[ModelMessage]) -> Usage:
        """Return the estimated usage of a call with these messages of the turn."""
        request, window = self.request, self.spec.window
        prompt = window.tokens_of(request, (*request.messages, *messages))
        answer = _UNBOUNDED_TOKENS if request.max_tokens is None else request.max_tokens
        return Usage(prompt_tokens=min(prompt, window.most_tokens(request.model)), completion_tokens=answer)

    async def _ask(self, number: int, messages: Sequence[ModelMessage], used: Usage) -> Response:
        """Return the model's reply to the largest fitting part of the conversation.

        After a refusal as too long, a shorter part is tried once. Raises ProviderError, Stopped.
        """
        window, request = self.spec.window, await self._request(number, messages, used)
        since = len(self.request.messages) - 1  # the question, and all that the turn added
        if self.compressor is not None:
            whole = len(messages)
            messages = await self.compressor.compress(request, messages, since)
            since -= whole - len(messages)
        kept = fitted(messages, window.room(request), since)
        await self._tell_trim(messages, kept, "the conversation is larger than the window")
        fitting = replace(request, messages=tuple(kept), contents=await read_contents(kept, self.read_file))
        try:
            response = await self._reply_to(fitting, number)
        except ProviderError as error:
            if error.refusal == "invalid" and fitting.contents:
                return await self._ask_without_files(fitting, number, error)
            if error.refusal != "too_long":
                raise
            shorter = fitted(messages, window.was_too_large(fitting, error), since)
            if size(shorter) >= size(kept):
                raise
            await self._tell_trim(messages, shorter, "the model refused the conversation as too long")
            fitting = replace(request, messages=tuple(shorter), contents=await read_contents(shorter, self.read_file))
            response = await self._reply_to(fitting, number)
        if response.usage.prompt_tokens:
            window.counted(fitting, response.usage.prompt_tokens)
        return response

    async def _ask_without_files(self, request: Request, number: int, refusal: ProviderError) -> Response:
        """Ask again with the files named only: a model without picture support refuses the whole request.

        Raises ProviderError, Stopped.
        """
        log.warning("the model refused a request with files, and is asked again without them: %s", refusal)
        return await self._reply_to(replace(request, contents={}), number)

    async def _reply_to(self, request: Request, number: int) -> Response:
        """Return the reply to a request, from the cache if present, unless the run streams."""
        caching, caller = self.spec.caching, self.caller
        if caching is None or caller.on_text is not None:
            return await caller.call(request, number, self._record)
        ask = partial(caller.call, request, number, self._record)
        if (key := caching.reply_key(caller.provider, request, self.person)) is None:
            return await ask()
        response, is_hit = await caching.reply(key, ask, caller.stopping, self._has_format)
        if not is_hit:
            return response
        response = hit(response)
        await self._record(response)
        await caller.tell_hit(request, response)
        return response

    def _has_format(self, response: Response) -> bool:
        if self.answer_format is None or response.tool_calls:
            return True
        try:
            self.answer_format.read(response)
        except ValueError:
            return False
        return True

    async def _record(self, response: Response) -> None:
        """Count a new reply. Record a reply with calls to run."""
        self.spec.meter.add(response.usage)
        if self.expenses is not None:
            self.expenses.add(response.usage)
        if response.tool_calls and not self.spec.config.routing_only:
            await self.progress.replied(response)

    async def _request(self, number: int, messages: Sequence[ModelMessage], used: Usage) -> Request:
        """Return the request of the next call, with the chosen model and the answer's format."""
        request, selector = self.request, self.spec.config.model_selector
        if selector is not None and not isinstance(self.caller.provider, FallbackProvider):
            model = _selected(selector, number, messages, used) or self.spec.config.model
            if model != request.model:
                old, new = request.model or "", model or ""
                await self.events.tell(ModelSwitch, iteration=number, old_model=old, new_model=new)
                request = self.request = replace(request, model=model)
        return request if self.answer_format is None else self.answer_format.asked_of(self.caller.provider, request)

    async def _tell_trim(self, messages: Sequence[ModelMessage], kept: Sequence[ModelMessage], reason: str) -> None:
        if len(kept) < len(messages):
            removed = len(messages) - len(kept)
            await self.events.tell(MemoryTrim, messages_removed=removed, messages_remaining=len(kept), reason=reason)


def _selected(selector: ModelSelector, number: int, messages: Sequence[ModelMessage], used: Usage) -> str | None:
    try:
        return selector(number, messages, used)
    except Exception as error:  # noqa: BLE001 - the config's own model can still be asked
        log.warning("model_selector raised %s: the agent's own model is asked", describe_error(error))
        return None
