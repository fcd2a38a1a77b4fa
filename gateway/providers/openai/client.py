"""A provider for OpenAI's models, and for compatible servers of Chat Completions (``OPENAI_BASE_URL``).

The vendor's own reasoning models are called by the Responses API, which takes their reasoning back between the calls of
tools. All other models, and all other servers, are called by Chat Completions.

Source of the rules: https://platform.openai.com/docs/api-reference/chat (requests, chunks, finish reasons) and
https://platform.openai.com/docs/guides/error-codes (errors).
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self
from urllib.parse import urlsplit

import openai

from gateway.providers.answer_schema import strict_schema
from gateway.providers.base import Request, Response, ToolSpec
from gateway.providers.event_streams import UNCOMPRESSED, corrected
from gateway.providers.history import without_echoes
from gateway.providers.openai.chat import OpenAIAnswer, chat_messages
from gateway.providers.openai.compat import LIMITS, VARIABLE, Compat, compat_of, known_of, refused_in
from gateway.providers.openai.responses import ResponsesAnswer, responses_parameters
from gateway.providers.refusals import texts_in
from gateway.providers.thoughts import AnswerText, shown
from gateway.providers.vendor import TRANSIENT, Vendor, VendorProvider
from gateway.structured import build_schema_instruction

log = logging.getLogger("askfirst.providers")

_VENDORS_MODEL = re.compile(r"(^|[/:])(gpt-|chatgpt-|o\d)")
"""The vendor's newer models, which refuse `max_tokens`.

See https://github.com/griptape-ai/ComfyUI-Griptape/issues/312. Some compatible servers know only `max_tokens`.
"""
_REASONS = re.compile(r"(^|[/:])(gpt-[5-9](?!.*-chat)|o\d)")
"""The vendor's reasoning models, which accept only the default temperature.

See https://github.com/glebm/i18n-tasks/issues/672. The hidden reasoning counts into the limit of a reply.
"""
_WITHOUT_SCHEMAS = re.compile(r"(^|[/:])(gpt-3|gpt-4(-|$)|o1-(mini|preview))")
"""The vendor's models without schema enforcement: https://platform.openai.com/docs/guides/structured-outputs."""
_NO_ITEM = re.compile(r"^Item with id \S+ not found")
_MOST_LEARNT = 4
"""The limit of repeated calls for one reply."""
_ROOM_TO_REASON = 8000
"""The tokens added for hidden reasoning, so a short limit does not end a reply before the first word."""


def _connected(**given: Any) -> openai.AsyncOpenAI:
    hooks = {"response": [corrected(_events, names_events=False)]}
    client = openai.DefaultAsyncHttpxClient(event_hooks=hooks, headers=UNCOMPRESSED)
    return openai.AsyncOpenAI(**given, http_client=client)


def _events(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the events of a whole answer of either API."""
    is_response = answer.get("object") == "response"
    yield {"type": "response.completed", "response": answer} if is_response else answer


_VENDOR = Vendor(
    name="openai",
    url="https://api.openai.com/v1",
    url_rule="does not end in the API's path (such as /v1)",
    example="gpt-5-mini",
    silences=(openai.APITimeoutError,),
    breaks=(openai.APIConnectionError,),
    answers=openai.APIError,
    others=openai.OpenAIError,
    connect=_connected,
    without_schemas=_WITHOUT_SCHEMAS,
    details=lambda error: ((error.code, error.type), error.param),
)


class OpenAIProvider(VendorProvider[openai.AsyncOpenAI]):
    """A provider over the vendor's library, without the library's retries: the agent's loop retries."""

    vendor, name = _VENDOR, _VENDOR.name

    def __init__(self, model: str, *, compat: Compat = frozenset(), **given: Any) -> None:
        """`compat`: the names not accepted by the server, of `compat.NAMES`; for the rest see VendorProvider."""
        super().__init__(model, **given)
        self._compat = compat | known_of(self._url)
        self._learnt: dict[str, Compat] = {}
        """Model -> the names not accepted by the model's server."""
        self._begin_thinking: set[str] = set()
        """The models with earlier answers beginning within thoughts."""

    @classmethod
    def from_environ(cls, model: str, environ: Mapping[str, str]) -> Self:
        """Make the provider as VendorProvider does, with ``OPENAI_COMPAT``. Raises ProviderConfigurationError."""
        made = super().from_environ(model, environ)
        made._compat |= compat_of(environ)
        return made

    async def complete(self, request: Request) -> Response:
        """Return the reply. Raises ProviderError.

        `timeout_seconds` limits the wait for the first byte and between any two.
        """
        model = request.model or self.model
        if self._responds(model):
            whole = ResponsesAnswer(_VENDOR)
            with _VENDOR.errors_mapped(request, self._secret):
                whole.end(await self._respond(request, model))
            return whole.response(model, self._url, self._clock())
        answer, text, learnt = OpenAIAnswer(), AnswerText(), list[str]()
        with _VENDOR.errors_mapped(request, self._secret):
            answer.add(await self._ask(request, model, learnt))
            answer.finish = answer.finish or ("stop" if answer.began else None)  # it arrived whole
        text.add(answer.text)
        response = self._said(answer.response(model, self._url, self._clock()), text, request, model)
        self._learn(model, learnt)
        return response

    async def stream(self, request: Request) -> AsyncIterator[str | Response]:
        """Yield the reply as Provider.stream does. `timeout_seconds` limits the time between any two chunks."""
        model = request.model or self.model
        if self._responds(model):
            async for item in self._response_stream(request, model):
                yield item
            return
        learnt: list[str] = []
        while True:
            answer, text = OpenAIAnswer(), AnswerText(waits=model in self._begin_thinking)
            with _VENDOR.errors_mapped(request, self._secret):
                try:
                    async with await self._ask(request, model, learnt, stream=True) as chunks:
                        async for chunk in chunks:
                            if piece := text.add(answer.add(chunk)):
                                yield piece
                except openai.APIError as error:  # some servers refuse a request within a stream
                    is_status = isinstance(error, openai.APIStatusError)
                    if is_status or answer.began or not self._refused(error, model, learnt):
                        raise
                    continue
            break
        response = self._said(answer.response(model, self._url, self._clock()), text, request, model)
        self._learn(model, learnt)
        if (rest := text.rest()) and response.content.endswith(rest):
            yield rest
        yield response

    def _said(self, response: Response, text: AnswerText, request: Request, model: str) -> Response:
        """Return the visible reply. Remember models with answers beginning within thoughts."""
        found = shown(self.name, response, text, request, model)
        if text.begins_thinking:
            self._begin_thinking.add(model)
        elif response.finish == "length" and model in self._begin_thinking:  # all of it is thought
            return replace(found, content="")
        elif response.content:
            self._begin_thinking.discard(model)
        return found

    def _responds(self, model: str) -> bool:
        return self._whole_api and _REASONS.search(model) is not None

    async def _response_stream(self, request: Request, model: str) -> AsyncIterator[str | Response]:
        answer = ResponsesAnswer(_VENDOR)
        with _VENDOR.errors_mapped(request, self._secret):
            async with await self._respond(request, model, stream=True) as events:
                async for event in events:
                    if piece := answer.add(event):
                        yield piece
        yield answer.response(model, self._url, self._clock())

    async def _respond(self, request: Request, model: str, **how: Any) -> Any:
        """Call the Responses API.

        The reasoning of earlier replies is left out if the vendor cannot read the reasoning any more: after a change to
        the key of another organization (https://github.com/experientiallabs/experiential/pull/965), and behind another
        server of the same API.
        """
        responses = (await self._connections.client()).responses
        try:
            return await responses.create(**responses_parameters(request, model, _ROOM_TO_REASON), **how)
        except openai.BadRequestError as error:
            if error.code != "invalid_encrypted_content" and not _NO_ITEM.search(" ".join(texts_in(error.body))):
                raise
        plain = without_echoes(request)
        return await responses.create(**responses_parameters(plain, model, _ROOM_TO_REASON), **how)

    async def _ask(self, request: Request, model: str, learnt: list[str], *, stream: bool = False) -> Any:
        """Call Chat Completions, anew without each refused parameter. Add the names of the parameters to `learnt`."""
        completions = (await self._connections.client()).chat.completions
        while True:
            parameters = _parameters(request, model, self._known(model, learnt), stream=stream)
            try:
                return await completions.create(**parameters)
            except openai.APIStatusError as error:
                if not self._refused(error, model, learnt, _named(parameters)):
                    raise

    def _known(self, model: str, learnt: Sequence[str]) -> Compat:
        return self._compat | self._learnt.get(model, frozenset()) | frozenset(learnt)

    def _refused(
        self, error: openai.APIError, model: str, learnt: list[str], sent: Collection[str] = frozenset()
    ) -> bool:
        """Add the name in a refusal to `learnt`. Return False if the refusal has no new name.

        A server's template may raise for the order of messages, with the status 500. A model's failed call is no
        refusal of a parameter.
        """
        status = getattr(error, "status_code", 500)
        if status not in (400, 422, 500) or any(map(TRANSIENT.search, _VENDOR.codes(error))):
            return False
        name = refused_in(error.body, sent if status != 500 else ())
        if name is None or name in self._known(model, learnt) or len(learnt) == _MOST_LEARNT:
            return False
        learnt.append(name)
        return True

    def _learn(self, model: str, names: Sequence[str]) -> None:
        """Remember these names after a successful answer."""
        if not names:
            return
        self._learnt[model] = self._learnt.get(model, frozenset()) | frozenset(names)
        log.warning(
            "openai: the server %s does not take %s for the model %s, and answers otherwise: %s=%s keeps it so",
            urlsplit(self._url).hostname,
            ", ".join(names),
            model,
            VARIABLE,
            ",".join(sorted(self._compat | self._learnt[model])),
        )


def _named(parameters: Mapping[str, Any]) -> set[str]:
    """Return the names of the parameters, also inside the format of the answer and the messages."""
    in_messages = {name for message in parameters["messages"] for name in message}
    return {*parameters, *parameters.get("response_format", {}).get("json_schema", {}), *in_messages}


def _parameters(request: Request, model: str, compat: Compat, *, stream: bool) -> dict[str, Any]:
    if request.schema is not None and "response_format" in compat:
        instruction = build_schema_instruction(request.schema)
        system = "\n\n".join(filter(None, [request.system, instruction]))
        request = replace(request, system=system, schema=None)
    parameters: dict[str, Any] = {"model": model, "messages": chat_messages(request, model, compat)}
    if stream:
        parameters["stream"] = True
        if "stream_options" not in compat:
            parameters["stream_options"] = {"include_usage": True}
    if request.tools:
        parameters["tools"] = [_tool(tool) for tool in request.tools]
    reasons = _REASONS.search(model) is not None
    if request.temperature is not None and not reasons and "temperature" not in compat:
        parameters["temperature"] = request.temperature
    if request.max_tokens is not None:
        limits = LIMITS[::-1] if _VENDORS_MODEL.search(model) else LIMITS
        limit = next((name for name in limits if name not in compat), limits[0])
        parameters[limit] = request.max_tokens + (_ROOM_TO_REASON if reasons else 0)
    if request.schema is not None:
        answer = {"name": "answer", "schema": strict_schema(request.schema), "strict": True}
        if "strict" in compat:
            del answer["strict"]
        parameters["response_format"] = {"type": "json_schema", "json_schema": answer}
    if request.timeout_seconds is not None:
        parameters["timeout"] = request.timeout_seconds
    return parameters


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


from_environ = OpenAIProvider.from_environ
