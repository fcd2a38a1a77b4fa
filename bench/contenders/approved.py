"""The measured bot for decisions across chats: the tools of `shop`, with the people in APPROVERS as approvers.

Prints the moment (time.monotonic()) at the start of the commit that hands a question over.
"""

from __future__ import annotations

import os
import time

from bench.contenders.shop import Instant, delete
from gateway import Agent, Approvers, ChannelAgent, Confirm, tool
from gateway.engine.context import EngineContext
from gateway.store.transaction import Committed, Transaction

__all__ = ["bot"]

_APPROVERS = Approvers(people=os.environ["APPROVERS"].split(","))
_CONFIRM = Confirm("Delete invoice {invoice_id} for good?", approvers=_APPROVERS)
_commit = EngineContext.commit


async def _timed(self: EngineContext, transaction: Transaction) -> Committed:
    if any(event.event_ids[0].startswith("ballot/") for event in transaction.hand_over):
        print("asked at", time.monotonic(), flush=True)
    return await _commit(self, transaction)


EngineContext.commit = _timed  # type: ignore[method-assign]

bot = ChannelAgent(
    Agent([tool(name=f"delete_{number}", confirm=_CONFIRM)(delete) for number in range(4)], provider=Instant())
)
