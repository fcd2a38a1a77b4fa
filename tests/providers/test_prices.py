"""The cost of a call: by the vendors' prices if certain, and unknown otherwise."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anthropic.types
import genai_prices
import openai.types.chat
import pytest
from genai_prices.data_snapshot import DataSnapshot, get_snapshot, set_custom_snapshot
from genai_prices.types import ClauseEquals, ConditionalPrice, ModelInfo, ModelPrice, StartDateConstraint
from genai_prices.types import Provider as PricedProvider
from hypothesis import given
from hypothesis import strategies as st

from gateway.providers import Provider, Response, Usage
from gateway.providers.anthropic.messages import AnthropicAnswer
from gateway.providers.openai.chat import OpenAIAnswer
from gateway.providers.prices import DATA_RELEASE, age_text, age_warning, cost_usd, priced
from tests.fakes.model_server import ModelServer
from tests.providers.vendors import ASKED, Vendor, streamed

OPENAI_URL, ANTHROPIC_URL = "https://api.openai.com/v1", "https://api.anthropic.com"
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC).timestamp()
MILLION = 1_000_000

each = pytest.mark.parametrize


def used(model: str, plain: int = 0, completion: int = 0, *, read: int = 0, written: int = 0) -> Usage:
    """A call with these tokens; `plain` excludes the tokens of the cache."""
    return Usage(
        prompt_tokens=plain + read + written,
        completion_tokens=completion,
        cached_prompt_tokens=read,
        cache_write_tokens=written,
        model=model,
    )


def at(moment: str) -> float:
    return datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp()


# ── known prices ──


@each(
    ("url", "usage", "cost"),
    [
        (OPENAI_URL, used("gpt-4.1", 1000, 100), 0.0020 + 0.0008),
        (OPENAI_URL, used("gpt-5-mini-2025-08-07", 1000, 100, read=9000), 0.00025 + 0.0002 + 0.000225),
        (OPENAI_URL, used("gpt-6-sol", 1000, 100, written=8000), 0.002 + 0.001 + 0.02),
        (ANTHROPIC_URL, used("claude-opus-4-5", 1000, 100), 0.005 + 0.0025),
        (ANTHROPIC_URL, used("claude-opus-4-5", 1000, 100, read=10_000, written=800), 0.0075 + 0.005 + 0.005),
    ],
)
def test_tokens_of_a_cache_have_their_own_price(url: str, usage: Usage, cost: float) -> None:
    assert cost_usd(usage, url, NOW) == pytest.approx(cost)
    assert priced(usage, url, NOW) == replace(usage, cost_usd=cost_usd(usage, url, NOW))


def test_long_prompt_has_its_price_for_all_tokens() -> None:
    """The length counts the whole prompt, from the cache or not."""
    last = used("claude-sonnet-4-5", 100_000, 1000, read=100_000)
    over = used("claude-sonnet-4-5", 100_001, 1000, read=100_000)
    assert cost_usd(last, ANTHROPIC_URL, NOW) == pytest.approx(0.3 + 0.03 + 0.015)
    assert cost_usd(over, ANTHROPIC_URL, NOW) == pytest.approx(0.600006 + 0.06 + 0.0225)


@each(
    ("tier", "cost"),
    [(None, 0.25), ("default", 0.25), ("auto", 0.25), ("flex", 0.125), ("priority", 0.45), ("scale", None)],
)
def test_service_tier_of_the_reply_decides_the_price(tier: str | None, cost: float | None) -> None:
    found = cost_usd(used("gpt-5-mini", MILLION), OPENAI_URL, NOW, tier)
    assert found == (None if cost is None else pytest.approx(cost))


@each(("tier", "known"), [("standard", True), ("batch", False), ("priority", False)])
def test_tier_without_a_price_in_the_data_is_unknown(tier: str, known: bool) -> None:
    assert (cost_usd(used("claude-opus-4-5", 1), ANTHROPIC_URL, NOW, tier) is not None) == known


def test_price_is_that_of_the_day_of_the_call() -> None:
    usage = used("o3", MILLION)
    assert cost_usd(usage, OPENAI_URL, at("2025-06-09T23:59:59")) == 10
    assert cost_usd(usage, OPENAI_URL, at("2025-06-10T00:00:00")) == 2
    assert cost_usd(usage, OPENAI_URL, at("2025-06-09T23:59:59")) == 10
    # The data has the prices of this tier from 2026-10-12 on, and no earlier prices.
    assert cost_usd(usage, OPENAI_URL, at("2026-10-11T23:59:59"), "flex") is None
    assert cost_usd(usage, OPENAI_URL, at("2026-10-12T00:00:00"), "flex") == 1


# ── unknown prices ──


@each(
    ("url", "model"),
    [
        ("http://127.0.0.1:11434/v1", "gpt-4.1"),
        ("https://llm.example.com/v1", "claude-opus-4-5"),
        ("https://api.openai.com.example.com/v1", "gpt-4.1"),
        (OPENAI_URL, "gpt-99"),
        (OPENAI_URL, ""),
        (OPENAI_URL, "gpt-5-search-api"),
        (OPENAI_URL, "text-embedding-3-small"),
        (ANTHROPIC_URL, "gpt-4.1"),
        ("https://api.perplexity.ai", "sonar-pro"),
        ("https://api.perplexity.ai", "sonar-deep-research"),
    ],
)
def test_price_that_the_data_does_not_name_is_unknown(url: str, model: str) -> None:
    usage = used(model, 1000, 100)
    assert cost_usd(usage, url, NOW) is None
    assert priced(usage, url, NOW) == replace(usage, unpriced_calls=1, unpriced_tokens=1100)


@each(
    "usage",
    [
        Usage(model="gpt-4.1"),
        Usage(model="gpt-4.1", prompt_tokens=10, cached_prompt_tokens=11),
        Usage(model="gpt-4.1", prompt_tokens=10, completion_tokens=-5),
        Usage(model="gpt-4.1", prompt_tokens=10, cached_prompt_tokens=-5),
    ],
)
def test_counts_that_cannot_be_have_no_price(usage: Usage) -> None:
    assert cost_usd(usage, OPENAI_URL, NOW) is None


def test_unknown_price_is_logged_once_a_model(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gateway.providers.prices")
    for minute in range(3):
        for model in ("house-1", "house-2", "gpt-4.1"):
            cost_usd(used(model, 1), OPENAI_URL.replace("v1", "v1/test"), NOW + 60 * minute)
    assert [record.getMessage() for record in caplog.records] == [
        "the price of 'house-1' at api.openai.com is unknown",
        "the price of 'house-2' at api.openai.com is unknown",
    ]


# ── the library's own figures ──

SERVERS = {
    "openai": OPENAI_URL,
    "anthropic": ANTHROPIC_URL,
    "deepseek": "https://api.deepseek.com",
    "groq": "https://api.groq.com/openai/v1",
    "mistral": "https://api.mistral.ai/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "google": "https://generativelanguage.googleapis.com/v1beta/openai",
    "x-ai": "https://api.x.ai/v1",
}


def named(provider: PricedProvider) -> Sequence[tuple[str, str]]:
    return [(SERVERS[provider.id], model.id) for model in provider.models]


MODELS = [each for provider in get_snapshot().providers if provider.id in SERVERS for each in named(provider)]
TOKENS = st.integers(0, 400_000)
TIERS = st.sampled_from([None, "flex", "priority", "default", "batch"])


@given(st.sampled_from(MODELS), TOKENS, TOKENS, TOKENS, TOKENS, TIERS, st.integers(0, 86_400))
def test_known_price_is_that_of_the_library(
    where: tuple[str, str], plain: int, completion: int, read: int, written: int, tier: str | None, seconds: int
) -> None:
    (url, model), moment = where, NOW // 86_400 * 86_400 + seconds
    usage = used(model, plain, completion, read=read, written=written)
    if (cost := cost_usd(usage, url, moment, tier)) is None:
        return
    same = genai_prices.calc_price(
        genai_prices.Usage(
            input_tokens=usage.prompt_tokens,
            output_tokens=completion,
            cache_read_tokens=read,
            cache_write_tokens=written,
        ),
        model,
        provider_api_url=url,
        genai_request_timestamp=datetime.fromtimestamp(moment, UTC),
        price_context={"service_tier": tier} if tier else None,
    )
    assert cost == pytest.approx(float(same.total_price))


@given(st.sampled_from(MODELS), st.tuples(TOKENS, TOKENS, TOKENS, TOKENS), st.tuples(TOKENS, TOKENS, TOKENS, TOKENS))
def test_more_tokens_never_cost_less(where: tuple[str, str], some: Any, more: Any) -> None:
    (url, model), sums = where, [a + b for a, b in zip(some, more, strict=True)]
    fewer, all_of_them = (
        cost_usd(used(model, plain, said, read=read, written=written), url, NOW)
        for plain, said, read, written in (some, sums)
    )
    if fewer is not None:
        assert all_of_them is not None
        assert 0 <= fewer <= all_of_them * (1 + 1e-9)


def test_most_models_of_the_vendors_have_a_price() -> None:
    known = [model for url, model in MODELS if cost_usd(used(model, 1, 1), url, NOW) is not None]
    assert {"gpt-4.1", "gpt-5-mini", "gpt-6-sol", "o3", "claude-sonnet-5-5", "claude-haiku-4-5"} <= {*known}
    assert len(known) > 0.8 * len(MODELS)


# ── the replies of the vendors ──


def of_openai(counts: Any, url: str = OPENAI_URL, **more: Any) -> Usage:
    message = {"role": "assistant", "content": "Hi."}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    whole = {"id": "c", "object": "chat.completion", "created": 0, "model": "gpt-5-mini-2025-08-07"}
    answer = OpenAIAnswer()
    answer.add(openai.types.chat.ChatCompletion.model_validate({**whole, "choices": [choice], "usage": counts, **more}))
    return answer.response("gpt-5-mini", url, NOW).usage


def of_anthropic(counts: Any, last: Any = None) -> Usage:
    head = {"id": "m", "type": "message", "role": "assistant", "model": "claude-opus-4-5-20251101", "content": []}
    message = {**head, "stop_reason": None, "stop_sequence": None, "usage": counts}
    delta = {"stop_reason": "end_turn", "stop_sequence": None}
    answer = AnthropicAnswer()
    for event in (
        anthropic.types.RawMessageStartEvent.model_validate({"type": "message_start", "message": message}),
        anthropic.types.RawMessageDeltaEvent.model_validate(
            {"type": "message_delta", "delta": delta, "usage": last or {"output_tokens": 100}}
        ),
        anthropic.types.RawMessageStopEvent(type="message_stop"),
    ):
        answer.add(event)
    return answer.response("claude-opus-4-5", "prefix", ANTHROPIC_URL, NOW).usage


@pytest.mark.ledger("USE-03")
def test_cached_tokens_are_in_the_prompt_of_openai_alone() -> None:
    """The same call, as each vendor counts it: 1,000 tokens, 800 of them from the cache."""
    ours = of_openai(
        {
            "prompt_tokens": 1000,
            "completion_tokens": 100,
            "total_tokens": 1100,
            "prompt_tokens_details": {"cached_tokens": 800},
        }
    )
    theirs = of_anthropic({"input_tokens": 200, "cache_read_input_tokens": 800, "output_tokens": 1})
    for usage, name in ((ours, "openai"), (theirs, "anthropic")):
        assert (usage.prompt_tokens, usage.cached_prompt_tokens, usage.completion_tokens) == (1000, 800, 100)
        assert (usage.total_tokens, usage.provider, usage.unpriced_calls) == (1100, name, 0)
    assert (ours.model, theirs.model) == ("gpt-5-mini-2025-08-07", "claude-opus-4-5-20251101")
    assert ours.cost_usd == pytest.approx(0.00005 + 0.00002 + 0.0002)
    assert theirs.cost_usd == pytest.approx(0.001 + 0.0004 + 0.0025)


def test_written_tokens_are_apart() -> None:
    details = {"cached_tokens": 0, "cache_write_tokens": 900}
    ours = of_openai(
        {"prompt_tokens": 1000, "completion_tokens": 1, "total_tokens": 1001, "prompt_tokens_details": details}
    )
    theirs = of_anthropic({"input_tokens": 100, "cache_creation_input_tokens": 900, "output_tokens": 1})
    for usage in (ours, theirs):
        assert (usage.prompt_tokens, usage.cached_prompt_tokens, usage.cache_write_tokens) == (1000, 0, 900)
    assert theirs.cost_usd == pytest.approx(0.0005 + 0.005625 + 0.0025)


def test_reasoning_that_is_counted_apart_is_part_of_the_reply() -> None:
    counts = {"prompt_tokens": 10, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 3}}
    assert of_openai({**counts, "total_tokens": 15}).completion_tokens == 5
    assert of_openai({**counts, "total_tokens": 18}).completion_tokens == 8


def test_tier_of_the_reply_reaches_its_price() -> None:
    counts = {"prompt_tokens": MILLION, "completion_tokens": 0, "total_tokens": MILLION}
    assert of_openai(counts, service_tier="flex").cost_usd == 0.125
    assert of_openai(counts, service_tier="scale").cost_usd is None
    assert of_openai(counts, url="http://127.0.0.1:8000/v1").cost_usd is None


@each(
    "terms",
    [
        {"service_tier": "priority"},
        {"speed": "fast"},
        {"inference_geo": "us"},
        {"cache_creation": {"ephemeral_1h_input_tokens": 1, "ephemeral_5m_input_tokens": 0}},
    ],
)
def test_terms_with_another_price_make_it_unknown(terms: Any) -> None:
    counts = {"input_tokens": 9, "cache_creation_input_tokens": 1, "output_tokens": 1}
    standard = {"service_tier": "standard", "speed": "standard", "inference_geo": "global"}
    assert of_anthropic({**counts, **standard}).cost_usd is not None
    usage = of_anthropic({**counts, **standard, **terms})
    assert (usage.cost_usd, usage.unpriced_calls, usage.unpriced_tokens) == (None, 1, 110)


PRICES = [
    ConditionalPrice(prices=ModelPrice(input_mtok=Decimal(10), cache_read_mtok=Decimal(1), output_mtok=Decimal(20))),
    ConditionalPrice(
        constraint=StartDateConstraint(start_date=date(2026, 12, 1)),
        prices=ModelPrice(input_mtok=Decimal(30), cache_read_mtok=Decimal(3), output_mtok=Decimal(60)),
    ),
]


@pytest.fixture
def with_a_price(vendor: Vendor, model: ModelServer) -> Iterator[None]:
    """Put prices of this test's vendor server into the data."""
    info = ModelInfo(id=vendor.model, match=ClauseEquals(vendor.model), prices=PRICES)
    here = PricedProvider(id="here", name="here", api_pattern=re.escape(model.url), models=[info])
    set_custom_snapshot(DataSnapshot(providers=[here], from_auto_update=False))
    yield
    set_custom_snapshot(None)


def made(vendor: Vendor, model: ModelServer, clock: float) -> Provider:
    return vendor.provider(vendor.model, api_key=model.key, base_url=model.url, clock=lambda: clock)


@pytest.mark.usefixtures("with_a_price")
@each(("moment", "times"), [("2026-11-30T23:59:00", 1), ("2026-12-01T00:00:00", 3)])
async def test_call_has_its_price_either_way(vendor: Vendor, model: ModelServer, moment: str, times: int) -> None:
    provider = made(vendor, model, at(moment))
    model.script(["Hello there.", "Hello there."])
    replies: list[Response] = [await provider.complete(ASKED), (await streamed(provider))[1]]
    await provider.close()
    for usage in (reply.usage for reply in replies):
        assert usage.cached_prompt_tokens == 1, "as the fakes count"
        # A written token has no separate price here: the usual price applies.
        dollars = (usage.prompt_tokens - 1) * 10 + 1 * 1 + usage.completion_tokens * 20
        assert usage.cost_usd == pytest.approx(dollars * times / MILLION)
        assert (usage.model, usage.provider) == (vendor.model, vendor.name)


# ── the age of the data ──


def test_age_of_the_prices_counts_from_the_locked_release() -> None:
    locked = re.search(r"^genai-prices==(\S+)", (Path(__file__).parents[2] / "requirements/run.txt").read_text(), re.M)
    assert locked is not None
    assert (DATA_RELEASE[0], DATA_RELEASE[0]) == (locked[1], version("genai-prices")), "set DATA_RELEASE to its day"
    released = datetime(DATA_RELEASE[1].year, DATA_RELEASE[1].month, DATA_RELEASE[1].day, tzinfo=UTC)
    assert age_text(released + timedelta(days=12)) == f"genai-prices {DATA_RELEASE[0]}, at most 12 days old"
    assert age_warning(released + timedelta(days=180)) is None
    assert age_warning(released + timedelta(days=181)) == (
        f"the prices of models (genai-prices {DATA_RELEASE[0]}) may be 181 days old, and costs may be wrong: "
        "pip install --upgrade genai-prices"
    )


def test_prices_are_loaded_only_for_a_vendor() -> None:
    loaded = "import sys, gateway, gateway.app, gateway.providers.prices; sys.exit('genai_prices' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded], check=False).returncode == 0
