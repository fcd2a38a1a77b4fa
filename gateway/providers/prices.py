"""Prices of calls to models, from the data of the package genai-prices. The gateway never fetches newer data.

The URL of a server decides on the prices: a server of another host may have other prices for the same model. Without a
certain price in the data, the price is unknown.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any, Final
from urllib.parse import urlsplit

from gateway.providers.base import Usage

log = logging.getLogger(__name__)

_PACKAGE: Final = "genai-prices"

DATA_RELEASE: Final = ("0.2.3", date(2026, 11, 10))
"""The locked version of genai-prices and the day of the release. The package does not name the date of the data."""

_OLD: Final = timedelta(days=180)

STANDARD_TERMS: Final = frozenset({"auto", "default", "global", "not_available", "on_demand", "standard"})
"""The service tiers, speeds and regions with the standard prices.

See https://platform.openai.com/docs/api-reference/chat/object and https://platform.claude.com/docs/en/api/messages.
"""

_SEARCHES: Final = re.compile(r"sonar|search")
"""The models with a web search in each call, at a separate price."""

_UNCOUNTED: Final = ("output_reasoning_mtok", "output_citation_mtok", "requests_kcount")
"""The prices of units outside of a Usage."""

_SHARES: Final = ("input_mtok", "cache_read_mtok", "cache_write_mtok", "output_mtok")


@dataclass(frozen=True, slots=True)
class _Rates:
    """The prices of a token in US dollars for a prompt of more than `above` tokens."""

    above: int
    plain: float
    read: float
    written: float
    completion: float


_KNOWN: Final[dict[tuple[str, str, str], tuple[int, tuple[_Rates, ...]]]] = {}
"""The rates by URL, model and service tier, the longest prompts first, with the minute of their lookup.

Some prices begin on a day, or hold at times of the day. An unknown price has no rates.
"""
_MOST_KNOWN: Final = 1000
"""The limit of known models: a server may give each reply another model name."""


def load() -> None:
    """Load the data. The call blocks for some tenths of a second: inside an event loop, call in a thread."""
    _library()


def priced(usage: Usage, url: str, at: float, service_tier: str | None = None) -> Usage:
    """Return the usage of one call with the cost by cost_usd, or as one call of unknown price."""
    cost = cost_usd(usage, url, at, service_tier)
    if cost is None:
        return replace(usage, unpriced_calls=1, unpriced_tokens=usage.total_tokens)
    return replace(usage, cost_usd=cost)


def cost_usd(usage: Usage, url: str, at: float, service_tier: str | None = None) -> float | None:
    """Return the price of one call in US dollars. None: unknown, logged once for each model.

    `url` is the URL of the called API, `at` the POSIX time of the call, and `service_tier` the tier in the reply. The
    first call in a process loads the data if `load` was not called before.
    """
    tier = "" if not service_tier or service_tier in STANDARD_TERMS else service_tier
    key, minute = (url, usage.model, tier), int(at // 60)
    known = _KNOWN.get(key)
    if known is None or known[0] != minute:
        rates = _rates(url, usage.model, tier, minute * 60)
        if known is None and not rates:
            special = f" with the terms {tier!r}" if tier else ""
            log.info("the price of %r at %s%s is unknown", usage.model, urlsplit(url).hostname, special)
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        known = _KNOWN[key] = (minute, rates)
    read, written = usage.cached_prompt_tokens, usage.cache_write_tokens
    plain = usage.prompt_tokens - read - written
    # The counts of the server may contradict each other, or be missing.
    if min(plain, read, written, usage.completion_tokens) < 0 or not usage.total_tokens:
        return None
    for each in known[1]:
        if usage.prompt_tokens > each.above:
            prompt = plain * each.plain + read * each.read + written * each.written
            return prompt + usage.completion_tokens * each.completion
    return None


def age_text(now: datetime) -> str | None:
    """Return the version of the prices and the highest possible age. None: no prices are installed."""
    age = _age(now)
    return None if age is None else f"{_PACKAGE} {_installed()}, at most {max(age.days, 0)} days old"


def age_warning(now: datetime) -> str | None:
    """Return a warning for operators when the prices may be older than 180 days."""
    age = _age(now)
    if age is None or age <= _OLD:
        return None
    return (
        f"the prices of models ({_PACKAGE} {_installed()}) may be {age.days} days old, and costs may be wrong: "
        f"pip install --upgrade {_PACKAGE}"
    )


def _age(now: datetime) -> timedelta | None:
    """Return the highest possible age of the prices. A newer installed version counts as the locked version."""
    return None if _installed() is None else now.astimezone(UTC) - datetime.combine(DATA_RELEASE[1], time(), UTC)


@cache
def _installed() -> str | None:
    try:
        return version(_PACKAGE)
    except PackageNotFoundError:
        return None


@cache
def _library() -> ModuleType | None:
    try:
        import genai_prices
        from genai_prices.data_snapshot import get_snapshot
    except ImportError as error:
        log.warning("costs are unknown: pip install --upgrade %s (%s)", _PACKAGE, type(error).__name__)
        return None
    get_snapshot()
    return genai_prices


def _rates(url: str, model: str, tier: str, at: float) -> tuple[_Rates, ...]:
    """Return the rates of a model at this time, the longest prompts first; no rates if unknown."""
    library = _library()
    if library is None or not model or _SEARCHES.search(model):
        return ()
    moment = datetime.fromtimestamp(at, UTC)
    context = {"service_tier": tier} if tier else None
    try:
        found = library.calc_price(
            library.Usage(), model, provider_api_url=url, genai_request_timestamp=moment, price_context=context
        )
    except (LookupError, ValueError):
        return ()
    # The library gives the standard price for a tier that it does not know.
    knows_tier = any(
        each.when == context and (each.constraint is None or each.constraint.active(moment))
        for each in found.model.price_variants or ()
    )
    if not _is_host_of(found.provider.api_pattern, url) or (tier and not knows_tier):
        return ()
    return tuple(_tiers(found.model_price))


def _is_host_of(pattern: str, url: str) -> bool:
    """Return True if the pattern matches the whole host: the library compares only the beginning of a URL."""
    match = re.match(pattern, url)
    return match is not None and (match[0].endswith("/") or url[match.end() :][:1] in ("", "/", ":"))


def _tiers(price: Any) -> Iterator[_Rates]:
    """Yield the rates of each length of prompt. The rates of a longer prompt apply to all tokens of the call."""
    shares = [getattr(price, name) for name in _SHARES]
    if shares[0] is None or shares[-1] is None or any(getattr(price, name) is not None for name in _UNCOUNTED):
        return
    starts = {tier.start for share in shares for tier in getattr(share, "tiers", ())}
    for above in (*sorted(starts, reverse=True), -1):
        # Tokens of a cache without a price of its own are charged as others.
        plain, read, written, completion = (_of_a_token(shares[0] if s is None else s, above) for s in shares)
        yield _Rates(above=above, plain=plain, read=read, written=written, completion=completion)


def _of_a_token(share: Any, above: int) -> float:
    price: Decimal = getattr(share, "base", share)
    for tier in getattr(share, "tiers", ()):
        if tier.start <= above:
            price = tier.price
    return float(price / 1_000_000)
