"""Rules for every vendor's provider and no others: the answers, the errors, the connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway import Agent, AgentConfig
from gateway.providers import KnowsModels, ModelMessage, Provider, ProviderError, Request, Response, ToolCall, Usage
from tests.fakes.model_server import Answer, Break, Call, Fail, ModelServer, Raw, Say
from tests.ports import free_port
from tests.providers.vendors import ASKED, VENDORS, Vendor, refused, streamed, user

either_way = pytest.mark.parametrize("stream", [False, True])
each = pytest.mark.parametrize


# ── answers ──


@pytest.mark.ledger("RUN-12", "RUN-17", "CALL-05")
async def test_answer_is_the_same_whole_and_in_pieces(vendor: Vendor, model: ModelServer, provider: Provider) -> None:
    calls = [Call("switch", {"lamp": "hall"}), Call("switch", {"lamp": "kitchen, left"})]
    answer = Say("Both lamps, then.", calls, thinks="Which lamps?")
    model.script([answer, answer])
    whole = await provider.complete(ASKED)
    pieces, response = await streamed(provider)

    assert pieces == ["Both ", "lamps, ", "then."]
    assert whole.content == response.content == "Both lamps, then."
    assert [(c.name, c.args, c.parse_error) for c in response.tool_calls] == [
        ("switch", {"lamp": "hall"}, None),
        ("switch", {"lamp": "kitchen, left"}, None),
    ]
    assert len({call.call_id for call in response.tool_calls}) == 2
    assert [c.args for c in whole.tool_calls] == [c.args for c in response.tool_calls]
    assert whole.finish == response.finish == "tools"
    assert response.model == vendor.model
    read = vendor.read(model.requests[1])
    assert (
        whole.usage
        == response.usage
        == Usage(
            prompt_tokens=read,
            completion_tokens=8 + vendor.thought,
            cached_prompt_tokens=1,
            cache_write_tokens=1,
            unpriced_calls=1,
            unpriced_tokens=read + 8 + vendor.thought,
            model=vendor.model,
            provider=vendor.name,
        )
    )


@pytest.mark.ledger("CALL-08")
@either_way
@each("arguments", ['{"lamp": "ha', "[1]", '"hall"', '{"lamp": NaN}', "[" * 10_000])
async def test_malformed_arguments_do_not_parse(
    model: ModelServer, provider: Provider, arguments: str, stream: bool
) -> None:
    model.script([Say(calls=[Call("switch", arguments)])])
    (call,) = ((await streamed(provider))[1] if stream else await provider.complete(ASKED)).tool_calls
    assert call.parse_error
    assert call.args == {}


async def test_no_arguments_at_all_are_an_empty_object(model: ModelServer, provider: Provider) -> None:
    model.script([Say(calls=[Call("switch", "")])])
    (call,) = (await streamed(provider))[1].tool_calls
    assert (call.args, call.parse_error) == ({}, None)


OFF = Call("switch", {"lamp": "hall"})


@each(
    ("vendor", "answer", "finish", "calls"),
    [
        ("openai", Say("Half a sen", ends="length"), "length", 0),
        ("openai", Say(calls=[Call("switch", '{"la')], ends="length"), "length", 1),
        ("openai", Say("", ends="content_filter"), "refused", 0),
        ("openai", Say("x", [OFF], ends="content_filter"), "refused", 0),
        ("openai", Say(refusal="I can not help with that."), "refused", 0),
        ("openai", Say(calls=[OFF], ends="stop"), "tools", 1),
        ("openai", Say("fine", ends="tool_calls"), "stop", 0),
        ("responses", Say("Half a sen", ends="max_output_tokens"), "length", 0),
        ("responses", Say(calls=[Call("switch", '{"la')], ends="max_output_tokens"), "length", 1),
        ("responses", Say("", ends="content_filter"), "refused", 0),
        ("responses", Say("x", [OFF], ends="content_filter"), "refused", 0),
        ("responses", Say(refusal="I can not help with that."), "refused", 0),
        ("responses", Say("fine", ends="a reason of tomorrow"), "length", 0),
        ("anthropic", Say("Half a sen", ends="max_tokens"), "length", 0),
        ("anthropic", Say(calls=[Call("switch", '{"la')], ends="max_tokens"), "length", 1),
        ("anthropic", Say(calls=[OFF], ends="model_context_window_exceeded"), "length", 1),
        ("anthropic", Say("Let me look fur", ends="pause_turn"), "length", 0),
        ("anthropic", Say("", ends="refusal"), "refused", 0),
        ("anthropic", Say("x", [OFF], ends="refusal"), "refused", 0),
        ("anthropic", Say(calls=[OFF], ends="end_turn"), "tools", 1),
        ("anthropic", Say("fine", ends="tool_use"), "stop", 0),
        ("anthropic", Say("fine", ends="a reason of tomorrow"), "stop", 0),
    ],
    indirect=["vendor"],
)
async def test_finish_reason_is_read(
    model: ModelServer, provider: Provider, answer: Say, finish: str, calls: int
) -> None:
    model.script([answer, answer])
    for response in (await provider.complete(ASKED), (await streamed(provider))[1]):
        assert response.finish == finish
        assert len(response.tool_calls) == calls
        assert response.content == (answer.refusal or answer.text)


@pytest.mark.ledger("CFG-01")
async def test_agent_without_a_model_has_the_providers(vendor: Vendor, model: ModelServer, provider: Provider) -> None:
    model.script(["a", "b"])
    await Agent(provider=provider).run("hello")
    await Agent(provider=provider, config=AgentConfig(model=f"{vendor.model}-2")).run("hello")
    assert [body["model"] for body in model.requests] == [vendor.model, f"{vendor.model}-2"]


# ── errors ──

PAY = "has no credit left"
LONG = "longer than the model takes"


@pytest.mark.ledger("RTY-02", "RTY-03", "ERR-11")
@either_way
@each(
    ("vendor", "fail", "retryable", "says"),
    [
        ("openai", Fail(400, "context_length_exceeded"), False, ("400 context_length_exceeded", LONG)),
        ("openai", Fail(401, "invalid_api_key"), False, ("401 invalid_api_key", "the key in OPENAI_API_KEY")),
        ("openai", Fail(402), False, ("402", "OPENAI_API_KEY", PAY)),
        ("openai", Fail(403, "unsupported_country_region_territory"), False, ("403", "OPENAI_API_KEY may not use")),
        ("openai", Fail(404, "model_not_found"), False, ("404", "no such model, or OPENAI_BASE_URL")),
        ("openai", Fail(408), True, ("408",)),
        ("openai", Fail(409), True, ("409",)),
        ("openai", Fail(413), False, ("413", LONG)),
        ("openai", Fail(422), False, ("422",)),
        ("openai", Fail(429, "rate_limit_exceeded"), True, ("429 rate_limit_exceeded",)),
        ("openai", Fail(429, type="insufficient_quota"), False, ("429 insufficient_quota", "OPENAI_API_KEY", PAY)),
        ("openai", Fail(429, "credit_balance_exhausted"), False, ("429 credit_balance_exhausted", PAY)),
        ("openai", Fail(429, "project_spend_limit_exceeded"), False, ("429", PAY)),
        ("openai", Fail(500), True, ("500 server_error",)),
        ("openai", Fail(503), True, ("503",)),
        ("anthropic", Fail(400), False, ("400 invalid_request_error",)),
        ("anthropic", Fail(400, message="prompt is too long: 2 tokens > 1"), False, ("400", LONG)),
        ("anthropic", Fail(400, message="Your credit balance is too low to"), False, ("400", PAY)),
        ("anthropic", Fail(401), False, ("401 authentication_error", "the key in ANTHROPIC_API_KEY was refused")),
        ("anthropic", Fail(402), False, ("402 billing_error", "ANTHROPIC_API_KEY", PAY)),
        ("anthropic", Fail(403), False, ("403 permission_error", "ANTHROPIC_API_KEY may not use this model")),
        ("anthropic", Fail(404), False, ("404 not_found_error", "no such model, or ANTHROPIC_BASE_URL")),
        ("anthropic", Fail(408), True, ("408",)),
        ("anthropic", Fail(409), True, ("409 conflict_error",)),
        ("anthropic", Fail(413), False, ("413 request_too_large", LONG)),
        ("anthropic", Fail(422), False, ("422",)),
        ("anthropic", Fail(429), True, ("429 rate_limit_error",)),
        ("anthropic", Fail(429, "enforced_spend_limit_reached"), False, ("429 enforced_spend_limit_reached", PAY)),
        ("anthropic", Fail(500), True, ("500 api_error",)),
        ("anthropic", Fail(504), True, ("504 timeout_error",)),
        ("anthropic", Fail(529), True, ("529 overloaded_error",)),
    ],
    indirect=["vendor"],
)
async def test_error_is_told_with_advice_and_no_persons_text(
    model: ModelServer, provider: Provider, fail: Fail, retryable: bool, says: tuple[str, ...], stream: bool
) -> None:
    words = f"{fail.message} Ana's words, 4290 tokens and sk-test-secret"
    model.script([Fail(fail.status, fail.code, words, fail.type)])
    error = await refused(provider, replace(ASKED, messages=[user("I am Ana: words")]), stream=stream)
    assert error.retryable is retryable
    assert error.rate_limited is (retryable and fail.status == 429)
    assert [part for part in says if part not in error.code] == []
    is_refused = fail.status in (400, 422) and not {LONG, PAY} & {*says}
    assert ("What a server does not take" in error.code) == is_refused
    assert "Ana" not in str(error)
    assert "sk-" not in str(error)


@each(
    ("vendor", "fail", "sent", "taken"),
    [
        (
            "openai",
            Fail(
                400,
                "context_length_exceeded",
                "This model's maximum context length is 8192 tokens. However, your messages resulted in 8312 tokens.",
            ),
            8312,
            8192,
        ),
        (
            "openai",
            Fail(400, None, "This model's maximum context length is 4096 tokens. Please reduce it."),
            None,
            4096,
        ),
        ("openai", Fail(400, "context_length_exceeded", "Your input exceeds the context window."), None, None),
        ("anthropic", Fail(400, message="prompt is too long: 208310 tokens > 200000 maximum"), 208310, 200000),
        (
            "anthropic",
            Fail(
                400,
                message="input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, "
                "decrease input length or `max_tokens` and try again",
            ),
            178959,
            200000,
        ),
        ("anthropic", Fail(413), None, None),
    ],
    indirect=["vendor"],
)
async def test_too_long_refusal_has_the_limit_of_the_model(
    model: ModelServer, provider: Provider, fail: Fail, sent: int | None, taken: int | None
) -> None:
    model.script([fail])
    error = await refused(provider)
    assert (error.refusal, error.sent_tokens, error.taken_tokens) == ("too_long", sent, taken)
    assert LONG in str(error)


@each("vendor", ["openai"], indirect=True)
async def test_llama_cpp_says_the_numbers_beside_its_text(model: ModelServer, provider: Provider) -> None:
    said = {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 1407, "n_ctx": 256}
    words = "the request exceeds the available context size. try increasing the context size"
    model.script([Raw(json.dumps({"error": {**said, "message": words}}), status=400)])
    error = await refused(provider)
    assert (error.refusal, error.sent_tokens, error.taken_tokens) == ("too_long", 1407, 256)


@each(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "0.5"}, 0.5),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:30 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 30.0),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:30 GMT", "Date": "Wed, 21 Oct 2015 07:29:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-3"}, None),
        ({"Retry-After": "inf"}, None),
        ({}, None),
    ],
)
async def test_retry_after_is_kept(
    model: ModelServer, provider: Provider, headers: dict[str, str], seconds: float | None
) -> None:
    model.script([Fail(429, headers=headers)])
    assert (await refused(provider)).retry_after_seconds == seconds


async def test_the_library_does_not_retry_by_itself(model: ModelServer, provider: Provider) -> None:
    model.script([Fail(529), "never reached"])
    await refused(provider)
    assert len(model.requests) == 1


async def test_a_refused_key_names_the_setting_and_not_the_key(vendor: Vendor, model: ModelServer) -> None:
    provider = vendor.at(model.url, "sk-wrong-9876543210")
    error = await refused(provider)
    await provider.close()
    assert str(error).endswith(f": the key in {vendor.name.upper()}_API_KEY was refused")
    assert "9876" not in str(error)


async def test_wrong_api_path_names_the_base_url(vendor: Vendor, model: ModelServer) -> None:
    wrong = {"openai": model.url.removesuffix("/v1"), "anthropic": f"{model.url}/v1"}
    provider = vendor.at(wrong[vendor.name], model.key)
    error = await refused(provider)
    await provider.close()
    assert "404" in error.code
    assert f"{vendor.name.upper()}_BASE_URL" in error.code


async def test_refused_field_is_named(vendor: Vendor, provider: Provider) -> None:
    bad = Request(messages=ASKED.messages, tools=[type(ASKED.tools[0])(name="a b", description="", parameters={})])
    error = await refused(provider, bad)
    field = {"gpt-test": "tools[0].function.name", "gpt-5-test": "tools[0].name", "claude-test": "tools.0.custom.name"}
    assert f"({field[vendor.model]})" in error.code
    assert not error.retryable


@each("how", ["reset", "end", "error", "garbage"])
@each("after", [0, 2, 5])
async def test_broken_stream_gives_no_response(model: ModelServer, provider: Provider, how: Any, after: int) -> None:
    model.script([Say("Off", [OFF], breaks=Break(after, how))])
    seen: list[str | Response] = []
    with pytest.raises(ProviderError) as failed:
        async for item in provider.stream(ASKED):
            seen.append(item)
    assert failed.value.retryable
    assert all(isinstance(item, str) for item in seen)


@pytest.mark.ledger("RTY-09")
@either_way
async def test_a_slow_first_byte_times_out(model: ModelServer, provider: Provider, stream: bool) -> None:
    model.script([Say("too late", hold=asyncio.Event())])
    error = await refused(provider, Request(messages=ASKED.messages, timeout_seconds=0.1), stream=stream)
    assert error.retryable
    assert "in time" in error.code


async def test_a_silence_half_way_times_out(model: ModelServer, provider: Provider) -> None:
    model.script([Say("and then", breaks=Break(2, "silence"))])
    error = await refused(provider, Request(messages=ASKED.messages, timeout_seconds=0.1), stream=True)
    assert error.retryable
    assert "in time" in error.code


NO_EVENTS = [Raw("<html>Bad gateway</html>", "text/html", status) for status in (200, 502)]


def sse(*events: object) -> Raw:
    lines = [f"event: {e['type'] if isinstance(e, dict) else 'message_start'}\ndata: {json.dumps(e)}" for e in events]
    return Raw("\n\n".join([*lines, ""]), "text/event-stream")


def begun(index: object, **block: object) -> dict[str, object]:
    return {"type": "content_block_start", "index": index, "content_block": block}


@either_way
@each(
    ("vendor", "answer"),
    [
        *(("openai", answer) for answer in NO_EVENTS),
        *(("openai", Raw(body)) for body in ("{", "[]", "{}", '"text"', '{"choices": []}', '{"choices": ["x"]}')),
        ("openai", Raw('{"choices": [{}]}')),
        ("openai", Raw('{"choices": [{"message": "x", "finish_reason": "stop"}]}')),
        ("openai", Raw('{"choices": [{"message": {"tool_calls": [7]}, "finish_reason": "stop"}]}')),
        *(("responses", answer) for answer in NO_EVENTS),
        *(
            ("responses", Raw(body))
            for body in ("{", "[]", "{}", '"text"', '{"output": []}', '{"status": "completed"}')
        ),
        ("responses", Raw('{"status": "completed", "output": ["x"]}')),
        ("responses", Raw('{"status": "completed", "output": [{"type": "message", "content": "x"}]}')),
        ("responses", sse({"type": "response.output_text.delta", "delta": 7})),
        ("responses", sse({"type": "response.completed", "response": "x"})),
        ("responses", sse("text")),
        ("responses", sse({"type": "response.in_progress"})),
        *(("anthropic", answer) for answer in NO_EVENTS),
        ("anthropic", Raw("{}")),
        ("anthropic", sse({"type": "message_start", "message": "x"})),
        ("anthropic", sse(begun(0, type="tool_use", input=7))),
        ("anthropic", sse({"type": "content_block_delta", "index": "x", "delta": {"type": "text_delta", "text": 7}})),
        ("anthropic", sse("text")),
        ("anthropic", sse([])),
        ("anthropic", sse(None)),
        ("anthropic", sse({"type": "message_stop"})),
    ],
    indirect=["vendor"],
)
async def test_odd_answer_is_a_retryable_error(
    model: ModelServer, provider: Provider, answer: Answer, stream: bool
) -> None:
    model.script([answer])
    assert (await refused(provider, stream=stream)).retryable


# ── connections ──


async def test_calls_at_the_same_time_share_their_connections(model: ModelServer, provider: Provider) -> None:
    """No call waits for another: the first answer is held until the last is there."""
    hold = asyncio.Event()
    model.script([Say("a", hold=hold), "b", "c"])
    first = asyncio.ensure_future(provider.complete(ASKED))
    await model.wait_for(1)
    assert {answer.content for answer in await asyncio.gather(*(provider.complete(ASKED) for _ in "bc"))} == {"b", "c"}
    hold.set()
    assert (await first).content == "a"


@either_way
async def test_call_given_up_closes_its_connection(model: ModelServer, provider: Provider, stream: bool) -> None:
    model.script([Say("never", hold=asyncio.Event())])
    call = asyncio.ensure_future(streamed(provider) if stream else provider.complete(ASKED))
    await model.wait_for(1)
    call.cancel()
    await model.wait_for_hang_up()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_stream_that_is_left_early_closes_its_connection(model: ModelServer, provider: Provider) -> None:
    model.script([Say("One two three four.", breaks=Break(6, "silence"))])
    stream = cast("AsyncGenerator[str | Response, None]", provider.stream(ASKED))
    assert await anext(stream) == "One "
    await stream.aclose()
    await model.wait_for_hang_up()


def test_provider_serves_one_event_loop_after_another(vendor: Vendor) -> None:
    port = free_port()
    made: list[Any] = []

    async def once(*, close: bool) -> str:
        async with vendor.fake(port=port) as model:
            provider: Any = made[0] if made else vendor.at(model.url, model.key)
            made.append(provider)
            model.script(["hello"])
            answer: Response = await provider.complete(ASKED)
            # Without a word to the provider, as `run_sync` leaves it, its connections end with the loop.
            await (provider.close() if close else (await provider._connections.client()).close())
            return answer.content

    assert [asyncio.run(once(close=False)), asyncio.run(once(close=True))] == ["hello", "hello"]


async def test_server_that_is_down_is_a_retryable_error(vendor: Vendor) -> None:
    async with vendor.fake() as model:
        url = model.url
    provider = vendor.at(url, "k")
    error = await refused(provider)
    await provider.close()
    assert error.retryable


# ── models ──


async def test_knows_tells_whether_the_server_has_a_model(model: ModelServer, provider: Provider) -> None:
    assert isinstance(provider, KnowsModels)
    model.models = {"other", "claude-test", "gpt-test", "gpt-5-test"}
    assert await provider.knows(timeout_seconds=5)
    assert await provider.knows("other", timeout_seconds=5)
    with pytest.raises(ProviderError, match=r"404 .*no such model"):
        await provider.knows("gone", timeout_seconds=5)
    assert model.requests == []


async def test_server_without_a_list_of_models_knows_none(vendor: Vendor, model: ModelServer) -> None:
    provider = vendor.at(f"{model.url}/elsewhere", model.key)
    assert isinstance(provider, KnowsModels)
    assert not await provider.knows(timeout_seconds=5)
    await provider.close()


async def test_a_key_is_refused_when_a_model_is_looked_up(vendor: Vendor, model: ModelServer) -> None:
    provider = vendor.at(model.url, "sk-wrong")
    assert isinstance(provider, KnowsModels)
    with pytest.raises(ProviderError, match="_API_KEY was refused"):
        await provider.knows(timeout_seconds=5)
    await provider.close()


# ── histories ──

_TEXT = st.text(st.characters(codec=None), max_size=12)
_IDS = st.sampled_from(["", "a", "b", "call_0", "call_1", "c d", "c" * 41, "\ud800"])
_CALLS = st.lists(
    st.builds(ToolCall, call_id=_IDS, name=_TEXT, args=st.just({"x": "\ud800"})),
    max_size=3,
).map(tuple)
_MESSAGES = st.lists(
    st.builds(
        ModelMessage,
        role=st.sampled_from(["user", "assistant", "tool", "event"]),
        content=_TEXT,
        tool_calls=_CALLS,
        call_id=st.sampled_from([None, "", "a", "b"]),
        speaker=st.none() | _TEXT,
    ),
    max_size=8,
)


@pytest.mark.ledger("MISC-11")
@each("name", VENDORS)
@settings(suppress_health_check=[HealthCheck.too_slow])  # which a busy machine is
@given(messages=_MESSAGES)
def test_vendor_takes_any_history(name: str, messages: list[ModelMessage]) -> None:
    vendor = VENDORS[name]
    begin = [user("hello")] if vendor.name == "openai" else []  # which takes no conversation without a word
    body = vendor.body(Request(messages=[*begin, *messages]))
    assert vendor.refusal_of(json.loads(json.dumps(body, ensure_ascii=False).encode())) is None


# ── a conversation longer than the model takes ──


async def test_too_long_request_is_repeated_once_much_shorter(model: ModelServer, provider: Provider) -> None:
    model.most_characters = 60_000
    model.script(["answered"])
    history = [user(f"{number} " + "x" * 5_000) for number in range(30)]
    result = await Agent(provider=provider).run([*history, user("my question")])
    assert result.content == "answered"
    assert len(model.refused) == 1, "never the same again"
    (taken,) = model.requests
    assert "my question" in json.dumps(taken[model.history])


async def test_the_next_turn_is_trimmed_before_it_is_asked_for(model: ModelServer, provider: Provider) -> None:
    model.most_characters = 120_000
    model.script(["one", "two"])
    agent, history = Agent(provider=provider), [user("x" * 5_000) for _ in range(35)]
    for question in ("first", "second"):
        await agent.run([*history, user(question)])
    assert len(model.refused) == 1
    assert len(json.dumps(model.requests[1][model.history])) > 60_000, "and not more than has to be"


async def test_configured_limit_is_kept_to_from_the_first_call(model: ModelServer, provider: Provider) -> None:
    model.most_characters = 60_000
    model.script(["one", "two"])
    agent = Agent(provider=provider, config=AgentConfig(context_tokens=15_000))
    for question in ("first", "second"):
        await agent.run([*(user("x" * 5_000) for _ in range(20)), user(question)])
    assert model.refused == []
    assert len(json.dumps(model.requests[1][model.history])) > 45_000, "and not more than has to be"


async def test_too_long_request_after_the_retry_is_told(model: ModelServer, provider: Provider) -> None:
    model.most_characters = 100
    told = await Agent(provider=provider).run("x" * 90_000)
    assert told.stop_reason == "provider_error" and LONG in str(told.error)
    assert len(model.refused) == 2
    model.refused.clear()
    assert LONG in str((await Agent(provider=provider).run("x" * 2_000)).error)
    assert len(model.refused) == 1, "there is nothing to leave out"
