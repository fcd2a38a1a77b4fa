"""Streams of compatible servers in other forms, through the libraries."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from gateway.providers import Provider, ProviderError, Response
from gateway.providers.event_streams import _with_names
from tests.fakes.model_server import ModelServer, Raw
from tests.providers.vendors import ASKED, LIGHTS, VENDORS, Vendor

CHUNKS: list[dict[str, Any]] = [
    {"choices": [{"index": 0, "delta": {"content": "Hel"}}]},
    {"choices": [{"index": 0, "delta": {"content": "lo"}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
]
MESSAGE: dict[str, Any] = {
    "id": "m1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "Hello"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 2},
}
EVENTS: list[dict[str, Any]] = [
    {"type": "message_start", "message": {**MESSAGE, "content": []}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
]
WHOLE = {
    "id": "c1",
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
}


def lines(events: list[dict[str, Any]], *, between: str = "", end: str = "\n") -> str:
    written = [f"data: {json.dumps(each)}{end}{end}" for each in events]
    return between + between.join(written) + between


SHAPES = [
    ("openai", Raw(lines(CHUNKS, between="data:\n\n") + "data: [DONE]\n\n", "text/event-stream")),
    ("openai", Raw(lines(CHUNKS, between="data: ping\n\n") + "data: [DONE]\n\n", "text/event-stream")),
    ("openai", Raw(lines(CHUNKS, end="\r\n") + "data: [DONE]\r\n\r\n", "text/event-stream")),
    ("openai", Raw(lines(CHUNKS, end="\r") + "data: [DONE]\r\r", "text/event-stream")),
    ("openai", Raw("\ufeff" + lines(CHUNKS) + "data: [DONE]\n\n", "text/event-stream")),
    ("openai", Raw("retry: 3000\nid: 1\n\n" + lines(CHUNKS, between="\n\n"), "text/event-stream")),
    ("openai", Raw(lines(CHUNKS, between="event: ping\ndata:\n\n"), "text/event-stream")),
    ("openai", Raw("\n".join(f"data: {json.dumps(each)}" for each in CHUNKS), "text/event-stream")),
    ("openai", Raw(json.dumps(WHOLE, indent=2), "application/json")),
    ("anthropic", Raw(lines(EVENTS), "text/event-stream")),
    ("anthropic", Raw(lines(EVENTS, between=": keep-alive\n\n"), "text/event-stream")),
    ("anthropic", Raw("event: message\n" + lines(EVENTS, between="event: message\n"), "text/event-stream")),
    ("anthropic", Raw(lines(EVENTS).rstrip(), "text/event-stream")),
    ("anthropic", Raw(lines(EVENTS, between="event: x\n", end="\n").replace("\n\n", "\n"), "text/event-stream")),
    ("anthropic", Raw(json.dumps(MESSAGE, indent=2), "application/json")),
]


@pytest.mark.parametrize(("vendor", "answer"), [(VENDORS[name], answer) for name, answer in SHAPES])
async def test_answer_in_another_form_of_stream_arrives(
    vendor: Vendor, answer: Raw, model: ModelServer, provider: Provider
) -> None:
    model.script([answer])
    items = [item async for item in provider.stream(ASKED)]
    assert "".join(item for item in items if isinstance(item, str)) == "Hello"
    (response,) = [item for item in items if isinstance(item, Response)]
    assert (response.content, response.finish) == ("Hello", "stop")


@pytest.mark.parametrize("vendor", [VENDORS["openai"], VENDORS["anthropic"]], ids=["openai", "anthropic"])
@pytest.mark.parametrize(
    "error",
    [
        {"type": "error", "error": {"type": "api_error", "message": "the GPU is gone"}},
        {"detail": "the GPU is gone"},
        {"code": 500, "message": "the GPU is gone"},
    ],
)
async def test_error_in_place_of_a_stream_has_the_words_of_the_server(
    vendor: Vendor, error: dict[str, Any], model: ModelServer, provider: Provider
) -> None:
    model.script([Raw(json.dumps(error), "application/json")])
    with pytest.raises(ProviderError, match="the GPU is gone"):
        _ = [item async for item in provider.stream(ASKED)]


@pytest.mark.parametrize("vendor", [VENDORS["openai"]])
@pytest.mark.parametrize("key", ["message", "detail"])
async def test_error_of_length_in_a_stream_is_known_in_any_field(
    vendor: Vendor, key: str, model: ModelServer, provider: Provider
) -> None:
    model.script([Raw(lines([{key: "maximum context length is 100 tokens"}]), "text/event-stream")])
    with pytest.raises(ProviderError) as failed:
        _ = [item async for item in provider.stream(ASKED)]
    assert (failed.value.refusal, failed.value.taken_tokens) == ("too_long", 100)


async def test_long_event_in_small_pieces_takes_linear_time() -> None:
    text = b"data: " + json.dumps({"x": "a" * 1_000_000}).encode() + b"\n\n"

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(text), 100):
            yield text[at : at + 100]

    class Stream(httpx2.AsyncByteStream):
        def __aiter__(self) -> AsyncIterator[bytes]:
            return pieces()

    began = time.process_time()
    assert b"".join([piece async for piece in _with_names(Stream(), False)]) == text
    assert time.process_time() - began < 1


async def test_default_named_stream_asks_for_no_stream(vendor: Vendor, model: ModelServer, provider: Provider) -> None:
    """Only the field of the request itself asks for a stream."""
    tool = replace(LIGHTS, parameters={**LIGHTS.parameters, "default": {"stream": True}})
    model.script(["Hello"])
    assert (await provider.complete(replace(ASKED, tools=[tool]))).content == "Hello"


async def test_deep_answer_is_an_error_of_the_provider(vendor: Vendor, model: ModelServer, provider: Provider) -> None:
    model.script([Raw("data: " + "[" * 200_000 + "\n\n", "text/event-stream")])
    with pytest.raises(ProviderError):
        _ = [item async for item in provider.stream(ASKED)]
