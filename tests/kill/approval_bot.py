"""The bot with an action that two people approve in their own chats. The process kills itself once, at step DIES_AT.

A step is ``sent``, ``launched`` or ``effect``, or a step of a hand-over: ``committed`` (before the relay) or
``accepted`` (before the removal by the relay) with the first word of the event's id.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from channels import Address, Part, Receipt
from channels.telegram import TelegramChannel
from gateway import Agent, Approvers, ChannelAgent, Confirm, ToolContext, tool
from gateway.engine.context import EngineContext
from gateway.store.redis import scripts
from gateway.store.redis.connection import Server
from gateway.store.redis.scripts import Script
from gateway.store.transaction import Committed, Transaction
from tests.kill.bot import _call

AT = os.environ.get("DIES_AT", "")
APPROVERS = os.environ["APPROVERS"].split(",")


def dies(step: str) -> None:
    """Kill the process at step AT, unless a process has died before."""
    if step == AT:
        try:
            Path("died").touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


@tool(confirm=Confirm("Pay invoice {invoice_id}?", approvers=Approvers(people=APPROVERS, need=2)), idempotent=True)
async def pay_invoice(invoice_id: str, ctx: ToolContext) -> str:
    """Pay an invoice."""
    told = await _call("pay", ctx, invoice_id)
    dies("effect")
    return told


commit, send, run = EngineContext.commit, TelegramChannel.send, Server.run


async def _committed(self: EngineContext, transaction: Transaction) -> Committed:
    committed = await commit(self, transaction)
    if transaction.actions:
        dies("launched")
    for event in transaction.hand_over:
        dies(f"committed {event.event_ids[0].partition('/')[0]}")
    return committed


async def _sent(self: TelegramChannel, address: Address, part: Part, *, key: str) -> Receipt:
    receipt = await send(self, address, part, key=key)
    if "asks for your approval" in str(part.arguments):
        dies("sent")
    return receipt


async def _run(self: Server, script: Script, partitions: Sequence[str], *arguments: Any) -> list[Any]:
    """On Redis, die between the separate calls of the relay."""
    answer = await run(self, script, partitions, *arguments)
    words = [each.decode() for each in arguments if isinstance(each, bytes) and b"handover/" in each]
    handed = {word.partition("handover/")[2].partition("/")[0] for word in words}
    for first in handed:
        if script in (scripts.COMMIT, scripts.ADD):
            dies(f"committed {first}")
        elif script is scripts.ACCEPT:
            dies(f"accepted {first}")
    return answer


EngineContext.commit = _committed  # type: ignore[method-assign]
TelegramChannel.send = _sent  # type: ignore[method-assign]
Server.run = _run  # type: ignore[method-assign]

bot = ChannelAgent(Agent([pay_invoice], provider="openai:test-model"))
