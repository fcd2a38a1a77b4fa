"""An operator finds a line a station in the log for one message, each with the event's id."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest

from channels import Address, WebhookRequest
from gateway.observe.event_log import EventLog
from gateway.observe.events import MessageReceived
from tests.e2e.house import SIGNED, House, open_house

ANSWERED = ["accepted", "turn begun", "model answered", "committed"]


def way(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    """The stations of one event, in order."""
    found = [record for record in caplog.records if record.name == "askfirst.events"]
    return [record.msg for record in found if event in str(vars(record)["event"]).split(", ")]


def fields(caplog: pytest.LogCaptureFixture, station: str) -> dict[str, object]:
    """What the last line of a station says beside its words."""
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
