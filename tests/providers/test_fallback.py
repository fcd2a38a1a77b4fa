"""A chain of providers: the order of calls, the skipped providers, and the run's events."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from channels import Json
from gateway import Agent, AgentConfig, AgentObserver, ChannelAgent, FallbackProvider
from gateway.config.options import WrongOption
from gateway.observe.events import LlmEnd, LlmRetry, LlmStart, ProviderFallback
from gateway.providers import (
    KnowsModels,
    Provider,
    ProviderConfigurationError,
    ProviderError,
    Request,
    Response,
    make_provider,
)
from gateway.testing import ChatDriver, RecordingObserver
from gateway.wording import say
from tests.agent.scripted import Script, Turn
from tests.fakes.model_server import Answer, Break, Fail, ModelServer, Say
from tests.fakes.shapes import ANTHROPIC_SHAPES, OPENAI_SHAPES
from tests.providers.vendors import ANTHROPIC, ASKED, OPENAI, streamed

each = pytest.mark.parametrize
either_way = each("stream", [False, True])


def busy(name: str = "first", *, retryable: bool = True, **more: Any) -> ProviderError:
    return ProviderError(name, "busy", retryable=retryable, **more)


@dataclass
class Time:
    """A clock standing still between the moves of the test."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Stand:
    name: str
    does: Callable[[], Any] = lambda: "ok"
    calls: list[Request] = field(default_factory=list)
    closed: int = 0

    async def complete(self, request: Request) -> Response:
        self.calls.append(request)
        done = self.does()
        if asyncio.iscoroutine(done):
            done = await done
        if isinstance(done, Exception):
            raise done
        return Response(content=done)

    async def stream(self, request: Request) -> AsyncIterator[str | Response]:
        whole = await self.complete(request)
        yield whole.content
        yield whole

    async def close(self) -> None:
        self.closed += 1


async def ask(provider: Provider, *, stream: bool = False) -> Response:
    return (await streamed(provider))[1] if stream else await provider.complete(ASKED)


class Two:
    """The real clients of both vendors in one chain, each against its fake server."""

    def __init__(self) -> None:
        self.switches: list[tuple[str, str, str]] = []

    async def __aenter__(self) -> Two:
        self._stack = AsyncExitStack()
        self.servers: list[ModelServer] = [
            await self._stack.enter_async_context(vendor.fake()) for vendor in (OPENAI, ANTHROPIC)
        ]
        self.openai, self.anthropic = self.servers
        made = [vendor.at(at.url, at.key) for vendor, at in zip((OPENAI, ANTHROPIC), self.servers, strict=True)]
        self.chain = FallbackProvider(
            made, on_fallback=lambda *told: self.switches.append((told[0], told[1], str(told[2])))
        )
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.chain.close()
        await self._stack.__aexit__(*error)


@pytest.fixture
async def two() -> AsyncIterator[Two]:
    async with Two() as both:
        yield both


# ── the order, with the vendors' own clients ──


@pytest.mark.ledger("FALL-01", "FALL-04", "FALL-05")
@either_way
@each("fail", [Fail(408), Fail(429), Fail(500), Fail(502), Fail(503), Fail(504), Fail(522), Fail(524), Fail(529)])
async def test_an_error_that_may_pass_leads_to_the_next_vendor(two: Two, fail: Fail, stream: bool) -> None:
    two.openai.script([fail])
    two.anthropic.script(["Hello."])
    response = await ask(two.chain, stream=stream)
    assert (response.content, response.usage.provider, response.model) == ("Hello.", "anthropic", "claude-test")
    ((failed, following, error),) = two.switches
    assert (failed, following) == ("openai", "anthropic")
    assert str(fail.status) in error


@pytest.mark.ledger("FALL-05")
@either_way
@each("how", ["reset", "end", "error", "garbage"])
async def test_a_stream_that_breaks_before_its_text_leads_on(two: Two, how: Any, stream: bool) -> None:
    broken: Answer = Say("Hello.", breaks=Break(0, how)) if stream else Fail(503)
    two.openai.script([broken])
    two.anthropic.script(["Hello."])
    assert (await ask(two.chain, stream=stream)).usage.provider == "anthropic"


@pytest.mark.ledger("FALL-12")
@each("how", ["reset", "end", "error", "garbage"])
async def test_after_the_first_piece_no_other_vendor_is_asked(two: Two, how: Any) -> None:
    two.openai.script([Say("One two three four.", breaks=Break(3, how))])
    pieces: list[str] = []
    with pytest.raises(ProviderError, match="openai"):
        async for piece in two.chain.stream(ASKED):
            assert isinstance(piece, str)
            pieces.append(piece)
    assert pieces == ["One ", "two "]
    assert (two.anthropic.requests, two.switches) == ([], [])


@pytest.mark.ledger("FALL-05")
@either_way
@each("fail", [Fail(400), Fail(401), Fail(403), Fail(404), Fail(413), Fail(422), Fail(429, type="insufficient_quota")])
async def test_any_other_error_is_raised_at_once(two: Two, fail: Fail, stream: bool) -> None:
    two.openai.script([fail])
    with pytest.raises(ProviderError, match=rf"openai: {fail.status}") as failed:
        await ask(two.chain, stream=stream)
    assert not failed.value.retryable
    assert (two.anthropic.requests, two.switches) == ([], [])


@pytest.mark.ledger("FALL-08", "FALL-09", "OBS-19")
@either_way
async def test_a_silent_vendor_leaves_the_next_its_own_time(two: Two, stream: bool) -> None:
    class Watching(AgentObserver):
        def on_provider_fallback(
            self, run_id: str, failed_provider: str, next_provider: str, error: BaseException
        ) -> None:
            told.append((run_id, failed_provider, next_provider, str(error)))

    told: list[tuple[str, str, str, str]] = []
    two.openai.script([Say("late", hold=asyncio.Event())])
    chain = FallbackProvider([OPENAI.at(two.openai.url, two.openai.key), Stand("anthropic", lambda: "Here.")])
    config = AgentConfig(request_timeout_seconds=0.05, max_retries=0, observers=(Watching(),))
    agent = Agent(provider=chain, config=config)
    result: Any = [piece async for piece in agent.stream("hello")][-1] if stream else await agent.run("hello")
    assert (result.content, result.provider_used) == ("Here.", "anthropic")
    ((run_id, failed, following, error),) = told
    assert (run_id, failed, following) == (result.trace.run_id, "openai", "anthropic")
    assert "no answer" in error
    await chain.close()


@pytest.mark.ledger("FALL-10")
async def test_each_vendor_is_asked_for_its_own_model(two: Two) -> None:
    two.openai.script([Fail(503)])
    two.anthropic.script(["Hello."])
    turn = Turn(Script([]), [], AgentConfig(model="gpt-of-the-agent"))
    turn.provider = two.chain  # type: ignore[assignment]
    await turn.run()
    assert [event.model for event in turn.told.of_kind(LlmStart)] == [""]
    assert [server.requests[0]["model"] for server in two.servers] == [OPENAI.model, ANTHROPIC.model]


@pytest.mark.ledger("FALL-10")
@either_way
async def test_the_model_of_a_request_is_passed_to_no_vendor(two: Two, stream: bool) -> None:
    two.openai.script(["Hello."])
    request = replace(ASKED, model="gpt-of-the-request")
    await (streamed(two.chain, request) if stream else two.chain.complete(request))
    assert two.openai.requests[0]["model"] == OPENAI.model


@pytest.mark.ledger("FALL-07")
async def test_when_all_vendors_fail_one_error_says_so(two: Two) -> None:
    two.openai.script([Fail(503)])
    two.anthropic.script([Fail(529)])
    with pytest.raises(ProviderError, match=r"every provider failed .*openai: 503.*anthropic: 529") as failed:
        await two.chain.complete(ASKED)
    assert (failed.value.provider, failed.value.retryable, failed.value.rate_limited) == ("fallback", True, False)
    assert "anthropic: 529" in str(failed.value.__cause__)


async def test_a_chain_with_the_same_faults_twice_is_not_asked_again(two: Two) -> None:
    two.openai.script([OPENAI_SHAPES["no end behind a text"].raw] * 2)
    two.anthropic.script([ANTHROPIC_SHAPES["no end"].raw] * 2)
    agent = Agent(provider=two.chain, config=AgentConfig(retry_backoff_seconds=0))
    async with ChatDriver(ChannelAgent(agent)) as chat:
        await chat.says("ana", "hello")
        assert "Reference: " in chat.last.text, "no wait helps"


# ── the breaker ──


class Chain:
    def __init__(self, **options: Any) -> None:
        self.time = Time()
        self.first, self.second = Stand("first", busy), Stand("second")
        self.provider = FallbackProvider([self.first, self.second], clock=self.time, **options)

    async def ask(self) -> str:
        return (await self.provider.complete(ASKED)).usage.provider


@pytest.mark.ledger("FALL-02", "FALL-06")
async def test_failures_in_a_row_skip_a_provider_for_the_cooldown() -> None:
    chain = Chain(max_failures=3, cooldown_seconds=60)
    assert [await chain.ask() for _ in range(4)] == ["second"] * 4
    assert len(chain.first.calls) == 3
    chain.time.now = 59.9
    await chain.ask()
    assert len(chain.first.calls) == 3
    chain.time.now = 60.0
    await chain.ask()
    assert len(chain.first.calls) == 4
    chain.time.now = 119.9
    await chain.ask()
    assert len(chain.first.calls) == 4
    chain.time.now, chain.first.does = 120.0, lambda: "back"
    assert [await chain.ask(), await chain.ask()] == ["first", "first"]


@pytest.mark.ledger("FALL-02")
async def test_the_limits_of_the_breaker_have_defaults() -> None:
    chain = Chain()
    for _ in range(5):
        await chain.ask()
    assert len(chain.first.calls) == 3
    chain.time.now = 60.0
    await chain.ask()
    assert len(chain.first.calls) == 4


@pytest.mark.ledger("FALL-06")
async def test_a_success_between_failures_begins_the_count_anew() -> None:
    chain = Chain()
    steps: list[Any] = [busy(), busy(), "ok", busy(), busy(), "ok"]
    chain.first.does = lambda: steps.pop(0)
    assert [await chain.ask() for _ in range(6)] == ["second", "second", "first", "second", "second", "first"]


@pytest.mark.ledger("FALL-06")
async def test_exactly_one_call_probes_and_the_others_skip() -> None:
    chain = Chain(max_failures=1)
    await chain.ask()
    chain.time.now, answered = 60.0, asyncio.Event()

    async def slow() -> str:
        await answered.wait()
        return "back"

    chain.first.does = slow
    probe = asyncio.ensure_future(chain.ask())
    await asyncio.sleep(0)
    assert await asyncio.gather(*(chain.ask() for _ in range(20))) == ["second"] * 20
    answered.set()
    assert await probe == "first"
    assert len(chain.first.calls) == 2
    assert await asyncio.gather(*(chain.ask() for _ in range(20))) == ["first"] * 20


@pytest.mark.ledger("FALL-06")
@each("ends", ["cancelled", "refused", "closed"])
async def test_inconclusive_probe_leaves_room_for_another(ends: str) -> None:
    chain = Chain(max_failures=1)
    await chain.ask()
    chain.time.now = 60.0
    if ends == "refused":
        chain.first.does = lambda: busy(retryable=False)
        with pytest.raises(ProviderError):
            await chain.ask()
    elif ends == "closed":
        chain.first.does = lambda: "half"
        begun = chain.provider.stream(ASKED)
        assert await anext(aiter(begun)) == "half"
        await begun.aclose()  # type: ignore[attr-defined]
    else:
        chain.first.does = asyncio.Event().wait
        probe = asyncio.ensure_future(chain.ask())
        await asyncio.sleep(0)
        probe.cancel()
        await asyncio.gather(probe, return_exceptions=True)
    before = len(chain.first.calls)
    chain.first.does = lambda: "back"
    assert await chain.ask() == "first"
    assert len(chain.first.calls) == before + 1


@pytest.mark.ledger("FALL-06")
async def test_a_late_failure_does_not_prolong_the_cooldown() -> None:
    chain = Chain(max_failures=1)
    late = asyncio.Event()

    async def fail_late() -> Exception:
        await late.wait()
        return busy()

    chain.first.does = fail_late
    old = asyncio.ensure_future(chain.ask())
    await asyncio.sleep(0)
    chain.first.does = busy
    await chain.ask()  # it opens the breaker
    chain.time.now = 30.0
    late.set()
    assert await old == "second"
    chain.time.now, chain.first.does = 60.0, lambda: "back"
    assert await chain.ask() == "first"


@pytest.mark.ledger("FALL-06")
async def test_a_late_failure_does_not_end_a_probe() -> None:
    chain = Chain(max_failures=1)
    late, probed = asyncio.Event(), asyncio.Event()

    async def fail_late() -> Exception:
        await late.wait()
        return busy()

    async def answer_late() -> str:
        await probed.wait()
        return "back"

    chain.first.does = fail_late
    old = asyncio.ensure_future(chain.ask())
    await asyncio.sleep(0)
    chain.first.does = busy
    await chain.ask()  # it opens the breaker
    chain.time.now, chain.first.does = 60.0, answer_late
    probe = asyncio.ensure_future(chain.ask())
    await asyncio.sleep(0)
    late.set()
    assert (await old, await chain.ask()) == ("second", "second")
    assert len(chain.first.calls) == 3
    probed.set()
    assert (await probe, await chain.ask()) == ("first", "first")


@pytest.mark.ledger("FALL-07")
async def test_when_all_breakers_are_open_no_provider_is_asked() -> None:
    chain = Chain(max_failures=1, cooldown_seconds=20)
    chain.second.does = lambda: busy("second")
    with pytest.raises(ProviderError, match="every provider failed"):
        await chain.ask()
    chain.time.now = 5.0
    with pytest.raises(ProviderError, match=r"every provider is skipped .*first, second") as failed:
        await chain.ask()
    assert (len(chain.first.calls), len(chain.second.calls)) == (1, 1)
    assert (failed.value.retryable, failed.value.retry_after_seconds) == (True, 15.0)
    cause = failed.value.__cause__
    assert cause is not None
    assert (str(cause), cause.__traceback__) == ("second: busy", None)


@each(
    ("first", "second", "wait"),
    [(5.0, 3.0, 3.0), (3600.0, None, None), (None, None, None)],
)
async def test_the_wait_is_the_shortest_if_all_name_one(first: float, second: float, wait: float | None) -> None:
    chain = Chain()
    chain.first.does = lambda: busy(rate_limited=True, retry_after_seconds=first)
    chain.second.does = lambda: busy(rate_limited=True, retry_after_seconds=second)
    with pytest.raises(ProviderError) as failed:
        await chain.ask()
    assert (failed.value.rate_limited, failed.value.retry_after_seconds) == (True, wait)


@pytest.mark.ledger("FALL-06")
def test_threads_with_their_own_loops_share_the_breaker() -> None:
    chain = Chain(max_failures=1)
    asyncio.run(chain.ask())
    chain.time.now = 60.0
    inside, ready = threading.Event(), threading.Barrier(8)
    seen: Counter[str] = Counter()

    async def slow() -> str:
        await asyncio.to_thread(inside.wait)
        return "back"

    chain.first.does = slow

    def work() -> None:
        ready.wait()
        served = asyncio.run(chain.ask())
        seen[served] += 1
        if served == "second" and seen["second"] == 7:
            inside.set()

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert seen == {"second": 7, "first": 1}


# ── in a run ──


@pytest.mark.ledger("FALL-09", "FALL-11")
async def test_a_run_falls_over_first_and_tries_the_chain_once_more() -> None:
    chain = Chain(max_failures=9)
    answers: list[Any] = [busy("second"), "Here."]
    chain.second.does = lambda: answers.pop(0)
    turn = Turn(Script([]), [], AgentConfig(max_retries=5))
    turn.provider = chain.provider  # type: ignore[assignment]
    outcome = await turn.run()
    assert (outcome.content, outcome.provider_used) == ("Here.", "second")
    assert turn.waits == [1.0]
    switches = turn.told.of_kind(ProviderFallback)
    assert [(event.failed_provider, event.next_provider) for event in switches] == [("first", "second")] * 2
    assert [event.max_retries for event in turn.told.of_kind(LlmRetry)] == [1]
    assert [event.provider for event in turn.told.of_kind(LlmEnd)] == ["second"]


@pytest.mark.ledger("FALL-11")
@each(("max_retries", "waits"), [(5, 1), (1, 1), (0, 0)])
async def test_a_chain_is_tried_anew_at_most_once(max_retries: int, waits: int) -> None:
    chain = Chain(max_failures=9)
    chain.second.does = lambda: busy("second")
    turn = Turn(Script([]), [], AgentConfig(max_retries=max_retries))
    turn.provider = chain.provider  # type: ignore[assignment]
    with pytest.raises(ProviderError, match="every provider failed"):
        await turn.run()
    assert (len(turn.waits), len(chain.first.calls), len(chain.second.calls)) == (waits, waits + 1, waits + 1)


@pytest.mark.ledger("FALL-12")
async def test_a_run_that_has_shown_text_is_not_asked_again() -> None:
    heard: list[str] = []
    first, second = Script([["I wi", busy()]], name="first"), Script(["other"], name="second")
    turn = Turn(Script([]), [])
    turn.provider = FallbackProvider([first, second])  # type: ignore[assignment]
    with pytest.raises(ProviderError, match="first: busy"):
        await turn.run(on_text=heard.append)
    assert (heard, second.requests, turn.waits) == (["I wi"], [], [])


@pytest.mark.ledger("FALL-08")
async def test_agents_sharing_a_chain_know_the_answering_provider() -> None:
    chain = Chain(max_failures=2)
    agents = [Agent(provider=chain.provider) for _ in range(3)]
    results = [await agent.run("hello") for agent in agents]
    assert [result.provider_used for result in results] == ["second"] * 3
    assert len(chain.first.calls) == 2
    chain.time.now, chain.first.does = 60.0, lambda: "back"
    assert (await agents[0].run("hello")).provider_used == "first"


async def test_a_chain_in_a_chain_is_one_of_its_providers() -> None:
    inner = FallbackProvider([Stand("a", lambda: busy("a")), Stand("b")])
    turn = Turn(Script([]), [])
    turn.provider = FallbackProvider([Stand("z", lambda: busy("z")), inner])  # type: ignore[assignment]
    outcome = await turn.run()
    assert outcome.provider_used == "b"
    switches = turn.told.of_kind(ProviderFallback)
    assert [(event.failed_provider, event.next_provider) for event in switches] == [("z", "fallback"), ("a", "b")]


@pytest.mark.ledger("FALL-07")
async def test_a_person_is_told_of_an_outage_in_neutral_words() -> None:
    chain = Chain(max_failures=1)
    chain.second.does = lambda: busy("second")
    agent = Agent(provider=chain.provider, config=AgentConfig(max_retries=0))
    async with ChatDriver(agent) as chat:
        await chat.says("ana", "Are you there?")
        assert chat.last.text == say("model_down", "en")
        assert (len(chain.first.calls), len(chain.second.calls)) == (1, 1)


# ── the callback ──


class Enforcing(Stand):
    """A Stand with a vendor enforcing JSON Schemas."""

    def takes_schema(self, schema: Mapping[str, Json], model: str | None) -> bool:
        return True


async def test_a_chain_asks_each_provider_for_a_schema_in_its_own_way() -> None:
    plain, enforcing = Stand("plain", busy), Enforcing("enforcing", lambda: '{"total": 3}')
    schema: dict[str, Json] = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}
    agent = Agent(provider=FallbackProvider([plain, enforcing]), instructions="Count.")
    result = await agent.run("How many?", response_format=schema)
    assert result.parsed == {"total": 3} and result.provider_used == "enforcing"
    (told,), (enforced,) = plain.calls, enforcing.calls
    assert told.schema is None and told.system.startswith("Count.") and '"total"' in told.system
    assert enforced.schema == schema and enforced.system == "Count."


async def test_a_model_selector_chooses_no_model_of_a_chain() -> None:
    first = Stand("first")
    seen = RecordingObserver()
    config = AgentConfig(model_selector=lambda *_: "other", observers=(seen,))
    await Agent(provider=FallbackProvider([first]), config=config).run("hello")
    assert first.calls[0].model is None
    assert not [name for name, _ in seen.events if name == "model_switch"]


@pytest.mark.ledger("FALL-03")
async def test_an_async_callback_is_awaited() -> None:
    told: list[tuple[str, str, str]] = []

    async def on_fallback(failed: str, following: str, error: BaseException) -> None:
        await asyncio.sleep(0)
        told.append((failed, following, str(error)))

    assert await Chain(on_fallback=on_fallback).ask() == "second"
    assert told == [("first", "second", "first: busy")]


@pytest.mark.ledger("FALL-03")
async def test_callback_error_is_logged_and_changes_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    def on_fallback(*told: object) -> None:
        raise RuntimeError("Ana's words")

    with caplog.at_level(logging.WARNING):
        assert await Chain(on_fallback=on_fallback).ask() == "second"
    assert "on_fallback of a FallbackProvider raised RuntimeError" in caplog.text
    assert "Ana" not in caplog.text


@pytest.mark.ledger("FALL-03")
async def test_the_callback_names_the_provider_that_is_asked_next() -> None:
    told: list[str] = []
    skipped = Stand("skipped", lambda: busy("skipped"))
    chain = FallbackProvider(
        [Stand("first", busy), skipped, Stand("third")],
        max_failures=1,
        on_fallback=lambda failed, following, error: told.append(f"{failed} > {following}"),
        clock=Time(),
    )
    await chain.complete(ASKED)
    await chain.complete(ASKED)
    assert told == ["first > skipped", "skipped > third"]


# ── how it is made ──


@pytest.mark.ledger("FALL-07")
@each(
    "wrong",
    [
        {"providers": []},
        {"providers": [""]},
        {"providers": "openai:m"},
        {"providers": [object()]},
        {"providers": ["demo"], "max_failures": 0},
        {"providers": ["demo"], "cooldown_seconds": -1},
        {"providers": ["demo"], "cooldown_seconds": float("nan")},
    ],
)
def test_a_wrong_option_is_a_value_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(reversed(wrong))) as failed:
        FallbackProvider(**wrong)
    assert isinstance(failed.value, WrongOption)


async def test_specs_are_made_at_the_first_call_or_the_fault_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    chain = FallbackProvider(["demo", "anthropic:claude-test"])
    with pytest.raises(ProviderConfigurationError, match="ANTHROPIC_API_KEY is not set"):
        await chain.complete(Request())
    with pytest.raises(ProviderConfigurationError, match="ANTHROPIC_API_KEY is not set"):
        _ = Agent(provider=chain).provider
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    assert (await chain.complete(Request())).usage.provider == "demo"
    await chain.close()


def test_specs_with_commas_are_a_chain() -> None:
    environ = {"ASKFIRST_PROVIDER": "openai:a, anthropic:b", "OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}
    assert isinstance(make_provider(environ=environ), FallbackProvider)
    del environ["ANTHROPIC_API_KEY"]
    with pytest.raises(ProviderConfigurationError, match="ANTHROPIC_API_KEY"):
        make_provider(environ=environ)


async def test_closing_closes_all_also_when_one_fails_to() -> None:
    class Stuck(Stand):
        async def close(self) -> None:
            raise OSError("stuck")

    last = Stand("last")
    chain = FallbackProvider([Stuck("stuck"), last])
    await chain.complete(ASKED)
    with pytest.raises(OSError, match="stuck"):
        await chain.close()
    assert last.closed == 1


async def test_the_doctor_looks_up_every_model(two: Two) -> None:
    assert isinstance(two.chain, KnowsModels)
    assert await two.chain.knows("none of theirs", timeout_seconds=5)
    two.anthropic.models = {"another"}
    with pytest.raises(ProviderError, match="anthropic: 404"):
        await two.chain.knows(timeout_seconds=5)
    assert not await FallbackProvider([Stand("mute")]).knows(timeout_seconds=5)
