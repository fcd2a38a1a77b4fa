"""The metrics of one gateway: what reads its events, times its store and writes a scrape."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Collection
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, Info, ProcessCollector, generate_latest
from pydantic import SecretStr

from gateway.observe.teller import Teller
from gateway.store import errors
from gateway.store.base import Store
from gateway.store.timed import OPERATIONS, timed
from gateway.web.metrics.definitions import OTHER, Definitions, WithoutCreated
from gateway.web.metrics.gauges import ProcessGauges, StoreGauges
from gateway.web.metrics.page import add_page, on_port
from gateway.web.metrics.reader import EventCounts
from gateway.web.serving import Running

__all__ = ["Metrics"]

_VERSION: Final = version("askfirst")
_PROCESS: Final = ProcessCollector(registry=None)
"""The memory, CPU time and files of this process, for all of its gateways."""
_ERRORS: Final = {
    errors.Conflict: "conflict",
    errors.Fenced: "fenced",
    errors.TooLate: "too_late",
    errors.Overloaded: "overloaded",
    errors.MailboxFull: "overloaded",
    errors.StoreUnavailable: "unavailable",
}


class Metrics:
    """The metrics of one gateway, in a registry of their own.

    `events` is the reader that a Teller gets. `channels` and `tools` are the names of the gateway's own channels and
    tools: other names count as "other" and "unknown". `token` is the bearer that readers need.
    """

    def __init__(self, *, channels: Collection[str], tools: Collection[str], token: SecretStr | None = None) -> None:
        self._token = token
        self._registry = CollectorRegistry()
        self._definitions = Definitions(self._registry)
        self._calls = {name: self._definitions.store_calls.labels(name) for name in OPERATIONS}
        self._gauges: StoreGauges | None = None
        self.events = EventCounts(self._definitions, channels, tools)
        self._registry.register(_PROCESS)
        about = Info("build", "The release that runs.", namespace="askfirst", registry=self._registry)
        about.info({"version": _VERSION, "python": platform.python_version()})

    def timed(self, store: Store) -> Store:
        """Return the store with its calls timed."""
        return timed(store, self._note_call)

    def watch(self, store: Store, held: Collection[tuple[str, str]], teller: Teller) -> None:
        """Show the counts of this store, the leases that are held, and what the teller's observers missed."""
        self._gauges = StoreGauges(store)
        self._registry.register(self._gauges)
        self._registry.register(ProcessGauges(held, teller))

    def add_to(self, app: web.Application) -> None:
        """Add ``/metrics`` to an application. Without a token only clients on this machine may read it."""
        add_page(app, self.scrape, self._token)

    def on_port(self, host: str, port: int) -> AbstractAsyncContextManager[Running]:
        """Serve ``/metrics`` on a port of its own, where without a token everybody may read it.

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
        if error is not None:
            self._definitions.store_errors.labels(operation, _ERRORS.get(type(error), OTHER)).inc()
