"""A turn is taken over from a checkpoint that somebody has written to: nothing runs, and nothing is asked, by it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from channels import Json
from gateway.pending.propose import propose_action
from gateway.pending.seal import compute_digest
from gateway.store.transaction import Transaction
from gateway.tools import PendingAction, Preview
from gateway.tools.pending_action import Token, Vote
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, here, message, rig

pytestmark = pytest.mark.both_stores

CHAT = "agent/test:bot:ana"
REPLY: Json = {
    "content": "",
    "tool_calls": [{"call_id": "c0", "name": "delete_invoice", "args": {"invoice_id": "INV-1"}, "parse_error": None}],
    "usage": {"prompt_tokens": 0, "completion_tokens": 0},
    "model": "",
    "finish": "tools",
    "echo": None,
}
WORDS: Json = {"action": "delete_invoice", "preview": "Delete invoice INV-1 for good?", "user_prompt": "Asked."}


async def asked(chat: Rig) -> PendingAction:
    """What an earlier attempt at the turn would have recorded."""
    context = chat.worker.context
    tool, person = context.bot.tool("delete_invoice"), message("ana", "").person
    assert tool is not None and person is not None
    actions = await context.actions(CHAT)
    proposed = propose_action(
        actions,
        tool,
        {"invoice_id": "INV-1"},
        Preview(text="Delete invoice INV-1 for good?"),
        person=person,
        address=here("ana"),
        language="en",
        turn_started=actions.now,
        answer_window_seconds=60.0,
    )
    assert isinstance(proposed, PendingAction)
    return proposed


async def take_over(chat: Rig, *steps: Any) -> None:
    """The turn of "delete INV-1" dies after a reply of the model and these steps, and is taken over."""
    await chat.says("ana", "delete INV-1")
    lease = await chat.worker.lease("turn", lease_seconds=0.0)
    recorded: list[Json] = []
    for step in ({"events": [lease.events[0].seq]}, {"reply": REPLY}, *steps):
        context = f"{CHAT}\n{recorded[-1]['mac'] if recorded else ''}"  # type: ignore[index, call-overload]
        sealed = chat.worker.context.keyring.stamped("step", context, step) if isinstance(step, dict) else step
        recorded.append(sealed)
    await chat.store.commit(Transaction(partition=lease.partition, lease=lease, steps=recorded))
    for _ in range(4):
        await chat.turns()
        await chat.advance(10)


def verdict(record: Any) -> Any:
    return {"asked": 1, "verdicts": [["1.1", {"confirmation": WORDS, "record": record}]]}


async def put_aside(chat: Rig) -> bool:
    """Whether the turn has come to nothing but a dead letter and a word to the person."""
    nothing = (await chat.worker.context.actions(CHAT)).index.entries == ()
    (text,) = chat.platform.texts()
    return nothing and len(await chat.store.dead_letters()) == 1 and "went wrong" in text


async def test_ask_in_a_checkpoint_is_asked_once(tmp_path: Path, invoices: Invoices) -> None:
    async with rig(invoices.bot(), tmp_path) as chat:
        action = await asked(chat)
        await take_over(chat, verdict(action.to_json()))
        (shown,) = (await chat.worker.context.actions(CHAT)).open
        assert (shown.pending_action_id, shown.digest) == (action.pending_action_id, action.digest)
        (text,) = chat.platform.texts()
        assert action.code in text
    assert (invoices.deleted, invoices.model.requests) == ([], [])


CHANGES: dict[str, dict[str, Any]] = {
    "approved": {"state": "approved"},
    "running": {"state": "running", "fence": 1},
    "done": {"state": "done"},
    "closed": {"state": "closed", "reason": "refused"},
    "voted": {"votes": (Vote(person="test:bot:ana", name=None, at=datetime(2026, 1, 1, tzinfo=UTC)),)},
    "with a token": {"tokens": (Token(sha256="0" * 64, intent="confirm"),)},
    "shown before": {"prompts": ("1",)},
    "decided": {"decided_by": "test:bot:ana"},
    "of bob": {"requester": "test:bot:bob"},
    "of another chat": {"conversation": "agent/test:bot:bob"},
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
async def test_ask_changed_in_a_checkpoint_is_put_aside(
    tmp_path: Path, invoices: Invoices, changes: dict[str, Any]
) -> None:
    async with rig(invoices.bot(), tmp_path) as chat:
        action = await asked(chat)
        changed = replace(action, **changes)
        changed = replace(changed, digest=compute_digest(changed))
        await take_over(chat, verdict(changed.to_json()))
        assert await put_aside(chat)
    assert invoices.deleted == []


@pytest.mark.parametrize("record", [{}, {"state": "approved"}, {"pending_action_id": 7}], ids=str)
async def test_invalid_action_in_a_checkpoint_is_put_aside(tmp_path: Path, invoices: Invoices, record: Json) -> None:
    async with rig(invoices.bot(), tmp_path) as chat:
        await take_over(chat, verdict(record))
        assert await put_aside(chat)
    assert invoices.deleted == []


@pytest.mark.parametrize("verdict", ["approved", {"deferred": "newer"}, {"approved": True}, None], ids=str)
async def test_an_unknown_verdict_runs_nothing(tmp_path: Path, invoices: Invoices, verdict: Json) -> None:
    async with rig(invoices.bot(), tmp_path) as chat:
        await take_over(chat, {"asked": 1, "verdicts": [["1.1", verdict]]})
        (request,) = invoices.model.requests
        assert "cannot be read" in request.messages[-1].content
        assert await chat.store.dead_letters() == []
    assert invoices.deleted == []


@pytest.mark.parametrize("step", [{"approved": "1.1"}, {"started": 1}, "approved", None], ids=str)
async def test_an_unknown_step_puts_the_turn_aside(tmp_path: Path, invoices: Invoices, step: Json) -> None:
    async with rig(invoices.bot(), tmp_path) as chat:
        await take_over(chat, step)
        assert await put_aside(chat)
    assert (invoices.deleted, invoices.model.requests) == ([], [])
