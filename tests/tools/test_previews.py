"""Previews: the freezing, the comparison of two previews, and the errors taken for a refusal."""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import TypeAdapter

from channels import AskfirstError
from gateway.agent import Agent
from gateway.channel_agent import ChannelAgent
from gateway.testing import ScriptedProvider
from gateway.tools import (
    Approvers,
    Confirm,
    Preview,
    Tool,
    ToolContext,
    ToolError,
    ToolExecutionError,
    ToolTimeout,
    tool,
)
from gateway.tools.confirm import LAUNCH_PREVIEW_SECONDS, asked_with, changed, differing, frozen
from gateway.tools.layout import Template
from gateway.tools.pending_action import PendingAction

CTX = ToolContext(person="telegram:1:2")
ARGS: dict[str, Any] = {"invoice_id": "INV-42"}


def deleting(confirm: Any, **options: Any) -> Tool:
    @tool(confirm=confirm, **options)
    async def delete_invoice(invoice_id: str) -> None:
        """Delete."""

    return delete_invoice


def showing(preview: Any, **options: Any) -> Tool:
    """A tool with a preview function returning or raising this."""

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
        layout=made.layout,
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


async def test_precondition_changed_after_the_preview_stays_frozen() -> None:
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
    """Even without a preview function in the tool, a precondition must not go unchecked."""
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
    """An author's own error."""


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


# ── the definition of an action at the ask ──


def test_another_template_or_version_is_another_definition() -> None:
    made = deleting("Delete {invoice_id}?")
    action = asked(made)
    assert made.matches(action)
    assert not made.matches(replace(action, layout=None))
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


# ── The text for a person before a tool acts, and the allowed parts of a template ──


def deletes(confirm: Any) -> Tool:
    @tool(confirm=confirm, timeout_seconds=0.05)
    async def delete_invoice(invoice_id: str, copies: int = 1) -> None:
        """Delete."""

    return delete_invoice


@pytest.mark.ledger("POL-16")
async def test_a_template_names_its_arguments() -> None:
    made = deletes("Delete {invoice_id} ({copies}) {{for good}}?")
    assert await made.preview(made.validate({"invoice_id": "INV-42"}), CTX) == Preview(
        text="Delete “INV-42” (1) {for good}?"
    )


@pytest.mark.parametrize(
    ("language", "text"),
    [("en", "Run “delete invoice”?"), ("es-MX", "¿Ejecutar “delete invoice”?"), ("pt", "Executar “delete invoice”?")],
)
async def test_preview_without_a_template_asks_about_the_tools_name(language: str, text: str) -> None:
    context = replace(CTX, language=language)
    assert (await deletes(True).preview({"invoice_id": "x", "copies": 1}, context)).text == text
    assert deletes(False).confirm is None


@pytest.mark.parametrize(
    "text",
    [
        "{invoice_id.__class__}",
        "{invoice_id[0]}",
        "{invoice_id!r}",
        "{copies:.0f}",
        "{copies:{invoice_id}}",
        "{}",
        "{0}",
        "{other}",
        "{invoice_id",
        "invoice_id}",
        "{ invoice_id }",
    ],
)
def test_template_holds_plain_names_only(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        Template(text, ["invoice_id", "copies"])


def test_a_misspelt_name_is_recognised() -> None:
    with pytest.raises(ValueError, match=r"did you mean \{invoice_id\}\?"):
        Template("Delete {invoice}?", ["invoice_id"])


IN_TWO = {"de": "{invoice_id} löschen?", "en": "Delete {invoice_id}?"}


@pytest.mark.parametrize(
    ("language", "text"), [("de", "“7” löschen?"), ("de-AT", "“7” löschen?"), ("fr", "Delete “7”?")]
)
async def test_question_has_the_template_of_the_language(language: str, text: str) -> None:
    made, ctx = deleting(IN_TWO), replace(CTX, language=language)
    assert (await made.preview({"invoice_id": "7"}, ctx)).text == text
    assert made.matches(asked(deleting(dict(reversed(IN_TWO.items())))))
    assert not made.matches(asked(deleting({**IN_TWO, "de": "{invoice_id} entfernen?"})))


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        ({}, "has no text"),
        ({"xx": "Delete?"}, "'xx' is no language"),
        ({"en": "Delete {nope}?"}, "not an argument"),
        ({"en": 7}, "confirm"),
    ],
    ids=str,
)
def test_wrong_templates_of_languages_are_refused(ask: Any, words: str) -> None:
    with pytest.raises(AskfirstError, match=words):
        deleting(ask)


async def test_a_value_is_not_read_as_a_template() -> None:
    made = deletes("Delete {invoice_id}?")
    assert (await made.preview({"invoice_id": "{copies}", "copies": 7}, CTX)).text == "Delete “{copies}”?"


async def test_a_preview_function_sees_its_arguments_and_the_context() -> None:
    async def look(copies: int, ctx: ToolContext) -> Preview:
        return Preview(text=f"{ctx.person}: {copies + 1}", table=[("Total", "2")], precondition=[1])

    found = await deletes(look).preview({"invoice_id": "x", "copies": 1}, CTX)
    assert found == Preview(text="telegram:1:2: 2", table=[("Total", "2")], precondition=[1])


async def test_a_preview_function_may_return_text_or_refuse() -> None:
    async def look(invoice_id: str) -> str:
        if invoice_id == "none":
            raise ValueError("no such invoice")
        return f"Delete {invoice_id}"

    made = deletes(Confirm(look))
    assert await made.preview({"invoice_id": "x", "copies": 1}, CTX) == Preview(text="Delete x")
    with pytest.raises(ValueError, match="no such invoice"):
        await made.preview({"invoice_id": "none", "copies": 1}, CTX)


async def test_preview_function_that_breaks_or_hangs_raises() -> None:
    async def broken() -> str:
        raise KeyError("db")

    async def hanging() -> str:
        await asyncio.Event().wait()
        return ""

    with pytest.raises(ToolExecutionError):
        await deletes(broken).preview({"invoice_id": "x", "copies": 1}, CTX)
    with pytest.raises(ToolTimeout):
        await deletes(hanging).preview({"invoice_id": "x", "copies": 1}, CTX)


@pytest.mark.parametrize(("own", "given", "counts"), [(None, 0.01, 0.01), (60, 0.01, 0.01), (0.01, 60, 0.01)])
async def test_a_preview_and_a_probe_take_no_longer_than_they_may(
    own: float | None, given: float, counts: float
) -> None:
    async def hanging() -> Any:
        await asyncio.Event().wait()

    @tool(confirm=Confirm(hanging, probe=hanging), timeout_seconds=own)
    async def delete_invoice() -> None:
        """Delete."""

    for look in (delete_invoice.preview, delete_invoice.probe):
        with pytest.raises(ToolTimeout) as caught:
            await look({}, CTX, timeout_seconds=given)
        assert caught.value.seconds == counts


@pytest.mark.parametrize("copies", [2**53 + 1, float("nan")])
async def test_arguments_outside_canonical_json_have_no_preview(copies: Any) -> None:
    with pytest.raises(ValueError, match="canonical JSON"):
        await deletes(True).preview({"invoice_id": "x", "copies": copies}, CTX)


async def test_a_precondition_that_cannot_be_frozen_is_refused() -> None:
    async def look() -> Preview:
        return Preview(text="x", precondition=object())  # type: ignore[arg-type]

    with pytest.raises(ValueError, match="canonical JSON"):
        await deletes(look).preview({"invoice_id": "x", "copies": 1}, CTX)


async def test_done_text_uses_the_tools_own_words() -> None:
    made = deletes(Confirm(done="Deleted {invoice_id}: {result}"))
    assert await made.done_text({"invoice_id": "x", "copies": 1}, {"left": 3}, "en") == 'Deleted “x”: \\{"left": 3\\}'
    assert await deletes(True).done_text({"invoice_id": "x", "copies": 1}, "gone", "en") is None


async def test_probe_returns_its_finding_or_unknown() -> None:
    async def probe(invoice_id: str) -> Any:
        return invoice_id

    made = deletes(Confirm(probe=probe))
    for found, answer in (("done", "done"), ("not_done", "not_done"), ("whatever", "unknown")):
        assert await made.probe({"invoice_id": found}, CTX) == answer
    assert await deletes(True).probe({"invoice_id": "x"}, CTX) == "unknown"


@pytest.mark.parametrize("ttl_seconds", [0, -1, float("inf"), float("nan")])
def test_a_duration_must_be_positive_and_finite(ttl_seconds: float) -> None:
    with pytest.raises(ValueError, match="ttl_seconds"):
        Confirm(ttl_seconds=ttl_seconds)


async def named_with_order(order: str) -> list[str]:
    return [order]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"people": "slack:T1:U7"}, "a list"),
        ({"people": ["ana"]}, "not a person: 'ana'"),
        ({"people": []}, "1 approvers are needed, and 0"),
        ({"people": ["slack:T1:U7", "slack:T1:U7"], "need": 2}, "2 approvers are needed, and 1"),
        ({"people": ["x:y:bob", "x:y:bob ", "\tx:y:bob"], "need": 2}, "2 approvers are needed, and 1"),
        ({"people": ["x:a%3Ab:bob", "x:a%3ab:bob"], "need": 2}, "2 approvers are needed, and 1"),
        ({"people": ["slack:T1:U7", " x:y: "]}, "not a person: 'x:y:'"),
        ({"people": ["slack:T1:U7"], "need": 0}, "1 or more, not 0"),
        ({"people": lambda: ["slack:T1:U7"]}, "or an async function"),
        ({"people": named_with_order}, "without parameters"),
    ],
)
def test_approver_rule_that_cannot_be_met_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Approvers(**options)


def test_approvers_are_people_once_each() -> None:
    assert Approvers(people=[" slack:T1:U7 ", "slack:T1:U8", "slack:T1:U7"]).people == ("slack:T1:U7", "slack:T1:U8")


def test_the_requester_counts_where_they_may_approve() -> None:
    assert Approvers(people=["slack:T1:U7"], need=2, requester=True).need == 2
