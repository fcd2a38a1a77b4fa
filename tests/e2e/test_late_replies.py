"""The real ``askfirst serve`` reads late replies, typed before the question or about something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_platforms import Served, served
from tests.fakes.openai import Call, Say

DELETE = Call("delete_invoice", {"invoice_id": "INV-42"})
LATER: dict[str, dict[str, Any]] = {
    "of an earlier message": {"message_id": 1, "date": 1_700_000_000},
    "of an earlier time": {"date": 1_700_000_000},
    "quoting another chat": {"quote": {"text": "yes?", "position": 0}, "external_reply": {"origin": {}}},
    "about a story": {"reply_to_story": {"chat": {"id": 1, "type": "private"}, "id": 1}},
    "sent offline": {"is_from_offline": True},
    "struck through": {"entities": [{"type": "strikethrough", "offset": 0, "length": 3}]},
    "with a field that nobody knows": {"hologram": {"depth": 3}},
}


async def asked_again(house: Served, chat: Any, before: int) -> None:
    """The question stands there once more, with its code, and nothing was deleted."""
    await house.telegram.wait_for(lambda: len(house.telegram.sent) > before)
    again = house.telegram.sent[-1]
    assert "Please answer with the code" in again.text
    assert again.buttons == ["Confirm", "Cancel", "Change"]


async def test_telegram_yes_typed_before_the_question_does_not_count(tmp_path: Path) -> None:
    async with served(tmp_path) as house:
        telegram, ana = house.telegram, house.ana
        house.model.script([DELETE])
        await telegram.person_says(ana, ana, "delete invoice INV-42")
        await telegram.wait_for(lambda: telegram.sent)
        prompt = telegram.sent[-1]
        for fields in list(LATER.values())[:2]:
            await telegram.person_says(ana, ana, "yes", **fields)
            await asked_again(house, ana, 1)
        assert len(telegram.sent) <= 4
        assert not any("is deleted" in message.text for message in telegram.sent)
        await telegram.press(prompt, "Confirm", ana)
        await telegram.wait_for(lambda: any("deleted" in message.text for message in telegram.sent))


@pytest.mark.parametrize("why", list(LATER)[2:])
async def test_telegram_words_not_typed_here_are_asked_again(tmp_path: Path, why: str) -> None:
    async with served(tmp_path) as house:
        telegram, ana = house.telegram, house.ana
        house.model.script([DELETE])
        await telegram.person_says(ana, ana, "delete invoice INV-42")
        await telegram.wait_for(lambda: telegram.sent)
        await telegram.person_says(ana, ana, "yes", **LATER[why])
        await asked_again(house, ana, 1)


async def test_slack_yes_typed_before_the_question_does_not_count(tmp_path: Path) -> None:
    async with served(tmp_path) as house:
        slack, ben = house.slack, house.ben
        direct = slack.direct(ben)
        earlier = slack.next_ts()
        house.model.script([DELETE])
        await slack.says(ben, direct, "delete invoice INV-42")
        await slack.wait_for(lambda: slack.last(direct))
        words: dict[str, Any] = {"type": "message", "user": ben, "text": "yes", "channel": direct, "channel_type": "im"}
        await slack.event({**words, "ts": earlier, "event_ts": earlier, "team": slack.team})
        await slack.wait_for(lambda: any("answer with the code" in message.text for message in slack.sent))
        shared = slack.next_ts()
        share = {"is_share": True, "text": "somebody's words", "channel_id": "C1"}
        await slack.event({**words, "ts": shared, "event_ts": shared, "attachments": [share]})
        house.model.script([Say("I see.")])
        await slack.says(ben, direct, "and now?")
        await slack.wait_for(lambda: any("I see." in message.text for message in slack.sent))
        assert not any("is deleted" in message.text for message in slack.sent)
