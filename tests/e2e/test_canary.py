"""Nothing that people say, and no secret, is in what an operator's tools collect: log, metrics, spans, listings."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.cli.processes import askfirst
from tests.e2e.house import SECRET, SIGNING, delete, open_house
from tests.fakes.collector import FakeCollector
from tests.fakes.openai import Fail
from tests.metrics import scraped

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
