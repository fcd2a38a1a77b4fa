"""A gateway in its own process, killed and frozen from outside. The process writes its steps into the record."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import channels.telegram.channel  # noqa: F401 - so that no child has to import it
from channels import Address, Channel, Part, Receipt
from gateway import Gateway, Settings
from gateway.store.base import Store
from gateway.store.redis import scripts
from gateway.store.transaction import Committed, Transaction
from gateway.store.types import Lease
from gateway.web import serve
from tests.chaos.bot import make_bot
from tests.chaos.record import Record

__all__ = ["Job", "run"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """The arguments of a worker."""

    settings: dict[str, Any]
    record: Path
    lease_seconds: float
    managers: tuple[str, ...]
    """The approvers, each in a chat of their own."""
    fenced: bool = True
    """False: a lost lease still holds."""
    gate: Path | None = None
    """The model answers once this file exists."""


def run(pipe: Connection, job: Job) -> None:
    """Run the process: send the URL, then the counts of the store on each request."""
    asyncio.run(_main(pipe, job))


async def _main(pipe: Connection, job: Job) -> None:
    record = Record(job.record)
    logging.basicConfig(level=logging.INFO, handlers=[_Log(record)])
    if not job.fenced:
        _take_down_the_fence()
    gateway = Gateway(make_bot(record, job.managers, job.gate), Settings(**job.settings))
    context = gateway.engine.context
    context.lease_seconds = job.lease_seconds
    _note_leases(context.store, record)
    _note_sends(gateway.channels["telegram"], record)
    async with gateway:
        running = await serve(gateway.aiohttp_app(), "127.0.0.1", 0)
        pipe.send(f"http://127.0.0.1:{running.port}/webhooks/telegram")
        while True:
            await asyncio.to_thread(pipe.recv)
            pipe.send(asdict(await context.store.stats()))


def _note_leases(store: Store, record: Record) -> None:
    """Record each lease of a turn, with the deaths before it, and each end."""
    lease, commit = store.lease, store.commit

    async def leased(*what: Any, **how: Any) -> Lease | None:
        taken = await lease(*what, **how)
        if taken is not None and taken.kind == "turn":
            record.write("leased", conversation=taken.lane, died=taken.died, tries=taken.tries)
        return taken

    async def committed(transaction: Transaction) -> Committed:
        done = await commit(transaction)
        if transaction.lease is not None and transaction.lease.kind == "turn" and transaction.finish:
            record.write("ended", conversation=transaction.lease.lane)
        return done

    store.lease, store.commit = leased, committed  # type: ignore[method-assign]


def _note_sends(channel: Channel, record: Record) -> None:
    """Record each part before the sending, with its place. The log has the arrival."""
    send = channel.send

    async def sending(address: Address, part: Part, *, key: str) -> Receipt:
        text = part.arguments.get("text")
        record.write("sending", part=key, place=address.place, call=part.call, text=text)
        return await send(address, part, key=key)

    channel.send = sending  # type: ignore[method-assign]


class _Log(logging.Handler):
    """Records the arrived parts of the log, and all warnings."""

    def __init__(self, record: Record) -> None:
        super().__init__()
        self._record = record

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg == "delivered":
            self._record.write("delivered", part=vars(record)["part"])
        elif record.levelno >= logging.WARNING:
            self._record.write("said", said=record.getMessage())


def _take_down_the_fence() -> None:
    """Let every worker hold every lease."""
    own, everybodys = "if state.worker and state.fence == tonumber(fence) then return state end", "return state"
    found = 0
    for _, script in inspect.getmembers(scripts, lambda member: isinstance(member, scripts.Script)):
        found += own in script.text
        text = script.text.replace(own, everybodys)
        object.__setattr__(script, "text", text)
        object.__setattr__(script, "sha", hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
    assert found, "the fence is elsewhere by now"
