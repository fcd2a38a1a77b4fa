"""The page ``/metrics``: the right to read it, its place, and the effect of a slow store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
import uvicorn
from aiohttp import web
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from channels import Address, AskfirstError
from gateway import Agent, ChannelAgent, Gateway, Settings, tool
from gateway.observe.events import EVENTS, LlmEnd, MessageReceived, PendingDecided, WebhookHandled
from gateway.observe.teller import Teller
from gateway.observe.watchdog import Watchdog
from gateway.providers.base import Response, Usage
from gateway.store.base import Store
from gateway.store.errors import StoreUnavailable
from gateway.store.sqlite import SqliteStore
from gateway.store.types import Stats
from gateway.testing import ScriptedProvider, ToolCall
from gateway.testing.doubles import FaultyStore
from gateway.tools.pending_action import Vote
from gateway.web import serve
from gateway.web.metrics import Metrics
from gateway.web.metrics.definitions import Durations, WithoutCreated
from gateway.web.metrics.metrics import StoreGauges
from tests.metrics import Scrape, scraped
from tests.observe.samples import ACTION, NOW, sample
from tests.ports import free_port
from tests.web.raw import exchange, status

TOKEN = "uB3nT8kQ5rW1xZ6vC9mL2pD7sF4gH0jK"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
COUNTED = Metrics(channels=[], tools=[]).events.kinds
MODEL = {"provider": "openai", "model": "gpt-x"}


def gateway_in(directory: Path, **settings: Any) -> Gateway:
    @tool(read_only=True)
    async def look() -> str:
        """Look."""
        return ""

    bot = ChannelAgent(Agent([look], provider=ScriptedProvider([])))
    return Gateway(bot, Settings(store=f"sqlite:///{directory / 'bot.db'}", secret=TOKEN, allow="*", **settings))


@contextlib.asynccontextmanager
async def served(gateway: Gateway) -> AsyncIterator[str]:
    async with gateway:
        running = await serve(gateway.aiohttp_app(), "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{running.port}"
        finally:
            await running.cleanup()


async def got(url: str, headers: Mapping[str, str] | None = None) -> tuple[int, str, Mapping[str, str]]:
    async with aiohttp.ClientSession() as http, http.get(f"{url}/metrics", headers=headers) as answer:
        return answer.status, await answer.text(), answer.headers


# ───────────── the right to read ─────────────


@pytest.mark.ledger("CLI-02")
@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, 401),
        (BEARER, 200),
        ({"Authorization": f"bearer  {TOKEN}"}, 200),
        ({"Authorization": f"Bearer {TOKEN[:-1]}"}, 401),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": "Bearer \u00fc\u00fc"}, 401),
        ({**BEARER, "X-Forwarded-For": "203.0.113.9"}, 200),
    ],
)
async def test_token_lets_its_bearer_alone_read(tmp_path: Path, headers: Mapping[str, str], expected: int) -> None:
    async with served(gateway_in(tmp_path, admin_token=TOKEN)) as url:
        found, text, answered = await got(url, headers)
    assert found == expected
    assert ("WWW-Authenticate" in answered) is (expected == 401)
    assert TOKEN not in text


@pytest.mark.ledger("CLI-02")
@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "127.0.0.1"},
        {"X-Forwarded-Proto": "https"},
        {"Forwarded": "for=127.0.0.1"},
        {"Via": "1.1 proxy"},
        {"X-Real-IP": "127.0.0.1"},
        {"CF-Connecting-IP": "127.0.0.1"},
        {"X-Original-Forwarded-For": "127.0.0.1"},
        {"Fastly-Client-IP": "127.0.0.1"},
        {"X-Envoy-External-Address": "127.0.0.1"},
        {"X-ProxyUser-IP": "127.0.0.1"},
        {"CDN-Loop": "cdn"},
        {"Host": "bot.example.com"},
        {"Host": "bot.example.com:8080"},
    ],
    ids=str,
)
async def test_without_a_token_a_proxied_request_is_refused(tmp_path: Path, headers: Mapping[str, str]) -> None:
    async with served(gateway_in(tmp_path)) as url:
        assert (await got(url))[0] == 200
        found, text, _ = await got(url, headers)
    assert found == 403
    assert "ASKFIRST_ADMIN_TOKEN" in text
    assert "askfirst_" not in text


async def test_a_proxy_that_adds_no_header_gets_no_metrics(tmp_path: Path) -> None:
    async with served(gateway_in(tmp_path)) as url:
        port = int(url.rpartition(":")[2])
        answer = await exchange(port, b"GET /metrics HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
    assert status(answer) == 403


@pytest.mark.parametrize(("by_socket", "named", "expected"), [
    ("127.0.0.1", "127.0.0.1", 200), ("127.0.0.1", "203.0.113.9", 403), ("a file", "127.0.0.1", 403),
])  # fmt: skip
async def test_a_client_of_another_machine_may_not_read(
    tmp_path: Path, by_socket: str, named: str, expected: int
) -> None:
    """An outer application names the client, as it does behind a proxy, but the address of the socket counts too."""
    gateway, file = gateway_in(tmp_path), str(tmp_path / "socket")

    @web.middleware
    async def by_name(request: web.Request, handler: Any) -> web.StreamResponse:
        answer: web.StreamResponse = await handler(request.clone(remote=named))
        return answer

    async with gateway:
        app = web.Application(middlewares=[by_name])
        app.add_subapp("/bot", gateway.aiohttp_app())
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.UnixSite(runner, file) if by_socket == "a file" else web.TCPSite(runner, by_socket, 0)
        await site.start()
        connector = aiohttp.UnixConnector(file) if by_socket == "a file" else None
        port = "" if connector else f":{runner.addresses[0][1]}"
        async with (
            aiohttp.ClientSession(connector=connector) as http,
            http.get(f"http://127.0.0.1{port}/bot/metrics") as answer,
        ):
            assert answer.status == expected
        await runner.cleanup()


async def test_behind_an_asgi_server_the_token_is_needed(tmp_path: Path) -> None:
    found = []
    for name, settings in (("a", {}), ("b", {"admin_token": TOKEN})):
        (tmp_path / name).mkdir()
        async with gateway_in(tmp_path / name, **settings) as gateway:
            port = free_port()
            server = uvicorn.Server(
                uvicorn.Config(cast("Any", gateway.asgi_app()), port=port, lifespan="off", log_level="error")
            )
            serving = asyncio.ensure_future(server.serve())
            while not server.started:
                await asyncio.sleep(0.005)
            found += [(await got(f"http://127.0.0.1:{port}", headers))[0] for headers in ({}, BEARER)]
            server.should_exit = True
            await serving
    assert found == [403, 403, 401, 200]


# ───────────── a port of its own ─────────────


async def test_metrics_on_a_separate_port_are_there_alone(tmp_path: Path) -> None:
    port = free_port()
    own = f"http://127.0.0.1:{port}"
    async with served(gateway_in(tmp_path, metrics_port=port)) as url:
        assert (await got(url))[0] == 404
        assert (await got(own, {"X-Forwarded-For": "203.0.113.9"}))[0] == 200
        async with aiohttp.ClientSession() as http, http.get(f"{own}/livez") as answer:
            assert answer.status == 404
    with pytest.raises(aiohttp.ClientConnectorError):
        await got(own)


async def test_on_a_port_of_its_own_a_token_is_asked_for_too(tmp_path: Path) -> None:
    port = free_port()
    async with gateway_in(tmp_path, metrics_port=port, admin_token=TOKEN):
        assert (await got(f"http://127.0.0.1:{port}"))[0] == 401
        assert (await got(f"http://127.0.0.1:{port}", BEARER))[0] == 200


async def test_a_port_that_is_taken_names_the_setting(tmp_path: Path) -> None:
    taken = await serve(web.Application(), "127.0.0.1", 0)
    with pytest.raises(AskfirstError, match="ASKFIRST_METRICS_PORT"):
        await gateway_in(tmp_path, metrics_port=taken.port).__aenter__()
    await taken.cleanup()


# ───────────── the store ─────────────


@contextlib.asynccontextmanager
async def faulty() -> AsyncIterator[FaultyStore]:
    store = SqliteStore(":memory:")
    await store.open()
    yield FaultyStore(store)
    await store.close()


async def test_the_store_is_asked_once_a_second_at_most() -> None:
    now = 100.0
    async with faulty() as store:
        gauges = StoreGauges(cast("Store", store), lambda: now)
        await asyncio.gather(*(gauges.refresh() for _ in range(20)))
        now += 0.9
        await gauges.refresh()
        assert store.calls["stats"] == 1
        now += 0.2
        await gauges.refresh()
        assert store.calls["stats"] == 2


async def test_a_store_that_hangs_is_down_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.web.metrics.metrics.STORE_SECONDS", 0.01)
    now = 100.0
    async with faulty() as store:
        metrics = Metrics(channels=[], tools=[])
        metrics.watch(cast("Store", store), [], Teller(), Watchdog())
        store.hooks["stats answered"] = asyncio.Event().wait
        found = Scrape((await metrics.scrape()).decode())
        assert found.value("askfirst_store_up") == 0
        assert not any(each.name == "askfirst_dead_letters" for each in found.samples)
        monkeypatch.undo()
        del store.hooks["stats answered"]
        gauges = StoreGauges(cast("Store", store), lambda: now)
        await gauges.refresh()
        assert {family.name: family.samples for family in gauges.collect()}["askfirst_store_up"][0].value == 1


async def test_calls_of_a_store_are_timed_and_their_errors_named() -> None:
    async with faulty() as store:
        metrics = Metrics(channels=[], tools=[])
        timed = metrics.timed(cast("Store", store))
        store.errors["get"] = [StoreUnavailable("away"), ValueError("odd")]
        for _ in range(3):
            with contextlib.suppress(StoreUnavailable, ValueError):
                await timed.get([])
        timed.offset_seconds = 7.0
        found = Scrape((await metrics.scrape()).decode())
        assert store.offset_seconds == 7.0
    assert found.value("askfirst_store_call_duration_seconds_count", operation="get") == 3
    assert found.value("askfirst_store_errors_total", operation="get", error="unavailable") == 1
    assert found.value("askfirst_store_errors_total", operation="get", error="other") == 1


async def test_every_count_of_the_store_has_its_gauge() -> None:
    stats = Stats(
        waiting=1, pointed=2, ready=3, leased=4, parked=5, parts=6, timers=7, dead=8, oldest_waiting_seconds=9.5,
        timer_kinds={"expiry": 10, "undelivered": 11, "unlaunched": 12, "odd": 13},
    )  # fmt: skip

    class Counted:
        async def stats(self) -> Stats:
            return stats

        async def has_headroom(self) -> bool:
            return False

    gauges = StoreGauges(cast("Store", Counted()))
    await gauges.refresh()
    found = {
        (sample.name.removeprefix("askfirst_"), *sample.labels.values()): sample.value
        for family in gauges.collect()
        for sample in family.samples
    }
    assert found == {
        ("store_up",): 1, ("store_headroom",): 0, ("events_waiting",): 1, ("decisions_waiting",): 2,
        ("oldest_waiting_seconds",): 9.5, ("outbox_parts",): 6, ("timers",): 7, ("dead_letters",): 8,
        ("lanes", "ready"): 3, ("lanes", "leased"): 4, ("lanes", "parked"): 5,
        ("actions_open", "shown"): 10, ("actions_open", "undelivered"): 11, ("actions_open", "approved"): 12,
    }  # fmt: skip


# ───────────── the events ─────────────


async def counted(*events: Any, tools: tuple[str, ...] = ("pay",)) -> Scrape:
    metrics = Metrics(channels=["web"], tools=tools)
    for event in events:
        metrics.events.read(event)
    return Scrape((await metrics.scrape()).decode())


@pytest.mark.parametrize("kind", [each for each in EVENTS.values() if each in COUNTED], ids=lambda kind: kind.name)
async def test_no_event_brings_the_text_of_a_person_into_a_scrape(kind: Any) -> None:
    metrics = Metrics(channels=["web"], tools=["pay"])
    open_texts = _CHOSEN.get(kind.name, {})
    metrics.events.read(sample(kind, **open_texts, **_CLOSED.get(kind.name, {})))
    assert "card is" not in (await metrics.scrape()).decode()


_CHOSEN: Mapping[str, Mapping[str, str]] = {
    "llm_end": {"provider": "openai", "requested_model": "gpt-x"},
    "llm_error": {"provider": "openai", "model": "gpt-x"},
}
"""Fields chosen by the bot's author."""
_CLOSED: Mapping[str, Mapping[str, str]] = {
    "lease_lost": {"kind": "turn"},
    "lease_taken_over": {"kind": "turn"},
    "doubt_raised": {"why": "unknown"},
    "pending_decided": {"intent": "confirm"},
}
"""Fields with a closed set of values, but not of a Literal type."""


async def test_tokens_are_counted_by_kind_and_cost_where_it_is_known() -> None:
    usage = Usage(prompt_tokens=100, cached_prompt_tokens=30, cache_write_tokens=20, completion_tokens=7, cost_usd=0.25)
    response = Response(content="", usage=usage, model="what the server says")
    priced = sample(
        LlmEnd,
        response=response,
        usage=usage,
        from_checkpoint=False,
        from_cache=False,
        provider="openai",
        requested_model="gpt-x",
    )
    found = await counted(
        priced,
        replace(priced, usage=replace(usage, cost_usd=None)),
        replace(priced, from_checkpoint=True),
        replace(priced, from_cache=True),
    )
    kinds = ("input", "cached", "cache_write", "output")
    assert [found.value("askfirst_model_tokens_total", kind=kind, **MODEL) for kind in kinds] == [100, 60, 40, 14]
    assert found.value("askfirst_model_cost_usd_total", **MODEL) == 0.25
    assert found.value("askfirst_model_calls_unpriced_total", **MODEL) == 1
    assert found.value("askfirst_model_call_duration_seconds_count", **MODEL) == 2
    assert "what the server says" not in found.text


async def test_steps_of_an_earlier_attempt_are_counted_once() -> None:
    kinds = [each for each in COUNTED if "from_checkpoint" in {field.name for field in fields(cast("Any", each))}]
    assert len(kinds) >= 4
    found = await counted(*(sample(kind, from_checkpoint=True) for kind in kinds))
    assert (await counted()).labels("tool") == found.labels("tool") == found.labels("model") == set()


async def test_models_without_end_become_other() -> None:
    one = sample(LlmEnd, from_checkpoint=False, from_cache=False, provider="openai")
    found = await counted(*(replace(one, requested_model=f"m{number}") for number in range(500)))
    assert len(found.labels("model")) == 51
    assert found.value("askfirst_model_call_duration_seconds_count", model="other") == 450


async def test_a_vote_counts_from_the_question_to_the_vote() -> None:
    later = datetime(2026, 1, 2, 3, 5, 5, tzinfo=UTC)
    voted = replace(ACTION, shown_at=NOW, votes=(Vote(person="web:-:ana", name=None, at=later),))
    found = await counted(sample(PendingDecided, action=voted, intent="confirm"))
    assert found.value("askfirst_decision_duration_seconds_sum", intent="confirm") == 60


def test_durations_equal_the_histogram_of_prometheus() -> None:
    bounds, registry = (0.001, 0.25, 1.0, 2.5), CollectorRegistry()
    theirs = Histogram("x_seconds", "A text.", ("label",), buckets=bounds, registry=registry)
    ours = Durations("x_seconds", "A text.", bounds, ("label",))
    for label, seconds in [("a", n / 8) for n in range(40)] + [("b", 0.001), ("b", 0.0), ("b", 1e9)]:
        theirs.labels(label).observe(seconds)
        ours.labels(label).observe(seconds)
    own = CollectorRegistry()
    own.register(ours)
    assert generate_latest(WithoutCreated(own)) == generate_latest(WithoutCreated(registry))


async def test_channels_and_statuses_that_are_not_ours_are_other() -> None:
    found = await counted(
        WebhookHandled(channel="odd", status=200, duration_ms=1.0),
        WebhookHandled(channel="web", status=100_000, duration_ms=1.0),
        sample(MessageReceived, address=Address(channel="odd", account="-", place="p")),
    )
    assert found.value("askfirst_webhook_duration_seconds_count", channel="other", status="200") == 1
    assert found.value("askfirst_webhook_duration_seconds_count", channel="web", status="other") == 1
    assert found.value("askfirst_events_accepted_total", channel="other") == 1


async def test_tools_of_an_agent_behind_a_tool_keep_their_names(tmp_path: Path) -> None:
    @tool(read_only=True)
    async def count() -> str:
        """Count."""
        return "7"

    counter = Agent([count], provider=ScriptedProvider([ToolCall("count", {}), "7"]))
    outer = Agent(
        [counter.as_tool("counter", "Counts.")],
        provider=ScriptedProvider([ToolCall("counter", {"task": "count"}), "7"]),
    )
    settings = Settings(store=f"sqlite:///{tmp_path / 'bot.db'}", secret=TOKEN, allow="*")
    bot = ChannelAgent(outer)
    async with served(Gateway(bot, settings)) as url:
        await bot.ask_channel("ana", "count")
        found = await scraped(url)
    assert found.labels("tool") >= {"count", "counter"}
    assert "unknown" not in found.labels("tool")


async def test_events_missed_by_observers_are_shown(tmp_path: Path) -> None:
    gateway = gateway_in(tmp_path)
    gateway._events.dropped["Slow"] += 3
    gateway._events.failed["Odd"] += 2
    async with served(gateway) as url:
        found = await scraped(url)
    assert found.value("askfirst_observer_events_dropped_total", observer="Slow") == 3
    assert found.value("askfirst_observer_events_failed_total", observer="Odd") == 2
