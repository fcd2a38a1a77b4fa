"""Asking: what a call must pass before a person is shown it, and how it is frozen."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest

from channels import Address, Person
from gateway.pending.ask import QUOTA, Refused, asks_more, propose
from gateway.pending.reading import ReplyParser
from gateway.pending.seal import compute_digest
from gateway.tools import Confirm, Preview
from gateway.tools.action import PendingAction, compute_args_digest
from tests.pending.records import ANA, BOB, EVA, GROUP, KEYRING, Table, deletion, make_tool, table


@pytest.fixture
async def private() -> AsyncIterator[Table]:
    async with table() as found:
        yield found


@pytest.fixture
async def group() -> AsyncIterator[Table]:
    async with table(GROUP) as found:
        yield found


@pytest.mark.ledger("PEND-53", "PEND-09")
async def test_what_is_asked_is_frozen_and_sealed(private: Table) -> None:
    action = await private.ask("INV-42")
    assert (action.kind, action.args, action.preview) == (
        "delete_invoice",
        {"invoice_id": "INV-42"},
        "Delete invoice INV-42?",
    )
    assert (action.requester, action.requester_name, action.conversation) == (str(ANA), "Ana", private.conversation)
    assert (action.state, action.parser_version) == ("pending", ReplyParser.version)
    assert action.tool_version == deletion().version_hash
    assert action.digest == compute_digest(action)
    assert action.args_digest == compute_args_digest({"invoice_id": "INV-42"})
    assert KEYRING.holds(action)
    assert len(action.pending_action_id) == 32
    with pytest.raises(dataclasses.FrozenInstanceError):
        action.state = "done"  # type: ignore[misc]


async def test_arguments_changed_in_the_process_afterwards_are_not_the_action(private: Table) -> None:
    args: dict[str, Any] = {"invoice_id": "INV-42", "lines": [1, 2]}
    desk = await private.desk()
    action = propose(
        desk,
        deletion(),
        args,
        Preview(text="Delete?"),
        person=ANA,
        address=private.address,
        language="en",
        turn_started=desk.now,
        answer_window_seconds=60.0,
    )
    assert isinstance(action, PendingAction)
    args["lines"].append(3)
    desk.ask(action)
    await private.write(desk)
    stored = await private.read(action.pending_action_id)
    assert stored.args == {"invoice_id": "INV-42", "lines": [1, 2]}
    assert KEYRING.holds(stored)


async def test_an_equal_ask_joins_the_open_one(private: Table) -> None:
    first = await private.asked("INV-42")
    desk = await private.desk()
    joined = private.propose(desk, "INV-42")
    assert isinstance(joined, PendingAction)
    assert joined.pending_action_id == first.pending_action_id


@pytest.mark.parametrize("other", ["argument", "tool", "precondition", "person"])
async def test_only_an_equal_ask_joins(private: Table, other: str) -> None:
    first = await private.asked("INV-42")
    desk = await private.desk()
    more: dict[str, Any] = {}
    match other:
        case "tool":
            more["tool"] = deletion(name="drop_invoice")
        case "precondition":
            more["preview"] = Preview(text="Delete invoice INV-42?", precondition={"etag": "8"})
        case "person":
            more["by"] = BOB
    action = private.propose(desk, "INV-43" if other == "argument" else "INV-42", **more)
    assert isinstance(action, PendingAction)
    assert action.pending_action_id != first.pending_action_id
    assert action.code != first.code


async def test_two_equal_asks_of_one_turn_are_one(private: Table) -> None:
    desk = await private.desk()
    first = private.propose(desk)
    assert isinstance(first, PendingAction)
    assert private.propose(desk, proposed=[first]) is first


async def test_five_open_actions_of_a_person_and_no_more(private: Table) -> None:
    for number in range(QUOTA):
        await private.asked(f"INV-{number}")
    desk = await private.desk()
    refused = private.propose(desk, "INV-9")
    assert isinstance(refused, Refused)
    assert "5 actions" in refused.why
    assert isinstance(private.propose(desk, "INV-1"), PendingAction)
    assert isinstance(private.propose(desk, "INV-9", by=BOB), PendingAction)
    assert len({action.code for action in desk.open}) == QUOTA


async def test_the_quota_counts_what_the_same_turn_asked_before(private: Table) -> None:
    desk, proposed = await private.desk(), list[PendingAction]()
    for number in range(QUOTA):
        action = private.propose(desk, f"INV-{number}", proposed=proposed)
        assert isinstance(action, PendingAction)
        proposed.append(action)
    assert isinstance(private.propose(desk, "INV-9", proposed=proposed), Refused)
    assert len({action.code for action in proposed}) == QUOTA


async def test_what_was_refused_is_not_asked_again_within_the_turn(private: Table) -> None:
    action = await private.asked("INV-42")
    desk = await private.desk()
    turn_started = desk.now
    desk.decide(action.pending_action_id, "cancel", ANA, desk.now)
    await private.write(desk)
    desk = await private.desk()
    again = private.propose(desk, "INV-42", turn_started=turn_started)
    assert isinstance(again, Refused)
    assert "said no" in again.why
    assert isinstance(private.propose(desk, "INV-43", turn_started=turn_started), PendingAction)
    assert isinstance(private.propose(desk, "INV-42", by=BOB, turn_started=turn_started), PendingAction)
    assert isinstance(private.propose(desk, "INV-42", turn_started=desk.now), PendingAction)


@pytest.mark.parametrize(
    ("channel", "tool_seconds", "approvers", "seconds"),
    [
        ("telegram", None, False, 900.0),
        ("webchat", None, False, 900.0),
        ("sms", None, False, 1800.0),
        ("whatsapp", None, False, 1800.0),
        ("telegram", None, True, 86400.0),
        ("sms", 42.0, False, 42.0),
        ("telegram", 42.0, True, 42.0),
    ],
)
async def test_the_tools_window_beats_the_channels_and_the_channels_the_default(
    group: Table, channel: str, tool_seconds: float | None, approvers: bool, seconds: float
) -> None:
    tool = make_tool([BOB] if approvers else [], ttl_seconds=tool_seconds)
    address = Address(channel=channel, account="bot", place="p", group=True)
    action = group.propose(await group.desk(), tool=tool, address=address)
    assert isinstance(action, PendingAction)
    assert (action.ttl_seconds, action.answer_window_seconds) == (seconds, 60.0)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_bad_duration_is_refused_when_the_tool_is_made(seconds: float) -> None:
    with pytest.raises(ValueError, match="positive number"):
        Confirm("?", ttl_seconds=seconds)


async def test_a_preview_that_cannot_be_kept_is_not_asked(private: Table) -> None:
    refused = private.propose(await private.desk(), preview=Preview(text="half a \ud800"))
    assert isinstance(refused, Refused)
    assert "preview" in refused.why


async def test_approvers_are_kept_with_the_action(group: Table) -> None:
    action = group.propose(await group.desk(), tool=make_tool([BOB, EVA], need=2))
    assert isinstance(action, PendingAction)
    assert (action.approvers, action.need) == ((str(BOB), str(EVA)), 2)


async def test_the_requester_may_be_one_of_the_approvers_only_where_the_rule_says_so(group: Table) -> None:
    desk = await group.desk()
    without = group.propose(desk, tool=make_tool([ANA, BOB]))
    including = group.propose(desk, tool=make_tool([BOB], requester=True))
    assert isinstance(without, PendingAction) and isinstance(including, PendingAction)
    assert without.approvers == (str(BOB),)
    assert including.approvers == (str(BOB), str(ANA))


@pytest.mark.parametrize(("people", "need"), [([ANA], 1), ([ANA, BOB], 2)])
async def test_a_rule_that_only_the_requester_could_meet_is_never_asked(
    group: Table, people: list[Person], need: int
) -> None:
    """Else the last approver could ask, and confirm alone what needs four eyes."""
    refused = group.propose(await group.desk(), tool=make_tool(people, need=need))
    assert isinstance(refused, Refused)
    assert "other than the one who asked" in refused.why


async def test_approvers_who_are_not_here_are_not_asked(private: Table) -> None:
    refused = private.propose(await private.desk(), tool=make_tool([BOB]))
    assert isinstance(refused, Refused)
    assert "not in this conversation" in refused.why


async def test_an_approver_rule_that_grew_stricter_is_noticed(group: Table) -> None:
    desk = await group.desk()
    alone, of_two = group.propose(desk), group.propose(desk, tool=make_tool([BOB, EVA]))
    assert isinstance(alone, PendingAction) and isinstance(of_two, PendingAction)
    assert not asks_more(deletion(), alone)
    assert asks_more(make_tool([BOB]), alone)
    assert not asks_more(make_tool([BOB], requester=True), alone)
    assert not asks_more(make_tool([BOB, EVA]), of_two)
    assert asks_more(make_tool([BOB]), of_two)
    assert asks_more(make_tool([BOB, EVA], need=2), of_two)
    assert not asks_more(deletion(), of_two)
