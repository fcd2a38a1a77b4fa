"""Previews: how one is frozen, when two of them are the same, and which errors are a refusal."""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import TypeAdapter

from gateway.agent import Agent
from gateway.channel_agent import ChannelAgent
from gateway.testing import ScriptedProvider
from gateway.tools import Approvers, Confirm, Preview, Tool, ToolContext, ToolError, ToolExecutionError, tool
from gateway.tools.confirm import LAUNCH_PREVIEW_SECONDS, asked_with, changed, differing, frozen
from gateway.tools.pending_action import PendingAction

CTX = ToolContext(person="telegram:1:2")
ARGS: dict[str, Any] = {"invoice_id": "INV-42"}


def deleting(confirm: Any, **options: Any) -> Tool:
    @tool(confirm=confirm, **options)
    async def delete_invoice(invoice_id: str) -> None:
        """Delete."""

    return delete_invoice


def showing(preview: Any, **options: Any) -> Tool:
    """A tool whose preview function returns or raises this."""

    async def look() -> Any:
        if isinstance(preview, Exception):
            raise preview
        return preview

    return deleting(Confirm(look, **options))


def asked(made: Tool, preview: Preview | None = None) -> PendingAction:
    preview = preview or Preview(text="Delete?")
    return PendingAction(
        pending_action_id="5e" * 16,
        kind=made.name,
        tool_version=made.version_hash,
        template=made.template_hash,
        args=ARGS,
        precondition=preview.precondition,
        preview=preview.text,
        table=tuple(preview.table or ()),
        requester="test:bot:ana",
        conversation="bot/test:bot:ana",
        requested_at=datetime(2026, 3, 1, tzinfo=UTC),
    )


# ── frozen and compared ──


async def test_a_tuple_in_a_precondition_is_frozen_as_a_list() -> None:
    made = showing(Preview(text="Delete?", table=[["Total", 2]], precondition=("etag", {"lines": (1, 2.5)})))  # type: ignore[list-item,arg-type]
    preview = await made.preview(ARGS, CTX)
    assert preview == Preview(text="Delete?", table=[("Total", "2")], precondition=["etag", {"lines": [1, 2.5]}])
    stored = PendingAction.from_json(json.loads(json.dumps(asked(made, preview).to_json())))
    assert changed(asked_with(stored), await made.preview(ARGS, CTX)) == []


async def test_what_the_preview_function_changes_later_stays_frozen() -> None:
    seen: dict[str, Any] = {"lines": [1]}
    preview = await showing(Preview(text="Delete?", precondition=seen)).preview(ARGS, CTX)
    seen["lines"].append(2)
    assert preview.precondition == {"lines": [1]}


@pytest.mark.parametrize(
    "preview",
    [
        Preview(text="half a \ud800"),
        Preview(text="Delete?", table=[("Total", "\ud800")]),
        Preview(text="Delete?", table=[("Total", "2", "EUR")]),  # type: ignore[list-item]
        Preview(text="Delete?", table=7),  # type: ignore[arg-type]
        Preview(text="Delete?", precondition={"at": datetime(2026, 3, 1, tzinfo=UTC)}),  # type: ignore[dict-item]
        Preview(text="Delete?", precondition=float("nan")),
        Preview(text="Delete?", precondition=[2**53 + 1]),
    ],
    ids=["text", "table value", "table row", "table", "date", "NaN", "integer"],
)
async def test_a_preview_that_cannot_be_frozen_is_a_value_error(preview: Preview) -> None:
    with pytest.raises(ValueError, match=r"canonical JSON|rows of a name and a value"):
        frozen(preview)
    with pytest.raises(ValueError, match=r"canonical JSON|rows of a name and a value"):
        await showing(preview).preview(ARGS, CTX)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("a", 1), ["a", 1], True),
        (1, 1.0, True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        (1, True, False),
        (0, False, False),
        ([1], [True], False),
        ("1", 1, False),
        ([], {}, False),
    ],
)
def test_preconditions_are_compared_as_canonical_json(one: Any, other: Any, same: bool) -> None:
    found = differing(Preview(text="x", precondition=one), Preview(text="x", precondition=other))
    assert found == ([] if same else ["precondition"])


SHOWN = Preview(text="Delete 3?", table=[("Total", "3")])


@pytest.mark.parametrize(
    ("now", "differs", "stops"),
    [
        (replace(SHOWN), [], []),
        (replace(SHOWN, table=(("Total", "3"),)), [], []),
        (replace(SHOWN, text="Delete 300?"), ["text"], ["text"]),
        (replace(SHOWN, table=None), ["table"], ["table"]),
        (replace(SHOWN, text="", table=[]), ["text", "table"], ["text", "table"]),
        (replace(SHOWN, precondition=7), ["precondition"], ["precondition"]),
        (replace(SHOWN, text="Delete 300?", precondition=7), ["text", "precondition"], ["precondition"]),
    ],
)
def test_text_and_table_count_without_a_precondition(now: Preview, differs: list[str], stops: list[str]) -> None:
    assert (differing(SHOWN, now), changed(SHOWN, now)) == (differs, stops)
    assert (differing(now, SHOWN), changed(now, SHOWN)) == (differs, stops)


def test_a_precondition_alone_counts_when_there_is_one() -> None:
    before, now = Preview(text="Delete, 14:02?", precondition=7), Preview(text="Delete, 14:03?", precondition=7)
    assert differing(before, now) == ["text"]
    assert changed(before, now) == []
    assert changed(before, replace(before, precondition=8)) == ["precondition"]


def test_an_action_keeps_the_preview_it_was_asked_with() -> None:
    preview = Preview(text="Delete 3?", table=[("Total", "3")], precondition=["etag"])
    assert differing(asked_with(asked(showing(preview), preview)), preview) == []
    bare = Preview(text="Delete?")
    assert differing(asked_with(asked(showing(bare), bare)), bare) == []


# ── when a preview is made again ──


@pytest.mark.parametrize(
    ("confirm", "precondition", "compares"),
    [
        ("function", None, True),
        ("function", 7, True),
        ("volatile function", None, False),
        ("volatile function", 7, False),
        ("template", None, False),
        ("template", 7, True),
        (True, None, False),
        (False, 7, True),
    ],
)
def test_preview_is_compared_only_where_it_says_something(confirm: Any, precondition: Any, compares: bool) -> None:
    """Even where the tool has no preview function any more, a precondition must not go unchecked."""
    made = {
        "function": showing("Delete?"),
        "volatile function": showing("Delete?", volatile=True),
        "template": deleting("Delete {invoice_id}?"),
    }.get(confirm) or deleting(confirm)
    assert made.compares(asked(made, Preview(text="Delete?", precondition=precondition))) is compares


def test_a_launch_waits_ten_seconds_for_its_preview() -> None:
    assert LAUNCH_PREVIEW_SECONDS == 10.0


# ── which errors are a refusal ──


class NoSuchInvoice(ValueError):
    """An author's own."""


def broken_answer() -> Exception:
    try:
        TypeAdapter(int).validate_python("not a number")
    except ValueError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize("error", [ValueError("no such invoice"), NoSuchInvoice("no such invoice")])
async def test_a_value_error_of_the_author_is_a_refusal(error: Exception) -> None:
    with pytest.raises(ValueError, match="no such invoice") as caught:
        await showing(error).preview(ARGS, CTX)
    assert caught.value is error


@pytest.mark.parametrize(
    "error",
    [
        json.JSONDecodeError("Expecting value", "<html>", 0),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        ssl.SSLCertVerificationError("expired"),
        broken_answer(),
        ConnectionResetError(),
        TimeoutError(),
        KeyError("lines"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_error_on_the_way_is_no_refusal(error: Exception) -> None:
    with pytest.raises(ToolExecutionError) as caught:
        await showing(error).preview(ARGS, CTX)
    assert caught.value.error is error
    assert not isinstance(caught.value, ValueError)


async def test_a_preview_that_takes_too_long_is_no_refusal() -> None:
    async def hanging() -> str:
        await asyncio.Event().wait()
        return ""

    with pytest.raises(ToolError) as caught:
        await deleting(hanging).preview(ARGS, CTX, timeout_seconds=0.01)
    assert not isinstance(caught.value, ValueError)


# ── the definition an action was asked under ──


def test_another_template_or_version_is_another_definition() -> None:
    made = deleting("Delete {invoice_id}?")
    action = asked(made)
    assert len(made.template_hash) == 64
    assert made.matches(action)
    assert not made.matches(replace(action, template=""))
    assert deleting(Confirm("Delete {invoice_id}?", done="Deleted.")).matches(action)
    assert not deleting("Archive {invoice_id}?").matches(action)
    assert not deleting("Delete {invoice_id}?", version="2").matches(action)
    assert not deleting(True).matches(action)
    assert not showing("Delete?").matches(action)
    assert not made.matches(asked(deleting(True)))
    assert not made.matches(asked(showing("Delete?")))
    assert deleting(False).matches(action), "it asks for less by now"


def test_a_bot_calls_an_action_of_another_template_drifted() -> None:
    def bot(confirm: Any) -> ChannelAgent:
        return ChannelAgent(Agent([deleting(confirm)], provider=ScriptedProvider([])))

    action = asked(deleting("Archive {invoice_id}?"))
    assert not bot("Archive {invoice_id}?").drifted(action)
    assert bot("Delete {invoice_id} for good?").drifted(action)
    strict = Confirm("Archive {invoice_id}?", approvers=Approvers(people=["test:bot:bob"]))
    assert bot(strict).drifted(action)
