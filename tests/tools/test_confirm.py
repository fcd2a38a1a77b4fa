"""What a person is shown before a tool acts, and what may stand in a template."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from gateway.tools import Approvers, Confirm, Preview, Tool, ToolContext, ToolExecutionError, ToolTimeout, tool
from gateway.tools.confirm import Template

CTX = ToolContext(person="telegram:1:2")


def deleting(confirm: Any) -> Tool:
    @tool(confirm=confirm, timeout_seconds=0.05)
    async def delete_invoice(invoice_id: str, copies: int = 1) -> None:
        """Delete."""

    return delete_invoice


@pytest.mark.ledger("POL-16")
async def test_a_template_names_its_arguments() -> None:
    made = deleting("Delete {invoice_id} ({copies}) {{for good}}?")
    assert await made.preview(made.validate({"invoice_id": "INV-42"}), CTX) == Preview(
        text="Delete “INV-42” (1) {for good}?"
    )


@pytest.mark.parametrize(
    ("language", "text"),
    [("en", "Run “delete invoice”?"), ("es-MX", "¿Ejecutar “delete invoice”?"), ("pt", "Executar “delete invoice”?")],
)
async def test_preview_without_a_template_asks_about_the_tools_name(language: str, text: str) -> None:
    context = replace(CTX, language=language)
    assert (await deleting(True).preview({"invoice_id": "x", "copies": 1}, context)).text == text
    assert deleting(False).confirm is None


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
def test_a_template_holds_plain_names_and_nothing_else(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        Template(text, ["invoice_id", "copies"])


def test_a_misspelt_name_is_recognised() -> None:
    with pytest.raises(ValueError, match=r"did you mean \{invoice_id\}\?"):
        Template("Delete {invoice}?", ["invoice_id"])


async def test_a_value_is_not_read_as_a_template() -> None:
    made = deleting("Delete {invoice_id}?")
    assert (await made.preview({"invoice_id": "{copies}", "copies": 7}, CTX)).text == "Delete “{copies}”?"


async def test_a_preview_function_sees_its_arguments_and_the_context() -> None:
    async def look(copies: int, ctx: ToolContext) -> Preview:
        return Preview(text=f"{ctx.person}: {copies + 1}", table=[("Total", "2")], precondition=[1])

    found = await deleting(look).preview({"invoice_id": "x", "copies": 1}, CTX)
    assert found == Preview(text="telegram:1:2: 2", table=[("Total", "2")], precondition=[1])


async def test_a_preview_function_may_return_text_or_refuse() -> None:
    async def look(invoice_id: str) -> str:
        if invoice_id == "none":
            raise ValueError("no such invoice")
        return f"Delete {invoice_id}"

    made = deleting(Confirm(look))
    assert await made.preview({"invoice_id": "x", "copies": 1}, CTX) == Preview(text="Delete x")
    with pytest.raises(ValueError, match="no such invoice"):
        await made.preview({"invoice_id": "none", "copies": 1}, CTX)


async def test_a_preview_function_that_breaks_or_hangs_asks_nobody() -> None:
    async def broken() -> str:
        raise KeyError("db")

    async def hanging() -> str:
        await asyncio.Event().wait()
        return ""

    with pytest.raises(ToolExecutionError):
        await deleting(broken).preview({"invoice_id": "x", "copies": 1}, CTX)
    with pytest.raises(ToolTimeout):
        await deleting(hanging).preview({"invoice_id": "x", "copies": 1}, CTX)


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
async def test_what_cannot_be_frozen_is_not_shown(copies: Any) -> None:
    with pytest.raises(ValueError, match="canonical JSON"):
        await deleting(True).preview({"invoice_id": "x", "copies": copies}, CTX)


async def test_a_precondition_that_cannot_be_frozen_is_refused() -> None:
    async def look() -> Preview:
        return Preview(text="x", precondition=object())  # type: ignore[arg-type]

    with pytest.raises(ValueError, match="canonical JSON"):
        await deleting(look).preview({"invoice_id": "x", "copies": 1}, CTX)


async def test_done_text_uses_the_tools_own_words() -> None:
    made = deleting(Confirm(done="Deleted {invoice_id}: {result}"))
    assert made.done_text({"invoice_id": "x", "copies": 1}, {"left": 3}) == 'Deleted “x”: \\{"left": 3\\}'
    assert deleting(True).done_text({"invoice_id": "x", "copies": 1}, "gone") is None


async def test_a_probe_says_what_it_found() -> None:
    async def probe(invoice_id: str) -> Any:
        return invoice_id

    made = deleting(Confirm(probe=probe))
    for found, answer in (("done", "done"), ("not_done", "not_done"), ("whatever", "unknown")):
        assert await made.probe({"invoice_id": found}, CTX) == answer
    assert await deleting(True).probe({"invoice_id": "x"}, CTX) == "unknown"


@pytest.mark.parametrize("ttl_seconds", [0, -1, float("inf"), float("nan")])
def test_a_duration_must_be_positive_and_finite(ttl_seconds: float) -> None:
    with pytest.raises(ValueError, match="ttl_seconds"):
        Confirm(ttl_seconds=ttl_seconds)


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
        ({"people": ["slack:T1:U7"], "need": 0}, "0 approvers"),
    ],
)
def test_an_approver_rule_that_nobody_could_meet_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Approvers(**options)


def test_approvers_are_people_once_each() -> None:
    assert Approvers(people=[" slack:T1:U7 ", "slack:T1:U8", "slack:T1:U7"]).people == ("slack:T1:U7", "slack:T1:U8")


def test_the_requester_counts_where_they_may_approve() -> None:
    assert Approvers(people=["slack:T1:U7"], need=2, requester=True).need == 2
