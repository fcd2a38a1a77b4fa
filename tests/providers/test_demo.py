"""The offline demo with bots never seen before: the input is the names, descriptions and schemas of the tools."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gateway.providers.demo
from channels import Json
from gateway.providers import ModelMessage, Request, Response, ToolSpec
from gateway.providers.demo import DemoProvider
from gateway.tools.errors import Problem, ToolExecutionError, ToolTimeout, ToolValidationError

WEDNESDAY = date(2026, 11, 18)
TEXT: dict[str, Json] = {"type": "string"}
Calls = list[tuple[str, dict[str, Json]]]


def tool(name: str, description: str, /, **properties: Any) -> ToolSpec:
    required: list[Json] = [key for key, schema in properties.items() if "default" not in schema]
    return ToolSpec(
        name=name,
        description=description,
        parameters={
            "type": "object",
            "properties": properties,
            "required": required,
            "$defs": {"Kind": {"type": "string", "enum": ["single", "double", "suite"]}},
        },
    )


KIND: dict[str, Json] = {"$ref": "#/$defs/Kind"}
DAY: dict[str, Json] = {"type": "string", "format": "date"}
HOTEL = [
    tool(
        "find_rooms",
        "Show the rooms that are free on a day.",
        day=DAY,
        kind={"anyOf": [KIND, {"type": "null"}], "default": None},
    ),
    tool(
        "reserve_room",
        "Reserve a room for a guest.",
        kind=KIND,
        arrival={"type": "string", "format": "date", "description": "the first day"},
        nights={"type": "integer", "minimum": 1},
        breakfast={"type": "boolean", "default": False},
    ),
    tool(
        "cancel_reservation",
        "Cancel a reservation.",
        reservation={"type": "string", "description": "for example R-1007"},
    ),
]
OFFICE = [
    tool(
        "add_task",
        "Add a task to somebody's list.",
        title=TEXT,
        assignee={"type": "string", "default": ""},
        due={"type": "string", "default": ""},
        priority={"enum": ["low", "normal", "high"], "default": "normal"},
    ),
    tool("complete_task", "Mark a task as completed.", task_id={"type": "integer"}),
    tool("show_tasks", "Show the tasks, optionally of one person.", assignee={"type": "string", "default": ""}),
    tool("transfer_money", "Transfer money to a person.", amount={"type": "number"}, recipient=TEXT),
    tool("email_report", "E-mail a report.", report={"enum": ["weekly", "monthly"]}, email=TEXT),
    tool(
        "invite_people",
        "Invite people to a meeting.",
        emails={"type": "array", "items": {"type": "string", "format": "email"}},
        start={"type": "string", "format": "date-time"},
    ),
]
INVOICES = [
    tool("list_invoices", "List all invoices."),
    tool("delete_invoice", "Delete an invoice for good.", invoice_id=TEXT),
    tool("send_invoice_pdf", "Send an invoice as a PDF file.", invoice_id=TEXT),
]


class Chat:
    """A conversation with the demo; tools answer with their entry in `results`, else with "ok"."""

    def __init__(
        self, tools: Sequence[ToolSpec], language: str = "en", results: Mapping[str, str] | None = None
    ) -> None:
        self._tools, self._language, self._results = tools, language, results or {}
        self._provider = DemoProvider(today=lambda: WEDNESDAY)
        self._messages: list[ModelMessage] = []

    async def says(self, text: str) -> Response:
        self._messages.append(ModelMessage(role="user", content=text))
        response = await self._asked()
        for call in response.tool_calls:
            content = self._results.get(call.name, "ok")
            self._messages.append(ModelMessage(role="tool", content=content, call_id=call.call_id, tool_name=call.name))
        return response

    async def calls(self, text: str) -> Calls:
        return [(call.name, dict(call.args)) for call in (await self.says(text)).tool_calls]

    async def told(self) -> str:
        """Return the demo's text after the results."""
        return (await self._asked()).content

    async def _asked(self) -> Response:
        request = Request(messages=self._messages, tools=self._tools, language=self._language)
        response = await self._provider.complete(request)
        self._messages.append(ModelMessage(role="assistant", content=response.content, tool_calls=response.tool_calls))
        return response


def reserved(kind: str, arrival: str, nights: int, **more: Json) -> Calls:
    return [("reserve_room", {"kind": kind, "arrival": arrival, "nights": nights, **more})]


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("which rooms are free tomorrow?", [("find_rooms", {"day": "2026-11-19"})]),
        ("find a suite for today", [("find_rooms", {"day": "2026-11-18", "kind": "suite"})]),
        ("Show me double rooms on 24 December", [("find_rooms", {"day": "2026-12-24", "kind": "double"})]),
        ("reserve a suite on 3 May for two nights", reserved("suite", "2027-05-03", 2)),
        ("Reserve a single room, arrival 2026-12-24, 1 night", reserved("single", "2026-12-24", 1)),
        (
            "book a double room for 3 nights from next Friday with breakfast",
            reserved("double", "2026-11-20", 3, breakfast=True),
        ),
        ("Could you please book a suite tomorrow for 4 nights?", reserved("suite", "2026-11-19", 4)),
        (
            "I'd like to book a single for 1 night in two weeks, no breakfast",
            reserved("single", "2026-12-02", 1, breakfast=False),
        ),
        ("cancel reservation R-1007", [("cancel_reservation", {"reservation": "R-1007"})]),
        ("please cancel my booking r-1007", [("cancel_reservation", {"reservation": "R-1007"})]),
        ("Hi! Delete R-1007 and R-1008.", [("cancel_reservation", {"reservation": f"R-{n}"}) for n in (1007, 1008)]),
        ("reserva una suite pasado mañana por 2 noches", reserved("suite", "2026-11-20", 2)),
        ("quero reservar uma suite amanhã por duas noites", reserved("suite", "2026-11-19", 2)),
        ("cancela la reserva R-1007", [("cancel_reservation", {"reservation": "R-1007"})]),
    ],
)
async def test_demo_understands_orders_to_a_hotel(text: str, calls: Calls) -> None:
    assert await Chat(HOTEL).calls(text) == calls


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("add task buy milk", [("add_task", {"title": "buy milk"})]),
        (
            "please add a task: water the plants due next Friday",
            [("add_task", {"title": "water the plants", "due": "2026-11-20"})],
        ),
        (
            "add a task 'Call the bank' for Maria due tomorrow, high priority",
            [("add_task", {"title": "Call the bank", "assignee": "Maria", "due": "2026-11-19", "priority": "high"})],
        ),
        ("complete task 7", [("complete_task", {"task_id": 7})]),
        ("mark task 7 as completed", [("complete_task", {"task_id": 7})]),
        ("show tasks", [("show_tasks", {})]),
        ("what tasks are there for Maria?", [("show_tasks", {"assignee": "Maria"})]),
        ("transfer 25.50 to Ana Souza", [("transfer_money", {"amount": 25.5, "recipient": "Ana Souza"})]),
        ("Transfer €1,250 to José", [("transfer_money", {"amount": 1250, "recipient": "José"})]),
        (
            "email the weekly report to ana@example.com",
            [("email_report", {"report": "weekly", "email": "ana@example.com"})],
        ),
        (
            "send the monthly report to bob.b@example.co.uk, please",
            [("email_report", {"report": "monthly", "email": "bob.b@example.co.uk"})],
        ),
        (
            "invite ana@example.com and bob@example.com to a meeting tomorrow at 3pm",
            [("invite_people", {"emails": ["ana@example.com", "bob@example.com"], "start": "2026-11-19T15:00:00"})],
        ),
        (
            "show tasks and complete task 7",
            [("show_tasks", {}), ("complete_task", {"task_id": 7})],
        ),
    ],
)
async def test_demo_understands_orders_to_an_office(text: str, calls: Calls) -> None:
    assert await Chat(OFFICE).calls(text) == calls


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("list invoices", [("list_invoices", {})]),
        ("delete invoice INV-42", [("delete_invoice", {"invoice_id": "INV-42"})]),
        ("send me INV-7 as PDF", [("send_invoice_pdf", {"invoice_id": "INV-7"})]),
        ("delete INV-42 and INV-43", [("delete_invoice", {"invoice_id": f"INV-{n}"}) for n in (42, 43)]),
        (
            "delete INV-42, then send me INV-7 as a PDF",
            [("delete_invoice", {"invoice_id": "INV-42"}), ("send_invoice_pdf", {"invoice_id": "INV-7"})],
        ),
        ("What invoices are there?", [("list_invoices", {})]),
        ("Get me INV-7 as PDF", [("send_invoice_pdf", {"invoice_id": "INV-7"})]),
        ("muéstrame las facturas", [("list_invoices", {})]),
        ("borra la factura INV-42", [("delete_invoice", {"invoice_id": "INV-42"})]),
        ("apague a fatura INV-42, por favor", [("delete_invoice", {"invoice_id": "INV-42"})]),
        ("envíame INV-7 en PDF", [("send_invoice_pdf", {"invoice_id": "INV-7"})]),
    ],
)
async def test_demo_understands_orders_about_invoices(text: str, calls: Calls) -> None:
    assert await Chat(INVOICES).calls(text) == calls


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("pay INV-7 by cash", [{"invoice_id": "INV-7", "method": "cash", "paid_on": "2026-11-18"}]),
        ("pay INV-7 by card on 3 march", [{"invoice_id": "INV-7", "method": "card", "paid_on": "2027-03-03"}]),
        ("paga INV-7 en cash", [{"invoice_id": "INV-7", "method": "cash", "paid_on": "2026-11-18"}]),
        ("delete INV-7", []),
        ("did I pay INV-7 by cash?", []),
    ],
)
async def test_to_record_a_payment_is_to_pay(text: str, calls: list[dict[str, Json]]) -> None:
    method: dict[str, Json] = {"enum": ["transfer", "card", "cash"]}
    others = [
        tool("record_payment", "Record that an invoice was paid.", invoice_id=TEXT, method=method, paid_on=DAY),
        tool("delete_payment", "Delete a payment.", invoice_id=TEXT),
        tool("list_payments", "List the payments."),
    ]
    found = await Chat([*INVOICES[:1], *others]).calls(text)
    assert [arguments for name, arguments in found if name == "record_payment"] == calls
    assert not [name for name, _ in await Chat(others[1:]).calls("pay INV-7") if name == "delete_payment"]


@pytest.mark.parametrize(
    "text",
    [
        "delete",
        "delete it",
        "delete everything",
        "delete customer C-9",
        "don't delete INV-42",
        "please do not delete invoice INV-42",
        "never delete INV-42",
        "how do I delete invoice INV-42?",
        "should I delete INV-42?",
        "what happens if I delete INV-42?",
        "delete INV-42 if it is paid",
        "delete INV-42 or INV-43",
        "delete INV-42, not INV-43",
        "deleted INV-42",
        "I deleted INV-42 yesterday",
        "the invoice INV-42 is wrong",
        "no borres la factura INV-42",
        "delete invoice " + "9" * 400 + " or not",
        "INV-42",
        "cancel",
        "yes",
        "lorem ipsum dolor",
        "",
        "\0\ud800 🙂",
    ],
)
async def test_unclear_order_calls_no_tool(text: str) -> None:
    response = await Chat(INVOICES).says(text)
    assert response.tool_calls == ()
    assert response.content


async def test_a_verb_that_reads_does_not_hide_one_that_harms() -> None:
    purge = tool("find_and_erase_logs", "Find old logs and erase them.")
    assert await Chat([purge]).calls("what logs are there?") == []
    assert await Chat([purge]).calls("find and erase the logs") == [("find_and_erase_logs", {})]


async def test_number_beyond_json_is_no_argument() -> None:
    response = await Chat(OFFICE).says(f"transfer {'9' * 400} to Bob")
    assert response.tool_calls == ()
    assert "amount" in response.content or "understand" in response.content


async def test_order_lacking_an_argument_takes_none_from_another_order() -> None:
    response = await Chat(INVOICES).says("delete an invoice and send me INV-7 as PDF")
    assert response.tool_calls == ()
    assert "delete invoice" in response.content


async def test_a_missing_argument_is_asked_for_until_all_are_there() -> None:
    chat = Chat(HOTEL)
    first = await chat.says("reserve a room")
    assert first.tool_calls == ()
    assert first.content == (
        "To **reserve room** I still need: kind (one of single, double, suite); arrival (the first day); nights."
    )
    assert "arrival" in (await chat.says("double")).content
    assert "nights" in (await chat.says("on Friday")).content
    assert await chat.calls("4") == reserved("double", "2026-11-20", 4)


async def test_the_answer_to_a_question_may_be_any_text() -> None:
    chat = Chat(OFFICE)
    await chat.says("add a task")
    assert await chat.calls("call mum") == [("add_task", {"title": "call mum"})]


async def test_a_question_can_be_dropped_or_followed_by_something_else() -> None:
    chat = Chat(INVOICES)
    await chat.says("delete an invoice")
    assert await chat.says("never mind") == Response(content="All right, I leave it.", model="demo")
    await chat.says("delete an invoice")
    assert await chat.calls("list invoices") == [("list_invoices", {})]


@pytest.mark.parametrize(
    ("texts", "ids"),
    [
        (["delete INV-4", "delete INV-7"], ["INV-4", "INV-7"]),
        (["delete INV-3", "delete INV-4 and INV-5", "delete INV-7"], ["INV-3", "INV-4", "INV-5", "INV-7"]),
        (["delete INV-4", "no, don't", "delete INV-7"], ["INV-7"]),
        (["delete INV-4", "never mind"], []),
        (["delete INV-4", "thank you"], []),
    ],
)
async def test_orders_that_came_together_are_all_taken(texts: list[str], ids: list[str]) -> None:
    messages = tuple(ModelMessage(role="user", content=text) for text in texts)
    response = await DemoProvider(today=lambda: WEDNESDAY).complete(Request(messages=messages, tools=tuple(INVOICES)))
    assert [call.args for call in response.tool_calls] == [{"invoice_id": one} for one in ids]
    assert len({call.call_id for call in response.tool_calls}) == len(ids)


async def test_an_order_that_was_answered_is_not_taken_again() -> None:
    chat = Chat(INVOICES)
    await chat.calls("delete INV-4")
    await chat.told()
    assert await chat.calls("delete INV-7") == [("delete_invoice", {"invoice_id": "INV-7"})]


async def test_pronoun_refers_to_the_last_mentioned_id() -> None:
    chat = Chat(INVOICES)
    await chat.says("what about INV-7?")
    assert await chat.calls("send it as PDF") == [("send_invoice_pdf", {"invoice_id": "INV-7"})]
    assert await chat.calls("now delete it") == [("delete_invoice", {"invoice_id": "INV-7"})]
    assert await chat.calls("bórrala") == [("delete_invoice", {"invoice_id": "INV-7"})]


async def test_pronoun_refers_to_no_id_after_several_were_mentioned() -> None:
    chat = Chat(INVOICES, results={"list_invoices": '[{"id": "INV-1"}, {"id": "INV-2"}]'})
    await chat.says("list invoices")
    await chat.told()
    assert await chat.calls("delete it") == []


async def test_ids_are_spelled_as_they_were_before() -> None:
    chat = Chat(INVOICES, results={"list_invoices": '[{"id": "INV-1"}, {"id": "INV-2"}]'})
    await chat.says("list invoices")
    await chat.told()
    assert await chat.calls("delete inv-2") == [("delete_invoice", {"invoice_id": "INV-2"})]
    assert await chat.calls("delete invoice 1") == [("delete_invoice", {"invoice_id": "INV-1"})]
    assert await chat.calls("delete inv-3") == [("delete_invoice", {"invoice_id": "INV-3"})]


@pytest.mark.parametrize(
    ("result", "says"),
    [
        ("Three rooms are free.", "Three rooms are free."),
        (
            json.dumps([{"id": "INV-1", "total_due": 10.5, "note": "a|b"}, {"id": "INV-2", "total_due": 3}]),
            "| id | total due | note |\n| --- | --- | --- |\n| INV-1 | 10.5 | a\\|b |\n| INV-2 | 3 |  |",
        ),
        ('["one", "two"]', "- one\n- two"),
        ("[]", "Nothing found."),
        ('{"id": "INV-1", "paid": true}', "- **id**: INV-1\n- **paid**: true"),
        ('{"INV-7": "Blue", "#8": "Red", "line_2": 1}', "- **INV-7**: Blue\n- **#8**: Red\n- **line 2**: 1"),
        ('[{"Q1": 3, "isPaid": true}]', "| Q1 | is paid |\n| --- | --- |\n| 3 | true |"),
        ("", "Done."),
        ("null", "Done."),
        ("42", "42"),
        ("Error: no such invoice", "That did not work: no such invoice"),
        (str(ToolExecutionError("x", ValueError("no such invoice"))), "That did not work: ValueError"),
        ("Tool 'x' was not run and nobody was asked: no such invoice", "That did not work: no such invoice"),
        (str(ToolTimeout("x", 30)), "That did not work: timed out after 30 seconds"),
        (str(ToolValidationError("x", Problem("day", "is no date"))), "That did not work: day: is no date"),
        ('{"error": {"message": "no such invoice"}}', "That did not work: no such invoice"),
        ('{"error": "no such invoice"}', "That did not work: no such invoice"),
        ('{"kind": "not_found", "entity": "invoice", "query": "INV-9"}', "I found no invoice for “INV-9”."),
        (
            '{"kind": "ambiguous", "entity": "invoice", "query": "Ana", "matches": ["INV-1", "INV-2"]}',
            "There are several of invoice for “Ana”. Which one?\n\n- INV-1\n- INV-2",
        ),
        (
            '{"kind": "pending_confirmation", "action": "x", "preview": "Delete INV-1?", "user_prompt": ""}',
            "This waits for your confirmation: Delete INV-1?",
        ),
    ],
)
async def test_results_are_told_in_words(result: str, says: str) -> None:
    chat = Chat(INVOICES, results={"list_invoices": result})
    await chat.says("list invoices")
    assert await chat.told() == says


async def test_several_results_are_all_told() -> None:
    chat = Chat(INVOICES, results={"delete_invoice": "Deleted.", "send_invoice_pdf": "Sent."})
    await chat.says("delete INV-42 and send INV-7 as pdf")
    assert await chat.told() == "Deleted.\n\nSent."


async def test_help_comes_from_the_tools_descriptions() -> None:
    can = "I can:\n- List all invoices\n- Delete an invoice for good\n- Send an invoice as a PDF file"
    chat = Chat(INVOICES)
    assert (await chat.says("help")).content == can
    assert (await chat.says("hello")).content == f"Hello! {can}"
    assert (await chat.says("thanks!")).content == "You are welcome."
    assert (await chat.says("the weather is nice")).content == f"I did not understand that. {can}"
    assert "no tools" in (await Chat([]).says("hello")).content


@pytest.mark.parametrize(
    ("language", "asked"),
    [
        ("es-MX", "Para **delete invoice** me falta: invoice id."),
        ("pt", "Para **delete invoice** ainda falta: invoice id."),
    ],
)
async def test_demo_speaks_the_language_of_the_conversation(language: str, asked: str) -> None:
    assert (await Chat(INVOICES, language).says("delete an invoice")).content == asked


async def test_event_without_a_question_is_told() -> None:
    provider = DemoProvider(today=lambda: WEDNESDAY)
    messages = [
        ModelMessage(role="user", content="delete INV-42"),
        ModelMessage(role="assistant", content="Shall I?"),
        ModelMessage(role="event", content="INV-42 was deleted."),
    ]
    assert (await provider.complete(Request(messages=messages, tools=INVOICES))).content == "INV-42 was deleted."


@given(st.lists(st.text(max_size=40), min_size=1, max_size=4), st.sampled_from([HOTEL, OFFICE, INVOICES]))
async def test_demo_never_fails_and_calls_only_existing_tools(texts: list[str], tools: Sequence[ToolSpec]) -> None:
    chat = Chat(tools)
    for text in texts:
        response = await chat.says(text)
        assert response.content or response.tool_calls
        for call in response.tool_calls:
            (spec,) = [spec for spec in tools if spec.name == call.name]
            required: Any = spec.parameters["required"]
            properties: Any = spec.parameters["properties"]
            assert set(required) <= call.args.keys() <= set(properties)


def test_source_of_the_demo_names_no_tool_of_a_bot() -> None:
    source = "\n".join(path.read_text() for path in Path(gateway.providers.demo.__file__).parent.glob("*.py")).lower()
    names = [spec.name for spec in (*HOTEL, *OFFICE, *INVOICES)]
    assert not [name for name in (*names, "factura", "fatura") if name in source]
