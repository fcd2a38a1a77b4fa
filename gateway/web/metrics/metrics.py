"""The metrics of a gateway: the event reader, the timed store and the scrape."""

from __future__ import annotations

import asyncio
import hmac
import inspect
import os
import platform
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from ipaddress import ip_address
from typing import Any, Final, TypeAlias, cast

from aiohttp import HttpVersion11, hdrs, web
from prometheus_client import CollectorRegistry, Info, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from pydantic import SecretStr

from channels import AskfirstError
from gateway.observe.teller import Teller
from gateway.observe.watchdog import Watchdog
from gateway.store import errors
from gateway.store.base import Store
from gateway.store.types import KINDS, Stats
from gateway.web.limits import ClientLimits, handler_args, limit_bodies
from gateway.web.metrics.definitions import OTHER, Definitions, WithoutCreated
from gateway.web.metrics.reader import EventCounts
from gateway.web.serving import Running, serve

_VERSION: Final = version("askfirst")
_PROCESS: Final = ProcessCollector(registry=None)
"""The memory, CPU time and files of this process, shared by all gateways of the process."""
_ERRORS: Final = {
    errors.Conflict: "conflict",
    errors.Fenced: "fenced",
    errors.TooLate: "too_late",
    errors.Overloaded: "overloaded",
    errors.MailboxFull: "overloaded",
    errors.StoreUnavailable: "unavailable",
    errors.NotPrimary: "unavailable",
}


class Metrics:
    """The metrics of a gateway, in a separate registry.

    `events` is the reader for a Teller. `channels` and `tools` are the names of the gateway's own channels and tools:
    other names count as "other" and "unknown". `token` is the bearer required from readers.
    """

    def __init__(self, *, channels: Collection[str], tools: Collection[str], token: SecretStr | None = None) -> None:
        self._token = token
        self._registry = CollectorRegistry()
        self._definitions = Definitions(self._registry)
        self._calls = {name: self._definitions.store_calls.labels(name) for name in OPERATIONS}
        self._gauges: StoreGauges | None = None
        self._answered_at = 0.0
        self.events = EventCounts(self._definitions, channels, tools)
        self._registry.register(_PROCESS)
        about = Info("build", "The release that runs.", namespace="askfirst", registry=self._registry)
        about.info({"version": _VERSION, "python": platform.python_version()})

    def timed(self, store: Store) -> Store:
        """Return the store with timed calls."""
        return timed(store, self._note_call)

    def store_answered(self) -> float:
        """Return the time of the store's last answer, by the monotonic clock; 0 before the first."""
        return self._answered_at

    def watch(self, store: Store, held: Collection[tuple[str, str]], teller: Teller, watchdog: Watchdog) -> None:
        """Show the counts of this store, the held leases, the events missed by the teller's observers, and the stalls
        of the event loop."""
        self._gauges = StoreGauges(store)
        self._registry.register(self._gauges)
        self._registry.register(ProcessGauges(held, teller, watchdog))

    def add_to(self, app: web.Application) -> None:
        """Add ``/metrics`` to an application. Without a token only clients on this machine may read it."""
        add_page(app, self.scrape, self._token)

    def on_port(self, host: str, port: int) -> AbstractAsyncContextManager[Running]:
        """Serve ``/metrics`` on a separate port, readable by everybody without a token.

        Raises AskfirstError when the address cannot be bound.
        """
        return on_port(self.scrape, self._token, host, port)

    async def scrape(self) -> bytes:
        """Return all metrics in the text format of Prometheus. Takes a second at most, also when the store is away."""
        if self._gauges is not None:
            await self._gauges.refresh()
        return await asyncio.to_thread(generate_latest, WithoutCreated(self._registry))  # it reads /proc

    def _note_call(self, operation: str, seconds: float, error: BaseException | None) -> None:
        self._calls[operation].observe(seconds)
        if not isinstance(error, errors.StoreUnavailable):
            self._answered_at = time.monotonic()
        if error is not None:
            self._definitions.store_errors.labels(operation, _ERRORS.get(type(error), OTHER)).inc()


Scrape: TypeAlias = Callable[[], Awaitable[bytes]]
"""Returns all metrics as text."""

PATH: Final = "/metrics"
_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_FORWARDING: Final = re.compile(
    r"forward|\bvia\b|(client|real|connecting|user|external|remote)-?(ip|addr)|^(cf|cdn|x-envoy)-"
)
"""Headers with which proxies name their clients or themselves."""
_NOT_ALLOWED: Final = (
    "/metrics is read with ASKFIRST_ADMIN_TOKEN as a bearer. Without that setting it is read on this machine alone, "
    "by http://127.0.0.1 and through no proxy, or on a port of its own: ASKFIRST_METRICS_PORT.\n"
)


def add_page(app: web.Application, scrape: Scrape, token: SecretStr | None, *, own_port: bool = False) -> None:
    """Add ``/metrics``. A configured token is required; without a token only a client on this machine may read.

    `own_port`: the application has a separate port, readable by every client when no token is configured.
    """

    async def read(request: web.Request) -> web.Response:
        if token is not None:
            if not _has_token(request, token.get_secret_value()):
                return web.Response(
                    status=401,
                    text="the bearer is ASKFIRST_ADMIN_TOKEN\n",
                    headers={hdrs.WWW_AUTHENTICATE: 'Bearer realm="metrics"'},
                )
        elif not own_port and not _is_local(request):
            return web.Response(status=403, text=_NOT_ALLOWED)
        headers = {hdrs.CONTENT_TYPE: _TYPE, hdrs.CACHE_CONTROL: "no-store"}
        return web.Response(body=await scrape(), headers=headers)

    app.router.add_get(PATH, read)


@asynccontextmanager
async def on_port(scrape: Scrape, token: SecretStr | None, host: str, port: int) -> AsyncIterator[Running]:
    """Serve ``/metrics`` alone on a separate port. Raises AskfirstError when the port cannot be bound."""
    limits = ClientLimits()
    app = web.Application(handler_args=handler_args(limits))
    limit_bodies(app, limits)
    add_page(app, scrape, token, own_port=True)
    try:
        running = await serve(app, host, port)
    except (OSError, UnicodeError) as error:
        number = getattr(error, "errno", None) or 0
        why = os.strerror(number) if number > 0 else "no such name"
        raise AskfirstError(
            f"cannot listen on {host}:{port} for the metrics ({why}): give another ASKFIRST_METRICS_PORT"
        ) from error
    try:
        yield running
    finally:
        await running.cleanup()


def _has_token(request: web.Request, token: str) -> bool:
    scheme, _, given = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(
        given.strip().encode("utf-8", "surrogateescape"), token.encode()
    )


def _is_local(request: web.Request) -> bool:
    """Return True for a client on this machine without a proxy in between.

    The socket's address counts too, since an outer application may set the client's address by a header. A proxy
    without any header of its own still speaks HTTP/1.0, or sends the requested host name.
    """
    peer = request.get_extra_info("peername") or ("",)  # empty for the private socket behind an ASGI server
    try:
        is_loopback = all(ip_address(each.partition("%")[0]).is_loopback for each in (peer[0], request.remote or ""))
    except ValueError:
        return False
    host = request.host.rpartition(":")[0] if request.host.rpartition(":")[2].isdecimal() else request.host
    return (
        is_loopback
        and request.version >= HttpVersion11
        and host.lower() in _LOCAL_NAMES
        and not any(_FORWARDING.search(name.lower()) for name in request.headers)
    )


STORE_SECONDS: Final = 1.0
"""Time limit for the counts of the store. Above the limit the scrape reports the store as down."""
_CACHED_SECONDS: Final = 1.0

_STATES: Final = {"undelivered": "undelivered", "expiry": "shown", "unlaunched": "approved"}
"""Timer kind of an open action -> state of the action. Each open action has exactly one of these timers."""


@dataclass(frozen=True, slots=True)
class _Counts:
    stats: Stats
    has_headroom: bool


_COUNTS: Final[Sequence[tuple[str, str, Callable[[_Counts], float]]]] = (
    ("store_headroom", "1 if the store has room left for new messages.", lambda found: int(found.has_headroom)),
    ("events_waiting", "Events that wait for a turn or a decision.", lambda found: found.stats.waiting),
    ("decisions_waiting", "Presses, answers and deadlines that wait.", lambda found: found.stats.pointed),
    (
        "oldest_waiting_seconds",
        "Age of the event that waits longest; 0 if none waits.",
        lambda found: found.stats.oldest_waiting_seconds,
    ),
    ("outbox_parts", "Parts of replies that wait to be sent.", lambda found: found.stats.parts),
    ("timers", "Deadlines of actions and scheduled replies.", lambda found: found.stats.timers),
    ("dead_letters", "Dead letters: see askfirst dead list.", lambda found: found.stats.dead),
)
_COUNTS_BY: Final[Sequence[tuple[str, str, str, Callable[[_Counts], Mapping[str, int]]]]] = (
    (
        "lanes",
        "Conversations, outboxes and actions with work: ready, leased, parked (due later).",
        "state",
        lambda found: {"ready": found.stats.ready, "leased": found.stats.leased, "parked": found.stats.parked},
    ),
    (
        "actions_open",
        "Actions that are not launched yet: undelivered, shown, approved.",
        "state",
        lambda found: {state: found.stats.timer_kinds.get(kind, 0) for kind, state in _STATES.items()},
    ),
)


class StoreGauges:
    """The counts of the store, read by `refresh` at most once a second."""

    def __init__(self, store: Store, now: Callable[[], float] = time.monotonic) -> None:
        self._store, self._now = store, now
        self._read_at = -_CACHED_SECONDS
        self._counts: _Counts | None = None
        self._reading = asyncio.Lock()

    async def refresh(self) -> None:
        """Read the counts. A store without an answer in time has no counts."""
        async with self._reading:
            if self._now() - self._read_at < _CACHED_SECONDS:
                return
            try:
                async with asyncio.timeout(STORE_SECONDS):
                    self._counts = _Counts(await self._store.stats(), await self._store.has_headroom())
            except (AskfirstError, TimeoutError):
                self._counts = None
            self._read_at = self._now()

    def collect(self) -> Iterable[Metric]:
        """Yield the gauges. All but the first are empty while the store does not answer."""
        counts = self._counts
        yield _gauge("store_up", "1 if the store has answered this scrape.", int(counts is not None))
        for name, text, count in _COUNTS:
            yield _gauge(name, text, None if counts is None else count(counts))
        for name, text, label, count_each in _COUNTS_BY:
            yield _gauges(name, text, label, {} if counts is None else count_each(counts))


class ProcessGauges:
    """The leases held by this process, the events missed by observers, and the lag of the event loop."""

    def __init__(self, held: Collection[tuple[str, str]], events: Teller, watchdog: Watchdog) -> None:
        self._held, self._events, self._watchdog = held, events, watchdog

    def collect(self) -> Iterable[Metric]:
        """Yield the gauges and counters."""
        # The event loop goes on meanwhile: `list` and `dict` copy in one step.
        held = Counter(kind for kind, _ in list(self._held))
        yield _gauges(
            "leases_held",
            "Leases that this process holds: of running turns, running actions, outboxes that are sent.",
            "kind",
            {kind: held[kind] for kind in KINDS},
        )
        watchdog = self._watchdog
        yield _gauge("loop_lag_seconds", "Time by which callbacks of the event loop run late.", watchdog.lag.seconds)
        for name, text, value in (
            ("stalls", "Times at which the event loop stood still for over a second.", watchdog.stalls),
            ("stalled_seconds", "Seconds for which the event loop stood still then.", watchdog.stalled_seconds),
        ):
            yield CounterMetricFamily(f"askfirst_loop_{name}", text, value=value)
        for name, text, counts in (
            ("dropped", "Events that an observer did not get, because too many waited.", self._events.dropped),
            ("failed", "Events at which an observer raised or took too long.", self._events.failed),
        ):
            family = CounterMetricFamily(f"askfirst_observer_events_{name}", text, labels=["observer"])
            for observer, count in dict(counts).items():
                family.add_metric([observer], count)
            yield family


def _gauge(name: str, text: str, value: float | None) -> Metric:
    return GaugeMetricFamily(f"askfirst_{name}", text, value=value)


def _gauges(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(f"askfirst_{name}", text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family


OPERATIONS: Final = (
    *("accept", "acquire", "commit", "get", "has_headroom", "now", "outbox", "pending_decisions"),
    *("ping", "read", "renew", "run_timers", "scan", "stats"),
)
"""The timed calls. `lease` is not among these calls, because `lease` waits for work. Nor are the calls of operators'
commands."""

Called: TypeAlias = Callable[[str, float, BaseException | None], None]
"""Called after each call with the name of the call, the seconds, and the raised error or None."""


def timed(store: Store, called: Called) -> Store:
    """Return the same store, with `called` called after each of `OPERATIONS`. A cancelled call is not counted."""
    return cast("Store", _TimedStore(store, called))


class _TimedStore:
    def __init__(self, store: Store, called: Called) -> None:
        self._store = store
        for name, method in inspect.getmembers(type(store), inspect.isfunction):
            if not name.startswith("_"):  # bound here, since `__getattr__` costs more than most of these calls
                setattr(self, name, method.__get__(store))
        for name in OPERATIONS:
            setattr(self, name, _timed(name, getattr(store, name), called))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @property
    def offset_seconds(self) -> float:
        return self._store.offset_seconds

    @offset_seconds.setter
    def offset_seconds(self, seconds: float) -> None:
        self._store.offset_seconds = seconds


def _timed(name: str, call: Callable[..., Awaitable[Any]], called: Called) -> Callable[..., Awaitable[Any]]:
    clock = time.perf_counter

    async def run(*args: Any, **kwargs: Any) -> Any:
        began = clock()
        try:
            result = await call(*args, **kwargs)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            called(name, clock() - began, error)
            raise
        called(name, clock() - began, None)
        return result

    return run
