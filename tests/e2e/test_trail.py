"""An operator finds one log line a station for a message, each with the event's id."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from channels import Address, WebhookRequest
from gateway.observe.event_log import EventLog
from gateway.observe.events import MessageReceived
from tests.cli.processes import askfirst
from tests.e2e.house import SECRET, SIGNED, SIGNING, House, delete, open_house
from tests.e2e.test_platforms import Served, served
from tests.fakes.collector import FakeCollector
from tests.fakes.openai import Call, Fail
from tests.fakes.twilio import FakeTwilio
from tests.metrics import scraped

ANSWERED = ["accepted", "turn begun", "model answered", "committed"]


def way(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    found = [record for record in caplog.records if record.name == "askfirst.events"]
    return [record.msg for record in found if event in str(vars(record)["event"]).split(", ")]


def fields(caplog: pytest.LogCaptureFixture, station: str) -> dict[str, object]:
    return vars([record for record in caplog.records if record.getMessage() == station][-1])


def last_update(house: House) -> str:
    return str(house.telegram.deliveries[-1][0])


@pytest.fixture(autouse=True)
def everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


@pytest.mark.ledger("PYG-23")
async def test_log_follows_a_message_its_prompt_and_the_press(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_house(tmp_path) as house:
        prompt = await house.prompt()
        asked = last_update(house)
        stations = ["accepted", "turn begun", "model answered", "tool asks", "committed", "delivered"]
        assert way(caplog, asked) == stations
        committed, delivered = fields(caplog, "committed"), fields(caplog, "delivered")
        assert committed["how"] == "asked"
        assert committed["parts"] == [delivered["part"]]
        await house.presses(prompt)
        await house.until(lambda: len(house.messages()) > 1)
        await house.idle()
        assert way(caplog, last_update(house))[:2] == ["accepted", "committed"]
        assert last_update(house) != asked
        (action,) = await house.actions()
        pressed = next(vars(each) for each in caplog.records if vars(each).get("how") == "decided by button")
        assert (pressed["event"], pressed["actions"]) == (last_update(house), [action.pending_action_id])
        assert committed["actions"] == [action.pending_action_id]
        assert "delivered" in way(caplog, f"action/{action.pending_action_id}")
        assert "INV-42" not in caplog.text


async def test_log_shows_retried_and_refused_messages(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_house(tmp_path) as house:
        house.telegram.fail_next("sendMessage", status=502)
        await house.asks("hello", "Hello.")
        await house.idle()
        event = last_update(house)
        assert way(caplog, event) == [*ANSWERED, "not delivered yet: %s", "delivered"]

        house.telegram.fail_next("sendMessage", status=403, description="Forbidden: bot was blocked by the user")
        house.model.script(["Hello?"])
        await house.says("are you there?")
        await house.idle()
        event = last_update(house)
        assert way(caplog, event) == [*ANSWERED, "not delivered: %s"]
        blocked = next(record for record in caplog.records if record.msg == "not delivered: %s")
        assert blocked.levelno == logging.INFO, "a person who blocks the bot is nobody's fault"


async def test_messages_accepted_together_share_a_log_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    people = range(900, 920)
    async with open_house(tmp_path) as house:

        def wrote(person: int) -> WebhookRequest:
            sender = {"id": person, "is_bot": False, "first_name": "Ana"}
            message = {"message_id": 1, "date": 1, "from": sender, "chat": {"id": person, "type": "private"}}
            body = json.dumps({"update_id": person, "message": message | {"text": "hello"}})
            return WebhookRequest("POST", house.webhook, {n.lower(): v for n, v in SIGNED.items()}, body.encode())

        house.model.script(["Hello."] * len(people))
        answers = await asyncio.gather(*(house.gateway.webhook("telegram", wrote(person)) for person in people))
        assert {answer.status for answer in answers} == {200}
        await house.idle()
    assert all(way(caplog, str(person))[:4] == ANSWERED for person in people)
    stored = [vars(record) for record in caplog.records if record.getMessage() == "accepted"]
    assert len(stored) < len(people)
    for line in stored:
        said = zip(line["event"].split(", "), line["conversation"].split(", "), strict=True)
        assert all(conversation.endswith(f":{event}") for event, conversation in said)


async def test_accepted_line_names_at_most_fifty_events(caplog: pytest.LogCaptureFixture) -> None:
    address = Address(channel="telegram", account="1", place="2")
    log = EventLog()
    for number in range(120):
        log.read(MessageReceived(event_id=str(number), address=address, person=None, conversation="c"))
    await asyncio.sleep(0)
    named = [str(vars(record)["event"]).split(", ") for record in caplog.records]
    assert [len(each) for each in named] == [50, 50, 20]
    assert [event for each in named for event in each] == [str(number) for number in range(120)]


# ── one id from webhook to audit ──


ANA = "+15557654321"
CHANNELS = ("telegram", "slack", "sms", "whatsapp")


async def says(house: Served, twilio: FakeTwilio, channel: str, text: str) -> None:
    telegram, slack = house.telegram, house.slack
    if channel == "telegram":
        await telegram.person_says(house.ana, house.ana, text)
        await telegram.wait_for(lambda: telegram.sent or None)
    elif channel == "slack":
        await slack.says(house.ben, slack.direct(house.ben), text)
        await slack.wait_for(lambda: slack.sent or None)
    else:
        before = len(twilio.sent)
        await twilio.person_says(ANA, text, whatsapp=channel == "whatsapp")
        await twilio.wait_for(lambda: twilio.sent[before:] or None)


def rows_with(file: Path, text: str) -> dict[str, list[Any]]:
    """Return the rows of each table with a text."""
    with contextlib.closing(sqlite3.connect(file)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = {name: database.execute(f"SELECT * FROM {name}").fetchall() for name in names}
    return {name: found for name, each in rows.items() if (found := [row for row in each if text in str(row)])}


@pytest.mark.timeout(120)
async def test_one_id_is_in_log_trace_metrics_spans_and_audit(tmp_path: Path) -> None:
    async with (
        FakeCollector() as collector,
        FakeTwilio() as twilio,
        served(tmp_path, twilio=twilio, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url) as house,
    ):
        for channel in CHANNELS:
            house.model.script([Call("delete_invoice", {"invoice_id": "INV-42"})])
            await says(house, twilio, channel, "delete INV-42")
            found = await scraped(house.url)
            assert found.value("askfirst_events_accepted_total", channel=channel) >= 1
            assert found.value("askfirst_webhook_duration_seconds_count", channel=channel, status="200") >= 1
        found = await scraped(house.url)
        assert found.value("askfirst_turn_duration_seconds_count", stop_reason="asked") == len(CHANNELS)
        assert found.value("askfirst_actions_asked_total", tool="delete_invoice") == len(CHANNELS)
        house.process.signal(signal.SIGTERM)
        assert await house.process.ended() == 0
    for channel in CHANNELS:
        turns = [span.trace_id for span in collector.named("invoke_agent Invoices")]
        (run_id,) = [span.trace_id for span in collector.named(f"receive {channel}") if span.trace_id in turns]
        names = [span.name for span in collector.in_trace(run_id)]
        assert "chat test-model" in names and f"deliver {channel}" in names
        lines = [line for line in house.process.said.splitlines() if run_id in line]
        for station in ("accepted", "turn begun", "model answered", "tool asks", "committed", "delivered"):
            assert any(station in line for line in lines), f"{channel}: no line {station!r} with the id"
        stored = rows_with(tmp_path / "askfirst.db", run_id)
        assert any(f"trace/{run_id}/" in str(row) and "llm_call" in str(row) for row in stored["record"])
        [action_id] = {str(row[0]).partition("/")[2] for row in stored["record"] if str(row[0]).startswith("action/")}
        asked = rows_with(tmp_path / "askfirst.db", action_id)["log"]
        assert any('"what":"asked"' in str(row).replace(" ", "") for row in asked)


# ── no words of people are in the data that an operator collects ──


SAID, INVOICE, MODEL_SAID, NAME = "canary-words", "INV-CANARY", "canary-reply", "CanaryName"


async def test_no_canary_is_in_log_metrics_spans_and_listings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with FakeCollector() as collector:
        async with open_house(tmp_path, otel_endpoint=collector.url) as house:
            ana = house.telegram.person(NAME)
            prompt = await house.asks(f"delete it, {SAID}", *delete(INVOICE), by=ana)
            await house.presses(prompt, by=ana)
            await house.until(lambda: house.texts(ana)[1:] or None)
            await house.idle()
            house.model.script([Fail(400, "invalid", message=f"refused: {SAID}"), MODEL_SAID])
            await house.says(f"{SAID} again", by=ana)
            await house.idle()
            house.telegram.fail_next("sendMessage", status=400, description=f"Bad Request: {MODEL_SAID}")
            await house.says(f"{SAID} once more", by=ana)
            await house.idle()
            shown = (await scraped(house.url)).text
            listings = [
                await askfirst(*command, cwd=tmp_path, env={"ASKFIRST_STORE": f"sqlite:///{tmp_path / 'askfirst.db'}"})
                for command in (("dead", "list", "--json"), ("usage", "--json"))
            ]
        token, key = house.telegram.token, house.model.key
    listed = str(listings)
    assert [code for code, _, _ in listings] == [0, 0] and listed.count('"what": "') == 2
    logged = str([vars(record) for record in caplog.records if record.name.startswith(("askfirst", "gateway"))])
    spans = repr(collector.spans)
    assert collector.spans and "askfirst_events_accepted_total" in shown and "dead" in logged
    for canary in (SAID, INVOICE, MODEL_SAID, NAME, SECRET, SIGNING, token, key):
        for where, text in {"log": logged, "metrics": shown, "spans": spans}.items():
            assert canary not in text, f"{canary} is in the {where}"
    for canary in (SAID, INVOICE, MODEL_SAID, SECRET, SIGNING, token, key):
        assert canary not in listed, f"{canary} is in a listing"
