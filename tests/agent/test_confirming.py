"""Calls in need of a person's yes: asked together, once, and never run by the loop itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, cast

import pytest

from channels import Json
from gateway.agent import Agent, AgentConfig, Asked, Verdict
from gateway.agent.confirming import Approved
from gateway.observe.events import PolicyDecision
from gateway.tools import Confirm, Preview, Tool, ToolContext, ToolPolicy, compute_args_digest, tool
from tests.agent.scripted import Person, Script, Turn, call, calls, told


def deleting(confirm: Any = "Delete invoice {invoice_id} for good?") -> tuple[Tool, list[str]]:
    gone: list[str] = []

    @tool(confirm=confirm, idempotent=True)
    async def delete_invoice(invoice_id: str) -> str:
        """Delete an invoice."""
        gone.append(invoice_id)
        return f"{invoice_id} is gone"

    return delete_invoice, gone


@tool(read_only=True)
async def list_invoices() -> str:
    """List them."""
    return "INV-1, INV-2"


@pytest.mark.ledger("STOP-09", "PAR-10", "RES-06")
async def test_destructive_calls_are_asked_together_and_end_the_turn() -> None:
    delete, gone = deleting()
    reply = calls(
        call("delete_invoice", invoice_id="INV-1"), call("list_invoices"), call("delete_invoice", invoice_id="INV-2")
    )
    turn = Turn(Script([reply, "never"]), [delete, list_invoices], policy=ToolPolicy(allow=["*"]))
    outcome = await turn.run()
    assert (outcome.stop_reason, gone, len(turn.provider.requests)) == ("asked", [], 1)
    ((first, second),) = turn.person.asked
    assert (first.preview.text, second.args) == ("Delete invoice “INV-1” for good?", {"invoice_id": "INV-2"})
    one, listed, two = told(outcome)
    assert json.loads(one) == {
        "kind": "pending_confirmation",
        "action": "action-id-0",
        "preview": "Delete invoice “INV-1” for good?",
        "user_prompt": "Delete invoice “INV-1” for good? OK or NO?",
        "executed": False,
    }
    assert listed == "INV-1, INV-2"
    assert json.loads(two)["action"] == "action-id-2"
    assert [asked.action.args for asked in outcome.asked] == [{"invoice_id": "INV-1"}, {"invoice_id": "INV-2"}]


async def test_a_refused_ask_is_told_to_the_model_which_goes_on() -> None:
    delete, gone = deleting()
    turn = Turn(Script([call("delete_invoice", invoice_id="1"), "I see"]), [delete])
    turn.person = Person(verdict="Too many questions are open: at most 5.")
    outcome = await turn.run()
    assert told(outcome) == ["Too many questions are open: at most 5."]
    assert (outcome.stop_reason, outcome.content, gone) == ("answered", "I see", [])


async def test_approval_by_a_chat_runs_no_call() -> None:
    delete, gone = deleting()
    turn = Turn(Script([call("delete_invoice", invoice_id="1"), "I see"]), [delete])
    turn.person = Person(verdict=cast("Verdict", Approved()))
    assert told(await turn.run()) == ["Tool 'delete_invoice' was not run: a person has to confirm it first."]
    assert gone == []


async def test_call_refused_by_its_preview_is_not_asked() -> None:
    async def look(invoice_id: str, ctx: ToolContext) -> Preview:
        if invoice_id != "INV-1":
            raise ValueError(f"no invoice {invoice_id}; there is INV-1")
        return Preview(text=f"{ctx.person} deletes", precondition={"etag": 3})

    delete, _ = deleting(look)
    reply = calls(call("delete_invoice", invoice_id="INV-9"), call("delete_invoice", invoice_id="INV-1"))
    turn = Turn(Script([reply]), [delete])
    first, second = told(await turn.run())
    assert "no invoice INV-9; there is INV-1" in first
    assert json.loads(second)["preview"] == "telegram:1:2 deletes"
    ((ask,),) = turn.person.asked
    assert ask.preview.precondition == {"etag": 3}


async def test_call_outside_canonical_json_is_not_asked() -> None:
    @tool(confirm=True)
    async def pay(cents: int) -> None:
        """Pay."""

    turn = Turn(Script([call("pay", cents=2**60), "ok"]), [pay])
    (text,) = told(await turn.run())
    assert "canonical JSON" in text
    assert turn.person.asked == []


def reviewing(ran: list[str], *, asked: str = "") -> Turn:
    @tool
    async def write(path: str) -> None:
        """Write."""
        ran.append(path)

    @tool
    async def wipe() -> None:
        """Wipe."""
        ran.append("wipe")

    policy = ToolPolicy(allow=["list_*"], review=["write"], deny=["wipe"])
    reply = calls(call("list_invoices"), call("wipe"), *([call("write", path=asked)] if asked else []))
    return Turn(Script([reply, "ok"]), [list_invoices, write, wipe], policy=policy)


@pytest.mark.ledger("POL-05", "POL-06", "POL-09")
async def test_the_policy_runs_or_denies() -> None:
    ran = list[str]()
    listed, denied = told(await reviewing(ran).run())
    assert (listed, ran) == ("INV-1, INV-2", [])
    assert "not allowed" in denied


@pytest.mark.ledger("POL-08", "POL-15")
async def test_a_call_to_review_is_asked_about() -> None:
    ran = list[str]()
    *_, asked = told(await reviewing(ran, asked="/a").run())
    assert (json.loads(asked)["preview"], ran) == ("Run “write”?", [])


@pytest.mark.ledger("OBS-17", "POL-17")
async def test_each_decision_of_the_policy_is_told() -> None:
    turn = reviewing([], asked="/a")
    await turn.run()
    decided = turn.told.of_kind(PolicyDecision)
    assert [event.decision for event in decided] == ["allow", "deny", "review"]
    assert (decided[2].tool_name, decided[2].tool_args) == ("write", {"path": "/a"})
    assert [event.reason for event in decided] == ["allow list: 'list_*'", "deny list: 'wipe'", "review list: 'write'"]


async def test_deny_beats_a_tool_that_asks() -> None:
    delete, _ = deleting()
    turn = Turn(Script([call("delete_invoice", invoice_id="1"), "ok"]), [delete], policy=ToolPolicy(deny=["delete_*"]))
    assert "not allowed" in told(await turn.run())[0]
    assert turn.person.asked == []


@pytest.mark.ledger("LOOP-23", "POL-14")
async def test_agent_without_a_channel_returns_the_pending_action() -> None:
    delete, gone = deleting(Confirm("Delete {invoice_id}?", ttl_seconds=60))
    script = Script([call("delete_invoice", invoice_id="INV-1")])
    agent = Agent([delete], provider=script, policy=ToolPolicy(allow=["*"]))
    result = await agent.run("delete it", context=ToolContext(person="app:-:ana", conversation="user:ana"))
    assert (result.stop_reason, gone) == ("needs_confirmation", [])
    (action,) = result.pending
    assert (action.kind, action.args, action.preview) == ("delete_invoice", {"invoice_id": "INV-1"}, "Delete “INV-1”?")
    assert (action.state, action.requester, action.conversation) == ("pending", "app:-:ana", "user:ana")
    assert action.args_digest == compute_args_digest({"invoice_id": "INV-1"})
    assert action.tool_version == delete.version_hash
    assert len(action.pending_action_id) == 32
    assert [(made.name, made.args) for made in result.tool_calls] == [("delete_invoice", {"invoice_id": "INV-1"})]


async def deny_late(name: str, args: Mapping[str, Json], reason: str) -> bool:
    await asyncio.Event().wait()
    return True


def deny_loudly(name: str, args: Mapping[str, Json], reason: str) -> bool:
    raise RuntimeError("password=hunter2")


@pytest.mark.ledger("POL-07", "POL-10")
@pytest.mark.parametrize("approved", [True, False])
async def test_call_to_review_runs_if_confirm_action_says_true(approved: bool) -> None:
    ran = list[tuple[str, str]]()

    @tool
    async def write(path: str) -> str:
        """Write."""
        ran.append(("ran", path))
        return "written"

    def decide(name: str, args: Mapping[str, Json], reason: str) -> bool:
        ran.append((name, reason))
        return approved

    provider, config = Script([call("write", path="/a"), "ok"]), AgentConfig(confirm_action=decide)
    result = await Agent([write], provider=provider, config=config, policy=ToolPolicy(review=["write"])).run("write")
    assert ran == [("write", "review list: 'write'"), *([("ran", "/a")] if approved else [])]
    assert (result.messages[1].content == "written") == approved


@pytest.mark.parametrize(
    ("confirm_action", "seconds", "words"),
    [
        (lambda *_: False, 20, "not approved"),
        (lambda *_: 1, 20, "not approved"),
        pytest.param(
            deny_late, 0.01, "nobody answered in time", marks=pytest.mark.ledger("POL-12", "RTY-16"), id="late"
        ),
        pytest.param(deny_loudly, 20, "the approval failed", marks=pytest.mark.ledger("POL-13"), id="raises"),
    ],
)
async def test_confirm_action_must_say_true_in_time(confirm_action: Any, seconds: float, words: str) -> None:
    delete, gone = deleting()
    provider = Script([call("delete_invoice", invoice_id="1"), "ok"])
    config = AgentConfig(confirm_action=confirm_action, approval_timeout_seconds=seconds)
    result = await Agent([delete], provider=provider, config=config).run("delete 1")
    assert (result.stop_reason, gone) == ("answered", [])
    (text,) = [m.content for m in result.messages if m.role == "tool"]
    assert words in text
    assert "hunter2" not in text


@pytest.mark.ledger("POL-10")
async def test_call_denied_by_confirm_action_is_not_put_to_it_again() -> None:
    delete, gone = deleting()
    seen: list[tuple[str, Mapping[str, Json]]] = []

    async def only_two(name: str, args: Mapping[str, Json], reason: str) -> bool:
        seen.append((name, args))
        return args["invoice_id"] == "2"

    script = [call("delete_invoice", invoice_id=number) for number in ("1", "2", "1")]
    agent = Agent([delete], provider=Script([*script, "ok"]), config=AgentConfig(confirm_action=only_two))
    assert (await agent.run("delete")).stop_reason == "answered"
    assert gone == ["2"]
    assert [args["invoice_id"] for _, args in seen] == ["1", "2"]


async def test_ask_beside_a_terminal_tool_ends_the_turn_as_asked() -> None:
    @tool(terminal=True, read_only=True)
    async def form() -> str:
        """Show a form."""
        return "form"

    delete, _ = deleting()
    turn = Turn(
        Script([calls(call("form"), call("delete_invoice", invoice_id="1"), content="One moment")]), [delete, form]
    )
    outcome = await turn.run()
    assert (outcome.stop_reason, outcome.content) == ("asked", "One moment")
    assert isinstance(outcome.asked[0], Asked)
    assert len(told(outcome)) == 2


@pytest.mark.ledger("POL-11")
def test_an_async_callback_decides_in_a_sync_run_too() -> None:
    delete, gone = deleting()

    async def yes(name: str, args: Mapping[str, Json], reason: str) -> bool:
        await asyncio.sleep(0)
        return True

    script = Script([call("delete_invoice", invoice_id="INV-1"), "done"])
    result = Agent([delete], provider=script, config=AgentConfig(confirm_action=yes)).run_sync("delete it")
    assert (result.content, gone) == ("done", ["INV-1"])
