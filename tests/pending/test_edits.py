"""Edits of prompts: each edit is a single message of the real platform, and names every question still open."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from channels import Person
from channels.channel import is_one_message
from gateway.pending import deciding, prompting, settling
from gateway.pending.actions import ConversationActions
from gateway.pending.index import Showing
from gateway.pending.transitions import approve, launch
from gateway.tools import Preview
from gateway.tools.pending_action import PendingAction
from tests.pending.records import ANA, Table
from tests.pending.test_plans import CHANNELS, PLACES

ENDS = ["refused", "refused with a reason", "expired", "running", "done", "failed", "unknown", "drifted"]
PLATFORMS = ["telegram", "slack", "whatsapp"]
LONGEST_REASON = 195


async def delivered(table: Table, platform: str, previews: Sequence[Preview]) -> ConversationActions:
    """Ask for these at once on a platform; each message has arrived."""
    channel = CHANNELS[platform]
    on: dict[str, Any] = {"capabilities": channel.capabilities, "fits": partial(is_one_message, channel)}
    actions = await table.actions(**on)
    proposed: list[PendingAction] = []
    for number, preview in enumerate(previews):
        more: dict[str, Any] = {"address": PLACES[platform], "plan": "p", "proposed": proposed, "preview": preview}
        proposed.append(table.proposed(actions, f"{number}", **more))
    prompting.show_prompt(actions, [actions.ask(action) for action in proposed])
    prompts = [said for said in actions.says if said.shows]
    await table.write(actions)
    actions = await table.actions(**on)
    for number, said in enumerate(prompts):
        at, shows = actions.now, frozenset(said.shows)
        showing = Showing(at=at, queued=at, shows=shows, alone=True, listed=said.listed, message_id=f"{100 + number}")
        prompting.note_arrived(actions, showing)
    await table.write(actions)
    return await table.actions(**on)


def end(actions: ConversationActions, action: PendingAction, how: str, reason: str, person: Person) -> None:
    at = actions.now
    if how.startswith("refused"):
        remark = reason if how != "refused" else ""
        assert deciding.code(actions, action.code, lambda *_: "cancel", person, at, "en", remark=remark)
    elif how == "expired":
        settling.expire(actions, action.pending_action_id, at + timedelta(days=1))
    elif how == "drifted":
        settling.close(actions, action, "drifted", at, detail="not_checked", tell="not_checked")
    else:
        running = launch(approve(action, str(person), person.name, at), 1, at)
        actions.change(running, at)
        ended: Any = how
        if how == "running":  # as the executor shows it
            for message_id in action.prompts:
                prompting.edit_prompt(actions, message_id, at)
        else:
            assert settling.finish(actions, action.pending_action_id, 1, ended, "", at)


def assert_edits_fit(platform: str, actions: ConversationActions) -> None:
    """Check that each message with an ended question has one edit, in one message, with the open questions."""
    edits = {said.reply.edits: said.reply for said in actions.says if said.reply.edits is not None}
    asked = list(actions.by_id.values())
    assert {*edits} == {message_id for action in asked if not action.open for message_id in action.prompts}
    for message_id, reply in edits.items():
        assert is_one_message(CHANNELS[platform], PLACES[platform], reply)
        there = [action for action in asked if message_id in action.prompts]
        assert all(action.code in reply.text for action in there if action.open)
        waits = [button for button in reply.buttons if button.style != "plain"]
        assert bool(waits) == (any(action.open for action in there) and CHANNELS[platform].capabilities.buttons > 0)


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("seed", range(25))
async def test_edit_is_one_message_for_any_ended_questions(private: Table, platform: str, seed: int) -> None:
    chance = random.Random(seed)
    letters, count = chance.choice(["x", "x", "é", "*", "🦊", "א"]), chance.randrange(2, 6)
    room = chance.choice([1_000, 2_800, 3_200, 3_400]) // len(letters.encode("utf-16-le")) * 2
    shares = chance.choice([[room // count] * count, [10] * (count - 1) + [min(room, 2_900)]])
    previews = [
        Preview(text=f"Send {number}?", table=[("to", letters * (share // 2))] * 2 if share > 10 else None)
        for number, share in enumerate(shares)
    ]
    actions = await delivered(private, platform, previews)
    person = replace(ANA, name=chance.choice(["Ana", "\u202e" * 40, None]))
    for action in actions.open[: chance.randrange(1, count + 1)]:
        reason = (chance.choice(["no ", "*_", "\u202e", "🦊"]) * LONGEST_REASON)[:LONGEST_REASON]
        end(actions, action, chance.choice(ENDS), reason, person)
        assert_edits_fit(platform, actions)


@pytest.mark.parametrize(
    ("reason", "name", "kept"),
    [
        ("r", "Ana", {"reason", "arguments", "headline"}),
        ("r" * LONGEST_REASON, "Ana", {"arguments", "headline"}),
        ("r" * LONGEST_REASON, "\u202e" * 40, {"headline"}),
    ],
)
async def test_a_note_is_shortened_only_as_far_as_needed(
    private: Table, reason: str, name: str, kept: set[str]
) -> None:
    """Five questions fill a message. The reasons go first, then the arguments; open questions stay whole."""
    table = [("to", "x" * 640)]
    actions = await delivered(private, "telegram", [Preview(text=f"Send {n}?", table=table) for n in range(5)])
    *first, last = actions.open
    assert {*last.prompts} == {"100"}
    for action in first:
        end(actions, action, "refused with a reason", reason, replace(ANA, name=name))
    assert_edits_fit("telegram", actions)
    edit = actions.says[-1].reply
    shows = {
        "reason": f"“{reason}”" in edit.text,
        "arguments": edit.text.count("x" * 640) == 5,
        "headline": "**Send 0**" in edit.text,
    }
    assert {name for name, seen in shows.items() if seen} == kept
    assert edit.text.count("🚫 Not done") == 4


async def test_notes_that_have_no_room_are_marks_alone(private: Table) -> None:
    """Four short questions, and a fifth filling the message. The notes name a person with characters to escape."""
    long = Preview(text="Send 5?", table=[("to", "x" * 2_950)])
    actions = await delivered(private, "telegram", [*(Preview(text=f"Send {n}?") for n in range(1, 5)), long])
    assert {*actions.open[-1].prompts} == {"100"}
    for action in actions.open[:4]:
        end(actions, action, "refused", "", replace(ANA, name="\u202e" * 40))
    assert_edits_fit("telegram", actions)
    edit = actions.says[-1].reply.text
    assert [f"{n}\\. 🚫" in edit.split("\n\n") for n in range(1, 5)] == [True] * 4
    assert "x" * 2_950 in edit and len(actions.says[-1].reply.buttons) == 7


async def test_a_message_that_no_note_fits_stays_as_it_is(private: Table) -> None:
    actions = await delivered(private, "telegram", [Preview(text="Send 1?"), Preview(text="Send 2?")])
    actions.fits = lambda address, reply: False
    end(actions, actions.open[0], "refused", "", ANA)
    assert [said.reply.text for said in actions.says] == ["Not done: Send 1"]
