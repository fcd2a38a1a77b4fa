"""Tool calls as text: the contract, the reader of a call, and a stream never showing a call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import Agent
from gateway.providers import (
    KnowsModels,
    ModelMessage,
    Provider,
    ProviderError,
    Request,
    Response,
    ToolCall,
    ToolSpec,
    make_provider,
)
from gateway.providers.text_calls import MOST_CHARACTERS, TextCallsProvider, call_in
from gateway.tools import tool
from tests.agent.scripted import told
from tests.fakes.model_server import Break, ModelServer, Say
from tests.providers.vendors import ASKED, LIGHTS, Vendor, streamed, user

each = pytest.mark.parametrize
OFF = 'TOOL_CALL {"tool_name": "switch", "parameters": {"lamp": "hall"}}'


@dataclass
class Says:
    """A provider with these pieces of text; the request is kept."""

    pieces: list[str]
    finish: Any = "stop"
    name: str = "says"
    request: Request | None = None

    async def complete(self, request: Request) -> Response:
        self.request = request
        return Response(content="".join(self.pieces), finish=self.finish)

    async def stream(self, request: Request) -> AsyncIterator[str | Response]:
        for piece in self.pieces:
            yield piece
        yield await self.complete(request)

    async def close(self) -> None: ...


def only_call(text: str) -> ToolCall:
    call = call_in(text, "1")[1]
    assert call is not None
    return call


# ── a call in a text ──


@pytest.mark.ledger("CALL-06", "CALL-07")
@each(
    ("text", "name", "args"),
    [
        (
            'TOOL_CALL\n{"tool_name": "search", "parameters": {"query": "Python tutorials"}}',
            "search",
            {"query": "Python tutorials"},
        ),
        ('TOOL_CALL {"tool":"x","params":{"a":{"b":1}}}', "x", {"a": {"b": 1}}),
        ('TOOL_CALL {"tool_name":"x","parameters":{"q":"a } b"}}', "x", {"q": "a } b"}),
        ('TOOL_CALL {"tool_name":"x","parameters":{"q":"{ \\" { TOOL_CALL {"}}', "x", {"q": '{ " { TOOL_CALL {'}),
        ('TOOL_CALL: {"name": "x"}', "x", {}),
        ('TOOL_CALL\n```json\n{"tool_name": "x", "parameters": {}}\n```\nDone.', "x", {}),
        ('TOOL_CALL {"tool_name": "x"} TOOL_CALL {"tool_name": "y"}', "x", {}),
        ('TOOL_CALL now: TOOL_CALL {"tool_name": "y"}', "y", {}),
    ],
)
def test_a_call_is_the_json_object_behind_the_marker(text: str, name: str, args: dict[str, Any]) -> None:
    call = only_call(text)
    assert (call.name, call.args, call.parse_error) == (name, args, None)


@pytest.mark.ledger("CALL-06")
def test_text_before_a_call_is_kept() -> None:
    before, call = call_in('I look.\n\nTOOL_CALL\n{"tool_name": "x", "parameters": {"a": 1}}\nDone.', "id-1")
    assert (before, call) == ("I look.", ToolCall(call_id="id-1", name="x", args={"a": 1}))


@pytest.mark.ledger("CALL-06", "CALL-07")
@each(
    "text",
    [
        "hello",
        "",
        'The format {"name": "bob"} is JSON',
        '```json\n{"tool_name": "x", "parameters": {}}\n```',
        "I would write TOOL_CALL and then JSON.",
        'TOOL_CALLS {"tool_name": "x"}',
        'tool_call {"tool_name": "x"}',
        'TOOL_CALL ["x"]',
        "TOOL_CALL",
    ],
)
def test_marker_without_an_object_behind_it_is_no_call(text: str) -> None:
    assert call_in(text, "1") == (text, None)


@pytest.mark.ledger("CALL-07")
@each(
    ("json_text", "error"),
    [
        ('{"tool_name": "x", "parameters": {"q": "a "b""}}', "not valid JSON: line 1, column 44"),
        ("{'tool_name': 'x'}", "not valid JSON: line 1, column 2"),
        ('{"tool_name": "x", "parameters": {', "not valid JSON"),
        ('{"tool_name": "x", "parameters": {"n": NaN}}', "NaN is not a JSON value"),
        ('{"tool_name": "x", "parameters": [1]}', "parameters is not a JSON object"),
        ('{"parameters": {}}', "tool_name is missing"),
        ('{"tool_name": 7}', "tool_name is missing"),
        ('{"a":' * 1500, "not valid JSON"),
    ],
)
def test_a_call_that_cannot_be_read_has_a_parse_error(json_text: str, error: str) -> None:
    call = only_call(f"TOOL_CALL {json_text}")
    assert call.parse_error is not None
    assert error in call.parse_error
    assert call.args == {}


@pytest.mark.ledger("CALL-07")
def test_a_longer_payload_is_not_parsed() -> None:
    around = len('{"tool_name": "x", "parameters": {"q": ""}}')
    payload = json.dumps({"tool_name": "x", "parameters": {"q": "y" * (MOST_CHARACTERS - around)}})
    assert len(payload) == 8000
    assert only_call(f"TOOL_CALL {payload} and more").name == "x"
    longer = only_call(f"TOOL_CALL {payload.replace('yy', 'yyy', 1)}")
    assert (longer.args, longer.parse_error) == ({}, "no JSON object within 8000 characters")


TEXTS = st.lists(
    st.one_of(
        st.sampled_from(["TOOL_CALL", "TOOL_", "CALL", ":", " ", "\n", "```", "```json\n", "`", "{", "}", '"', "\\"]),
        st.sampled_from(['{"tool_name": "x"}', OFF, "T", "TOO", "[", "NaN", "1e999", "\ud800"]),
        st.text(max_size=8),
    ),
    max_size=12,
).map("".join)


@pytest.mark.ledger("CALL-07")
@given(TEXTS)
def test_no_text_fails_and_none_calls_without_the_marker(text: str) -> None:
    before, call = call_in(text, "1")
    assert text.startswith(before)
    assert call is None or "TOOL_CALL" in text[len(before) :]
    assert call_in(text.replace("TOOL_CALL", "TOOL CALL"), "1")[1] is None


@given(TEXTS, st.lists(st.integers(1, 9), min_size=1, max_size=9))
async def test_a_stream_shows_the_same_text_and_never_a_call(text: str, sizes: list[int]) -> None:
    pieces: list[str] = []
    at = 0
    while at < len(text):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(text[at : at + size])
        at += size
    provider = TextCallsProvider(Says(pieces))
    whole = await provider.complete(ASKED)
    shown, response = await streamed(provider)
    assert ("".join(shown), response) == (whole.content, whole)
    assert call_in(whole.content, "1")[1] is None


@given(TEXTS)
async def test_text_that_begins_no_call_is_shown_at_once(text: str) -> None:
    """Only the marker and a possible call behind it waits, with the space before."""
    shown = "".join((await streamed(TextCallsProvider(Says([text, "."]))))[0])
    assert shown == call_in(f"{text}.", "1")[0]


async def test_prose_is_streamed_piece_by_piece() -> None:
    shown, _ = await streamed(TextCallsProvider(Says(["All ", "TOOLS are ", "TOOL", "_BOXES."])))
    assert shown == ["All", " TOOLS are", " TOOL_BOXES."]


# ── the request and the reply ──


@pytest.mark.ledger("CALL-02", "CALL-03", "CALL-04")
async def test_the_contract_and_the_schemas_follow_the_instructions() -> None:
    model = Says(["hello"])
    timer = ToolSpec(name="timer", description="Wait.", parameters={"type": "object", "properties": {}})
    await TextCallsProvider(model).complete(Request(system="Be brief.", messages=[user("hi")], tools=[LIGHTS, timer]))
    assert model.request is not None
    assert model.request.tools == ()
    stable, _, schemas = model.request.system.partition("\n\nAvailable tools (JSON schema)\n")
    assert stable.startswith("Be brief.\n\n")
    for rule in (
        'TOOL_CALL {"tool_name": ',
        "every required parameter",
        "Then stop",
        "wait for them before the final answer",
        "Ask for missing details",
        "Do not invent results",
        "one tool at a time",
        "at most 8000 characters",
    ):
        assert rule in stable
    assert [json.loads(line) for line in schemas.splitlines()] == [
        {"name": each.name, "description": each.description, "parameters": each.parameters} for each in (LIGHTS, timer)
    ]


async def test_without_tools_there_is_no_contract() -> None:
    model = Says(["hello"])
    await TextCallsProvider(model).complete(Request(system="Be brief.", messages=[user("hi")]))
    assert model.request == Request(system="Be brief.", messages=(user("hi"),))


async def test_earlier_calls_and_results_are_text() -> None:
    model = Says(["Done."])
    off, lost = ToolCall(call_id="1", name="switch", args={"lamp": "hall"}), ToolCall(call_id="2", name="switch")
    said = [
        user("off"),
        ModelMessage(role="assistant", content="Both.", tool_calls=(off, lost), echo={"provider": "says"}),
        ModelMessage(role="tool", content="it is off", call_id="1", tool_name="switch"),
        user("thanks"),
    ]
    await TextCallsProvider(model).complete(Request(messages=said, tools=[LIGHTS]))
    assert model.request is not None
    assert model.request.messages == (
        user("off"),
        ModelMessage(
            role="assistant",
            content=f'Both.\n{OFF}\nTOOL_CALL {{"tool_name": "switch", "parameters": {{}}}}',
        ),
        ModelMessage(role="event", content="Result of switch:\nit is off"),
        ModelMessage(role="event", content="Result of switch:\nNo result was recorded for this call."),
        user("thanks"),
    )


@each(("finish", "then", "calls"), [("stop", "tools", 1), ("length", "length", 1), ("refused", "refused", 0)])
async def test_a_reply_that_was_cut_off_or_refused_stays_so(finish: str, then: str, calls: int) -> None:
    response = await TextCallsProvider(Says([f"Off it goes. {OFF}"], finish)).complete(ASKED)
    assert (response.finish, len(response.tool_calls)) == (then, calls)


async def test_the_vendors_lookup_is_passed_on(vendor: Vendor, model: ModelServer, provider: Provider) -> None:
    text = TextCallsProvider(provider)
    assert isinstance(text, KnowsModels)
    assert await text.knows(timeout_seconds=5)
    model.models = {"another"}
    with pytest.raises(ProviderError, match=f"{vendor.name}: 404"):
        await text.knows(timeout_seconds=5)
    assert not await TextCallsProvider(Says([])).knows(timeout_seconds=5)


# ── a run, with the vendors' own clients ──


@tool
async def switch(lamp: str) -> str:
    """Switch a lamp.

    Args:
        lamp: The lamp.
    """
    return f"{lamp} is off"


async def text_spec(monkeypatch: pytest.MonkeyPatch, vendor: Vendor, model: ModelServer) -> Provider:
    monkeypatch.setenv(f"{vendor.name.upper()}_API_KEY", model.key)
    monkeypatch.setenv(f"{vendor.name.upper()}_BASE_URL", model.url)
    return await asyncio.to_thread(make_provider, f"text+{vendor.name}:{vendor.model}")


@pytest.mark.ledger("CALL-01", "CALL-06")
@each("stream", [False, True])
@pytest.mark.parametrize("vendor", ["openai", "anthropic"], indirect=True)
async def test_text_calls_use_tools(
    monkeypatch: pytest.MonkeyPatch, vendor: Vendor, model: ModelServer, stream: bool
) -> None:
    model.script([f"I switch it off.\n{OFF}\nThe lamp was on.", "The hall is dark."])
    provider = await text_spec(monkeypatch, vendor, model)
    agent = Agent([switch], provider=provider, instructions="Be brief.")
    if stream:
        *pieces, last = [piece async for piece in agent.stream("lights off")]
        result: Any = last
        assert "".join(piece.text for piece in pieces) == "I switch it off.The hall is dark."  # type: ignore[union-attr]
    else:
        result = await agent.run("lights off")
    await provider.close()
    assert (result.content, result.provider_used, result.iterations) == ("The hall is dark.", vendor.name, 2)
    assert [(call.name, call.args) for call in result.tool_calls] == [("switch", {"lamp": "hall"})]
    assert [request.get("tools") for request in model.requests] == [None, None]
    first, second = (json.dumps(request) for request in model.requests)
    assert "Available tools (JSON schema)" in first
    assert "hall is off" in second
    assert "The lamp was on" not in second


@pytest.mark.parametrize("vendor", ["openai", "anthropic"], indirect=True)
async def test_malformed_json_goes_back(monkeypatch: pytest.MonkeyPatch, vendor: Vendor, model: ModelServer) -> None:
    model.script(["TOOL_CALL {'tool_name': 'switch'}", OFF, "Done."])
    provider = await text_spec(monkeypatch, vendor, model)
    result = await Agent([switch], provider=provider).run("lights off")
    await provider.close()
    assert result.content == "Done."
    assert "malformed arguments (not valid JSON: line 1, column 2)" in told(result)[0]  # type: ignore[arg-type]
    assert told(result)[1] == "hall is off"  # type: ignore[arg-type]


@pytest.mark.parametrize("vendor", ["openai", "anthropic"], indirect=True)
async def test_broken_stream_makes_no_call(monkeypatch: pytest.MonkeyPatch, vendor: Vendor, model: ModelServer) -> None:
    model.script([Say(f"{OFF} one two three", breaks=Break(9, "reset"))])
    provider = await text_spec(monkeypatch, vendor, model)
    with pytest.raises(ProviderError, match=vendor.name):
        async for piece in provider.stream(ASKED):
            raise AssertionError(piece)
    await provider.close()
