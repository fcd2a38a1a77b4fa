"""Asking: the checks of a call before the prompt, and the freezing of the call."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from channels import Address, Person
from gateway.pending import deciding
from gateway.pending.propose import QUOTA, ProposalRefused, asks_more, propose_action
from gateway.pending.reading import ReplyParser
from gateway.pending.seal import compute_digest
from gateway.tools import Confirm, Preview, Tool
from gateway.tools.pending_action import Ballot, PendingAction, compute_args_digest
from tests.pending.records import ANA, BOB, EVA, Table, deletion, make_tool


@pytest.mark.ledger("PEND-53", "PEND-09")
async def test_asked_action_is_frozen_and_sealed(private: Table) -> None:
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
    assert len(action.pending_action_id) == 32
    with pytest.raises(dataclasses.FrozenInstanceError):
        action.state = "done"  # type: ignore[misc]


async def test_arguments_changed_after_the_proposal_do_not_count(private: Table) -> None:
    args: dict[str, Any] = {"invoice_id": "INV-42", "lines": [1, 2]}
    actions = await private.actions()
    action = propose_action(
        actions,
        deletion(),
        args,
        Preview(text="Delete?"),
        person=ANA,
        address=private.address,
        language="en",
        turn_started=actions.now,
        answer_window_seconds=60.0,
    )
    assert isinstance(action, PendingAction)
    args["lines"].append(3)
    actions.ask(action)
    await private.write(actions)
    stored = await private.read(action.pending_action_id)
    assert stored.args == {"invoice_id": "INV-42", "lines": [1, 2]}
    assert stored.digest == compute_digest(stored)


async def test_an_equal_ask_joins_the_open_one(private: Table) -> None:
    first = await private.asked("INV-42")
    actions = await private.actions()
    joined = private.proposed(actions, "INV-42")
    assert joined.pending_action_id == first.pending_action_id


async def asked_as(
    private: Table, preview: Preview, tool: Tool | None = None, invoice: str = "INV-42"
) -> PendingAction:
    """Put an action with this preview on the actions, as the end of a turn does."""
    actions = await private.actions()
    action = private.proposed(actions, invoice, preview=preview, tool=tool)
    actions.ask(action)
    await private.write(actions)
    return await private.read(action.pending_action_id)


def previewing(**options: Any) -> Tool:
    """A tool with a preview function; the tests pass the preview to `propose_action`."""

    async def look() -> str:
        return ""

    return deletion(Confirm(look, **options))


SEEN = Preview(text="Delete 3 invoices?", table=[("Total", "3")], precondition=["etag", 3])


async def test_a_tuple_is_a_list_in_the_record_at_once(private: Table) -> None:
    seen = dataclasses.replace(SEEN, precondition=("etag", 3), table=[["Total", 3]])  # type: ignore[list-item,arg-type]
    action = private.proposed(await private.actions(), preview=seen)
    assert (action.precondition, action.table) == (["etag", 3], (("Total", "3"),))
    assert action == PendingAction.from_json(action.to_json())


async def test_an_equal_preview_joins_however_it_is_written(private: Table) -> None:
    first = await asked_as(private, SEEN, previewing())
    again = dataclasses.replace(SEEN, table=(("Total", "3"),), precondition=("etag", 3.0))  # type: ignore[arg-type]
    joined = private.proposed(await private.actions(), preview=again, tool=previewing())
    assert joined.pending_action_id == first.pending_action_id


@pytest.mark.parametrize(
    "change",
    [{"text": "Delete 300 invoices?"}, {"table": None}, {"precondition": ["etag", 4]}, {"precondition": None}],
    ids=["text", "table", "precondition", "none"],
)
async def test_an_ask_with_another_preview_supersedes(private: Table, change: dict[str, Any]) -> None:
    first = await asked_as(private, SEEN, previewing())
    seen = dataclasses.replace(SEEN, **change)
    action = private.proposed(await private.actions(), preview=seen, tool=previewing())
    assert (action.preview, action.supersedes) == (seen.text, first.pending_action_id)
    assert action.pending_action_id != first.pending_action_id


async def test_precondition_true_differs_from_the_number_one(private: Table) -> None:
    first = await asked_as(private, Preview(text="Delete?", precondition=1), previewing())
    action = private.proposed(
        await private.actions(), preview=Preview(text="Delete?", precondition=True), tool=previewing()
    )
    assert action.supersedes == first.pending_action_id


async def test_a_volatile_preview_never_joins(private: Table) -> None:
    first = await asked_as(private, SEEN, previewing(volatile=True))
    action = private.proposed(await private.actions(), preview=SEEN, tool=previewing(volatile=True))
    assert action.supersedes == first.pending_action_id


@pytest.mark.parametrize(
    "tool",
    [deletion("Delete {invoice_id}?"), deletion(version="2"), make_tool([BOB])],
    ids=["template", "version", "approvers"],
)
async def test_an_open_action_that_would_drift_is_superseded(group: Table, tool: Tool) -> None:
    first = await group.asked("INV-42")
    action = group.proposed(await group.actions(), "INV-42", tool=tool)
    assert action.supersedes == first.pending_action_id
    assert action.layout == tool.layout


async def test_other_calls_and_people_are_not_superseded(private: Table) -> None:
    await asked_as(private, SEEN)
    actions, seen = await private.actions(), Preview(text="Delete 300 invoices?")
    for action in (
        private.propose(actions, "INV-43", preview=seen),
        private.propose(actions, preview=seen, by=BOB),
        private.propose(actions, preview=seen, tool=deletion(name="drop_invoice")),
    ):
        assert isinstance(action, PendingAction)
        assert action.supersedes is None


async def test_refused_call_is_not_asked_with_a_new_preview(private: Table) -> None:
    action = await asked_as(private, SEEN, previewing())
    actions = await private.actions()
    turn_started = actions.now
    deciding.decide(actions, action.pending_action_id, "cancel", ANA, actions.now)
    await private.write(actions)
    seen = dataclasses.replace(SEEN, text="Delete 300 invoices?")
    again = private.propose(await private.actions(), preview=seen, tool=previewing(), turn_started=turn_started)
    assert isinstance(again, ProposalRefused)


async def test_calls_of_one_reply_supersede_one_another(private: Table) -> None:
    first, proposed, actions = await asked_as(private, SEEN), list[PendingAction](), await private.actions()
    other = Preview(text="Delete 300 invoices?")
    for seen in (other, other, SEEN):
        action = private.proposed(actions, preview=seen, proposed=proposed)
        proposed.append(action)
    second, same, third = proposed
    assert same is second
    assert (second.supersedes, third.supersedes) == (first.pending_action_id, second.pending_action_id)


async def test_of_several_older_ones_the_equal_one_is_joined(private: Table) -> None:
    """An older release asked the same call once for each precondition."""
    actions = await private.actions()
    for tag in (1, 2):
        action = private.proposed(actions, preview=dataclasses.replace(SEEN, precondition=tag))
        actions.ask(action)
    await private.write(actions)
    actions = await private.actions()
    assert len(actions.open) == 2
    for tag, older in zip((1, 2), actions.open, strict=True):
        assert private.propose(actions, preview=dataclasses.replace(SEEN, precondition=tag)) is older


async def test_quota_leaves_out_superseded_actions(private: Table) -> None:
    for number in range(QUOTA - 1):
        await asked_as(private, SEEN, invoice=f"INV-{number}")
    actions, seen, proposed = await private.actions(), Preview(text="Delete 300 invoices?"), list[PendingAction]()
    for invoice in ("INV-1", "INV-8", "INV-2"):
        action = private.proposed(actions, invoice, preview=seen, proposed=proposed)
        proposed.append(action)
    assert isinstance(private.propose(actions, "INV-9", preview=seen, proposed=proposed), ProposalRefused)


async def test_the_quota_counts_an_action_that_was_joined_once(private: Table) -> None:
    for number in range(QUOTA - 1):
        await private.asked(f"INV-{number}")
    actions = await private.actions()
    joined = private.proposed(actions, "INV-0")
    assert isinstance(private.propose(actions, "INV-9", proposed=[joined]), PendingAction)


@pytest.mark.parametrize("other", ["argument", "tool", "precondition", "person"])
async def test_differing_ask_does_not_join_the_open_one(private: Table, other: str) -> None:
    first = await private.asked("INV-42")
    actions = await private.actions()
    more: dict[str, Any] = {}
    match other:
        case "tool":
            more["tool"] = deletion(name="drop_invoice")
        case "precondition":
            more["preview"] = Preview(text="Delete invoice INV-42?", precondition={"etag": "8"})
        case "person":
            more["by"] = BOB
    action = private.proposed(actions, "INV-43" if other == "argument" else "INV-42", **more)
    assert action.pending_action_id != first.pending_action_id
    assert action.code != first.code


async def test_two_equal_asks_of_one_turn_are_one(private: Table) -> None:
    actions = await private.actions()
    first = private.proposed(actions)
    assert private.propose(actions, proposed=[first]) is first


async def test_five_open_actions_of_a_person_and_no_more(private: Table) -> None:
    for number in range(QUOTA):
        await private.asked(f"INV-{number}")
    actions = await private.actions()
    refused = private.propose(actions, "INV-9")
    assert isinstance(refused, ProposalRefused)
    assert "5 questions" in refused.why
    assert isinstance(private.propose(actions, "INV-1"), PendingAction)
    assert isinstance(private.propose(actions, "INV-9", by=BOB), PendingAction)
    assert len({action.code for action in actions.open}) == QUOTA


async def test_quota_counts_earlier_asks_of_the_same_turn(private: Table) -> None:
    actions, proposed = await private.actions(), list[PendingAction]()
    for number in range(QUOTA):
        action = private.proposed(actions, f"INV-{number}", proposed=proposed)
        proposed.append(action)
    assert isinstance(private.propose(actions, "INV-9", proposed=proposed), ProposalRefused)
    assert len({action.code for action in proposed}) == QUOTA


async def test_refused_call_is_not_asked_again_within_the_turn(private: Table) -> None:
    action = await private.asked("INV-42")
    actions = await private.actions()
    turn_started = actions.now
    deciding.decide(actions, action.pending_action_id, "cancel", ANA, actions.now)
    await private.write(actions)
    actions = await private.actions()
    again = private.propose(actions, "INV-42", turn_started=turn_started)
    assert isinstance(again, ProposalRefused)
    assert "not confirmed since the person last wrote" in again.why
    assert isinstance(private.propose(actions, "INV-43", turn_started=turn_started), PendingAction)
    assert isinstance(private.propose(actions, "INV-42", by=BOB, turn_started=turn_started), PendingAction)
    assert isinstance(private.propose(actions, "INV-42", turn_started=actions.now), PendingAction)


@pytest.mark.ledger("PEND-13")
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
async def test_tools_window_beats_the_channels_and_then_the_default(
    group: Table, channel: str, tool_seconds: float | None, approvers: bool, seconds: float
) -> None:
    tool = make_tool([BOB] if approvers else [], ttl_seconds=tool_seconds)
    address = Address(channel=channel, account="bot", place="p", group=True)
    ballots = {str(BOB): Ballot(person=str(BOB))}
    action = group.proposed(await group.actions(), tool=tool, address=address, ballots=ballots)
    assert (action.ttl_seconds, action.answer_window_seconds) == (seconds, 60.0)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_bad_duration_is_refused_when_the_tool_is_made(seconds: float) -> None:
    with pytest.raises(ValueError, match="positive number"):
        Confirm("?", ttl_seconds=seconds)


async def test_a_preview_that_cannot_be_kept_is_not_asked(private: Table) -> None:
    await private.asked("INV-42")
    refused = private.propose(await private.actions(), preview=Preview(text="half a \ud800"))
    assert isinstance(refused, ProposalRefused)
    assert "preview" in refused.why


async def test_approvers_are_kept_with_the_action(group: Table) -> None:
    action = group.proposed(await group.actions(), tool=make_tool([BOB, EVA], need=2))
    assert (action.approvers, action.need) == ((str(BOB), str(EVA)), 2)


async def test_requester_is_an_approver_only_where_the_rule_says_so(group: Table) -> None:
    actions = await group.actions()
    without = group.propose(actions, tool=make_tool([ANA, BOB]))
    including = group.propose(actions, tool=make_tool([BOB], requester=True))
    assert isinstance(without, PendingAction) and isinstance(including, PendingAction)
    assert without.approvers == (str(BOB),)
    assert including.approvers == (str(BOB), str(ANA))


@pytest.mark.parametrize(("people", "need"), [([ANA], 1), ([ANA, BOB], 2)])
async def test_rule_only_the_requester_could_meet_is_never_asked(group: Table, people: list[Person], need: int) -> None:
    """Else the last approver could ask, and confirm alone despite the four-eyes rule."""
    refused = group.propose(await group.actions(), tool=make_tool(people, need=need))
    assert isinstance(refused, ProposalRefused)
    assert "other than the one who asked" in refused.why


async def test_ask_is_refused_when_too_few_approvers_can_be_reached(private: Table) -> None:
    tool, actions = make_tool([BOB, EVA], need=2), await private.actions()
    refused = private.propose(actions, tool=tool, ballots={str(BOB): Ballot(person=str(BOB))})
    assert isinstance(refused, ProposalRefused)
    assert "cannot be reached" in refused.why and refused.unreached


async def test_standins_are_asked_when_too_few_approvers_are_reached(private: Table) -> None:
    tool, actions = make_tool([BOB], standin=[str(EVA)]), await private.actions()
    ballots = {str(person): Ballot(person=str(person)) for person in (BOB, EVA)}
    waiting = private.propose(actions, tool=tool, ballots=ballots)
    del ballots[str(BOB)]
    alone = private.propose(actions, tool=tool, ballots=ballots)
    assert isinstance(waiting, PendingAction) and isinstance(alone, PendingAction)
    assert [ballot.state for ballot in waiting.ballots] == ["asked", "named"]
    assert [ballot.state for ballot in alone.ballots] == ["lost", "asked"]


async def test_an_approver_rule_that_grew_stricter_is_noticed(group: Table) -> None:
    actions = await group.actions()
    alone, of_two = group.propose(actions), group.propose(actions, tool=make_tool([BOB, EVA]))
    assert isinstance(alone, PendingAction) and isinstance(of_two, PendingAction)
    assert not asks_more(deletion().approvers, alone)
    assert asks_more(make_tool([BOB]).approvers, alone)
    assert not asks_more(make_tool([BOB], requester=True).approvers, alone)
    assert not asks_more(make_tool([BOB, EVA]).approvers, of_two)
    assert asks_more(make_tool([BOB]).approvers, of_two)
    assert asks_more(make_tool([BOB, EVA], need=2).approvers, of_two)
    assert not asks_more(deletion().approvers, of_two)
