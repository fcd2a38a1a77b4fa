"""An agent with a cache: the replies and results taken from the cache, and the cost."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
from pydantic import BaseModel

from channels import Json, Media
from gateway import (
    Agent,
    AgentConfig,
    AgentResult,
    CacheStats,
    FallbackProvider,
    InMemoryCache,
    StoreCache,
    StreamChunk,
    ToolConfig,
    stash_pending,
    tool,
)
from gateway.agent.caching import CACHE_SECONDS, Caching, identity_of
from gateway.config.options import WrongOption
from gateway.providers import ModelMessage, ProviderError, Request, Response, ToolCall, ToolSpec, Usage
from gateway.testing import ChatDriver, RecordingObserver
from gateway.tools import ToolContext, ToolValidationError
from tests.agent.scripted import Script, call
from tests.agent.test_compress import LONG, SUMMARY, Summariser

PAID = Usage(prompt_tokens=10, completion_tokens=5, cost_usd=0.25, model="m", provider="script")
ANSWER = Response(content="It is a language.", usage=PAID, model="m")


def asking(script: Script, cache: Any = None, **changes: Any) -> Agent:
    return Agent(provider=script, config=AgentConfig(cache=cache or InMemoryCache(), **changes))


# ── replies ──


@pytest.mark.ledger("CACHE-01", "CACHE-05", "CACHE-13")
async def test_an_equal_question_asks_the_model_once() -> None:
    script, cache = Script([ANSWER]), InMemoryCache()
    agent = asking(script, cache)
    first, second = await agent.run("What is Python?"), await agent.run("What is Python?")
    assert first.content == second.content == "It is a language."
    assert len(script.requests) == 1
    stats = cache.stats
    assert (stats.hits, stats.misses, stats.evictions, f"{stats.hit_rate:.2%}") == (1, 1, 0, "50.00%")


@pytest.mark.ledger("CFG-18")
async def test_without_a_cache_each_question_asks_the_model() -> None:
    script = Script([ANSWER, ANSWER])
    agent = Agent(provider=script)
    await agent.run("What is Python?")
    await agent.run("What is Python?")
    assert len(script.requests) == 2


@pytest.mark.ledger("CACHE-10", "TRC-06")
async def test_a_hit_is_saved_and_not_billed() -> None:
    agent = asking(Script([ANSWER]))
    first, second = await agent.run("What is Python?"), await agent.run("What is Python?")
    assert (first.usage.cost_usd, first.usage.saved_usd, first.usage.total_tokens) == (0.25, None, 15)
    assert (second.usage.least_usd, second.usage.saved_usd, second.usage.total_tokens) == (0.0, 0.25, 0)
    assert (agent.total_tokens, agent.total_cost) == (15, 0.25)
    assert [step.type for step in second.trace.steps] == ["cache_hit"]


@pytest.mark.ledger("CACHE-02", "CACHE-11", "OBS-08")
async def test_a_hit_is_told_like_a_call() -> None:
    seen = RecordingObserver()
    script = Script([ANSWER])
    agent = asking(script, observers=(seen,))
    missed = await agent.run("What is Python?")
    assert (len(script.requests), [step.type for step in missed.trace]) == (1, ["llm_call"])
    seen.events.clear()
    found = await agent.run("What is Python?")
    assert (len(script.requests), [step.type for step in found.trace]) == (1, ["cache_hit"])
    told = [name for name, _ in seen.events if name in ("llm_start", "cache_hit", "llm_end", "usage")]
    assert told == ["llm_start", "cache_hit", "llm_end", "usage"]
    hit = dict(seen.events)["cache_hit"]
    assert (hit["model"], hit["response"].content) == ("m", "It is a language.")


@pytest.mark.ledger("CACHE-12")
async def test_a_hit_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with ChatDriver(asking(Script([ANSWER]), max_iterations=2)) as chat:
        with caplog.at_level(logging.INFO):
            await chat.says("ana", "/new")
            await chat.says("ana", "What is Python?")
            await chat.says("ana", "/new")
            await chat.says("ana", "What is Python?")
        assert [message.text for message in chat.messages][-1] == "It is a language."
    assert [record.getMessage() for record in caplog.records].count("cache answered") == 1


@pytest.mark.ledger("CACHE-09")
async def test_a_streamed_run_takes_no_reply_from_it() -> None:
    script = Script([["He", "llo"], ["He", "llo"]])
    agent = asking(script)
    for _ in range(2):
        assert [piece async for piece in agent.stream("hi")][:1] == [StreamChunk("He")]
    assert len(script.requests) == 2


REQUEST = Request(
    system="s",
    messages=(ModelMessage(role="user", content="hi"),),
    model="m",
    temperature=0.0,
    max_tokens=10,
)
A, B = (ToolSpec(name=name, description=name, parameters={}) for name in "ab")


PICTURE = Media(sha256="5" * 64, mime_type="image/png", filename="a.png", size=1)


@pytest.mark.ledger("CACHE-07", "CACHE-08")
def test_the_key_is_of_all_that_a_reply_depends_on() -> None:
    caching = Caching(cache=InMemoryCache(), agent="shop")
    script = Script([])
    base = replace(REQUEST, tools=(A, B))
    key = caching.reply_key(script, base, "ana")
    assert key is not None and re.fullmatch("askfirst:[0-9a-f]{64}", key)
    assert key == caching.reply_key(script, replace(base), "ana")
    others = [
        replace(base, system="t"),
        replace(base, model="n"),
        replace(base, temperature=0.1),
        replace(base, max_tokens=11),
        replace(base, tools=(B, A)),
        replace(base, schema={"type": "object"}),
        replace(base, messages=(ModelMessage(role="user", content="ho"),)),
        replace(base, messages=(ModelMessage(role="user", content="hi", speaker="Ana"),)),
        replace(base, messages=(ModelMessage(role="user", content="hi", files=(PICTURE,)),)),
        replace(base, contents={PICTURE.sha256: b"x"}),
        replace(base, messages=(ModelMessage(role="assistant", content="hi", echo={"id": 1}),)),
        replace(base, messages=(ModelMessage(role="assistant", content="hi", tool_calls=(call("a"),)),)),
    ]
    keys = {caching.reply_key(script, other, "ana") for other in others}
    keys |= {caching.reply_key(script, base, "ben"), caching.reply_key(Script([], name="other"), base, "ana")}
    keys |= {Caching(cache=InMemoryCache(), agent="other").reply_key(script, base, "ana")}
    assert len(keys) == len(others) + 3 and key not in keys
    shared = Caching(cache=InMemoryCache(shared=True), agent="shop")
    assert shared.reply_key(script, base, "ana") == shared.reply_key(script, base, "ben")


def test_a_new_field_of_a_request_needs_a_place_in_the_key() -> None:
    in_key = {
        Request: {"system", "messages", "tools", "model", "temperature", "max_tokens", "schema", "contents"},
        ModelMessage: {"role", "content", "tool_calls", "call_id", "tool_name", "speaker", "echo", "files"},
        ToolSpec: {"name", "description", "parameters"},
        ToolCall: {"call_id", "name", "args", "parse_error"},
    }
    changes_no_reply = {"timeout_seconds", "language"}
    for kind, names in in_key.items():
        assert {field.name for field in fields(kind)} - changes_no_reply == names


def test_chains_of_other_providers_are_told_apart() -> None:
    one, two = (FallbackProvider([Script([], name=name)]) for name in ("a", "b"))
    assert identity_of(one) != identity_of(two)


async def test_a_person_gets_no_reply_of_another() -> None:
    script = Script([ANSWER, ANSWER])
    agent = asking(script)
    for person in ("app:-:ana", "app:-:ben", "app:-:ana"):
        await agent.run("What is my balance?", context=ToolContext(person=person))
    assert len(script.requests) == 2


@pytest.mark.parametrize("finish", ["length", "refused", "stop"])
async def test_a_reply_that_is_not_whole_is_not_kept(finish: Any) -> None:
    script = Script([Response(content="" if finish == "stop" else "half", finish=finish), ANSWER])
    agent = asking(script)
    await agent.run("What is Python?")
    await agent.run("What is Python?")
    assert len(script.requests) == 2


async def test_a_reply_with_malformed_arguments_is_not_kept() -> None:
    wrong = replace(call("look"), parse_error="it ends too early")
    script = Script([wrong, "sorry", wrong, "sorry"])
    agent = asking(script)
    await agent.run("look")
    await agent.run("look")
    # The answer to the same fault is kept.
    assert len(script.requests) == 3


class Sum(BaseModel):
    value: int


async def test_an_answer_without_its_format_is_not_kept() -> None:
    script = Script(["no sum", '{"value": 7}', "no sum"])
    agent = asking(script, structured_retries=0)
    results = [await agent.run("sum", response_format=Sum) for _ in range(3)]
    assert [result.parsed for result in results] == [None, Sum(value=7), Sum(value=7)]
    assert len(script.requests) == 2


@pytest.mark.parametrize("value", [10**30, "\ud800"])
async def test_call_without_a_cache_key_is_not_cached(value: Any) -> None:
    ran: list[Any] = []

    @tool(read_only=True, cacheable=True)
    async def look(what: int | str) -> str:
        """Look."""
        ran.append(what)
        return "7"

    script = Script([call("look", what=value), "it is 7"] * 2)
    agent = Agent([look], provider=script, config=AgentConfig(cache=InMemoryCache()))
    results = [await agent.run("look") for _ in range(2)]
    assert [result.content for result in results] == ["it is 7", "it is 7"]
    assert ran == [value, value]


@pytest.mark.ledger("CACHE-09")
async def test_calls_of_a_kept_reply_run_again() -> None:
    ran: list[str] = []

    @tool(read_only=True)
    async def look(name: str) -> str:
        """Look."""
        ran.append(name)
        return "7"

    script = Script([call("look", name="a"), "it is 7"])
    agent = Agent([look], provider=script, config=AgentConfig(cache=InMemoryCache()))
    results = [await agent.run("look") for _ in range(2)]
    assert [result.content for result in results] == ["it is 7", "it is 7"]
    assert (ran, len(script.requests)) == (["a", "a"], 2)


class Slow(Script):
    """A Script waiting for the test before each answer."""

    def __init__(self, steps: Any) -> None:
        super().__init__(steps)
        self.go = asyncio.Event()

    async def complete(self, request: Request) -> Response:
        self.requests.append(request)
        await self.go.wait()
        self.requests.pop()
        return await super().complete(request)


async def ended_together(slow: Slow, runs: Sequence[asyncio.Task[AgentResult]]) -> list[AgentResult]:
    """Let the model answer after the request of a run, with the other runs waiting; return the results."""
    while not slow.requests:
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    slow.go.set()
    return await asyncio.gather(*runs)


async def test_equal_questions_at_once_ask_the_model_once() -> None:
    slow = Slow([ANSWER])
    agent = asking(slow)
    runs = [asyncio.create_task(agent.run("What is Python?")) for _ in range(100)]
    results = await ended_together(slow, runs)
    assert len(slow.requests) == 1
    assert sum(result.usage.total_tokens for result in results) == 15
    assert sum(result.usage.saved_usd or 0.0 for result in results) == pytest.approx(99 * 0.25)


async def test_when_the_first_call_fails_the_others_ask_themselves() -> None:
    slow = Slow([ProviderError("script", "down", retryable=False), ANSWER, ANSWER])
    agent = asking(slow)
    runs = [asyncio.create_task(agent.run("What is Python?")) for _ in range(3)]
    results = await ended_together(slow, runs)
    assert sorted(result.stop_reason for result in results) == ["answered", "answered", "provider_error"]


async def test_a_cancelled_call_leaves_the_others_their_answer() -> None:
    slow = Slow([ANSWER, ANSWER])
    agent = asking(slow)
    first = asyncio.create_task(agent.run("What is Python?"))
    while not slow.requests:
        await asyncio.sleep(0)
    others = [asyncio.create_task(agent.run("What is Python?")) for _ in range(4)]
    for _ in range(20):
        await asyncio.sleep(0)
    first.cancel()
    others.pop().cancel()
    while len(slow.requests) < 2:  # one of the others asks for all
        await asyncio.sleep(0)
    slow.go.set()
    results = await asyncio.gather(*others)
    assert [result.content for result in results] == ["It is a language."] * 3
    assert (len(slow.requests), sum(result.usage.total_tokens for result in results)) == (2, 15)
    with pytest.raises(asyncio.CancelledError):
        await first


class Broken:
    """A cache raising, hanging, or returning the value of the test."""

    def __init__(self, how: Any) -> None:
        self.how, self.stats = how, CacheStats()

    async def get(self, key: str) -> Json | None:
        if self.how == "raises":
            raise RuntimeError("password=hunter2")
        if self.how == "hangs":
            await asyncio.Event().wait()
        value: Json = self.how
        return value

    async def set(self, key: str, value: Json, ttl_seconds: float | None = None) -> None:
        await self.get(key)

    async def delete(self, key: str) -> bool:
        return False

    async def clear(self) -> None: ...


WRONG_VALUES = [
    {"content": ["wrong"], "usage": "free"},
    {},
    {"text": 7},
    [],
    "text",
    7,
    {"content": "a", "finish": "length"},
]


@pytest.mark.parametrize("how", ["raises", "hangs", *WRONG_VALUES], ids=str)
async def test_a_broken_cache_is_passed_over(
    how: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert CACHE_SECONDS <= 5
    monkeypatch.setattr("gateway.agent.caching.CACHE_SECONDS", 0.01)
    script = Script([ANSWER, ANSWER])
    agent = asking(script, Broken(how))
    for _ in range(2):
        assert (await agent.run("What is Python?")).content == "It is a language."
    (warning,) = [each for each in caplog.records if each.name == "gateway.agent.caching"]
    assert "hunter2" not in warning.getMessage()


@pytest.mark.parametrize("how", ["raises", "hangs", *WRONG_VALUES], ids=str)
async def test_a_tool_runs_when_its_cache_is_broken(
    how: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.agent.caching.CACHE_SECONDS", 0.01)
    made, script = Rows(), Script([call("rows", name="a"), "one"])
    agent = Agent([made.rows], provider=script, config=AgentConfig(cache=Broken(how)))
    result = await agent.run("rows")
    assert (made.ran, result.messages[1].content, result.content) == (["a"], "rows of a", "one")
    assert len([each for each in caplog.records if each.name == "gateway.agent.caching"]) == 1


async def test_a_wrong_result_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caching = Caching(cache=Broken({"text": 7}), agent="shop")
    assert await caching.result("key") is None
    assert "cache of agent shop failed, continuing without it" in caplog.text


def test_object_that_is_no_cache_is_refused() -> None:
    with pytest.raises(WrongOption, match="cache"):
        AgentConfig(cache={})


@pytest.mark.ledger("CFG-28")
def test_the_cached_profile() -> None:
    config, plain = AgentConfig.profile("production_cached"), AgentConfig.profile("production")
    assert isinstance(config.cache, InMemoryCache) and plain.cache is None
    assert (config.max_retries, config.cost_warning_threshold) == (3, 0.5)
    assert (config.cache._max_size, config.cache._ttl_seconds) == (2000, 600.0)
    assert config.model_copy(update={"cache": None}) == plain


# ── results of tools ──


class Rows:
    def __init__(self) -> None:
        self.ran: list[str] = []

        @tool(read_only=True, cacheable=True, cache_ttl_seconds=60)
        async def rows(name: str) -> str:
            """Read rows."""
            self.ran.append(name)
            return LONG if name == "long" else f"rows of {name}"

        self.rows = rows


@pytest.mark.ledger("CACHE-09", "TOOL-03")
async def test_a_cacheable_tool_runs_once_for_equal_arguments() -> None:
    made, cache = Rows(), InMemoryCache()
    steps: list[Any] = [call("rows", name="a"), "one", call("rows", name="a"), "two", call("rows", name="b"), "three"]
    agent = Agent([made.rows], provider=Script(steps), config=AgentConfig(cache=cache))
    results = [await agent.run(text) for text in ("1", "2", "3")]
    assert made.ran == ["a", "b"]
    assert [result.messages[1].content for result in results] == ["rows of a", "rows of a", "rows of b"]
    (step,) = results[1].trace.filter(type="cache_hit")
    assert step.tool_name == "rows"


async def test_the_result_of_a_tool_is_for_its_person_alone() -> None:
    made, script = Rows(), Script([call("rows", name="a"), "1", call("rows", name="a"), "1"])
    agent = Agent([made.rows], provider=script, config=AgentConfig(cache=InMemoryCache()))
    for person in ("app:-:ana", "app:-:ben"):
        await agent.run("x", context=ToolContext(person=person))
    assert made.ran == ["a", "a"]


async def test_without_a_cache_a_cacheable_tool_runs_each_time() -> None:
    made = Rows()
    agent = Agent([made.rows], provider=Script([call("rows", name="a"), call("rows", name="a"), "1"]))
    await agent.run("x")
    assert made.ran == ["a", "a"]


async def test_a_failure_or_a_file_is_not_kept() -> None:
    ran: list[str] = []

    @tool(read_only=True, cacheable=True)
    async def draw(how: str, ctx: ToolContext) -> str:
        """Draw."""
        ran.append(how)
        if how == "fails":
            raise RuntimeError("no")
        ctx.emit_artifact(content=b"1", filename="a.txt")
        return "drawn"

    steps: list[Any] = [call("draw", how="fails"), call("draw", how="file"), "done"]
    agent = Agent([draw], provider=Script([*steps, *steps]), config=AgentConfig(cache=InMemoryCache()))
    await agent.run("1")
    await agent.run("2")
    assert ran == ["fails", "file"] * 2


@pytest.mark.ledger("CMP-12")
async def test_a_hit_has_its_short_text_and_stops_by_the_raw_one() -> None:
    made, small, seen = Rows(), Summariser([SUMMARY]), list[int]()
    tools = ToolConfig(compress_results=True, compress_provider=small, compress_model="tiny")

    def stops(name: str, text: str) -> bool:
        seen.append(len(text))
        return False

    agent = Agent(
        [made.rows],
        provider=Script([call("rows", name="long"), "1", call("rows", name="long"), "1"]),
        config=AgentConfig(cache=InMemoryCache(), tool=tools, stop_condition=stops),
    )
    results = [await agent.run(text) for text in "12"]
    assert (made.ran, len(small.requests), seen) == (["long"], 1, [9482, 9482])
    assert results[0].messages[1].content == results[1].messages[1].content == f"[compressed from 9482 chars] {SUMMARY}"


async def test_a_result_that_was_only_cut_is_shortened_again() -> None:
    made, small = Rows(), Summariser([ProviderError("small", "down", retryable=False), SUMMARY])
    tools = ToolConfig(compress_results=True, compress_provider=small, compress_model="tiny")
    agent = Agent(
        [made.rows],
        provider=Script([call("rows", name="long"), "1", call("rows", name="long"), "1"]),
        config=AgentConfig(cache=InMemoryCache(), tool=tools),
    )
    first, second = [(await agent.run(text)).messages[1].content for text in "12"]
    assert made.ran == ["long"]
    assert first.startswith("[truncated from 9482 chars")
    assert second == f"[compressed from 9482 chars] {SUMMARY}"


async def test_result_of_a_call_with_a_stash_is_not_kept() -> None:
    sent: list[str] = []

    @tool(read_only=True, cacheable=True)
    async def offer() -> str:
        """Offer a letter."""
        stash_pending(kind="send", preview="Send the letter?", executor=lambda: sent.append("letter"))
        return "offered"

    config = AgentConfig(cache=InMemoryCache(), confirm_action=lambda *_: True)
    agent = Agent([offer], provider=Script([call("offer"), "1", call("offer"), "2"]), config=config)
    for text in "12":
        await agent.run(text)
    assert sent == ["letter"] * 2


@pytest.mark.parametrize(
    "wrong", [{"read_only": False}, {"cache_ttl_seconds": 0.0}, {"cache_ttl_seconds": float("inf")}]
)
def test_only_a_read_only_tool_may_be_cacheable(wrong: Any) -> None:
    with pytest.raises(ToolValidationError, match="cacheable=True needs read_only=True"):

        @tool(**{"cacheable": True, "read_only": True} | wrong)
        async def rows() -> str:
            """Read rows."""
            return ""


# ── the store's cache ──


async def test_a_store_cache_without_a_bot_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    agent = asking(Script([ANSWER]), StoreCache())
    assert (await agent.run("What is Python?")).content == "It is a language."
    assert "use an InMemoryCache for an agent without a chat" in caplog.text
