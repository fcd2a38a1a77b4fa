"""The benches run with tiny numbers, without any check of speed."""

from __future__ import annotations

import pytest

from bench import approvals
from bench.confirm import in_a_process, on_telegram
from bench.replies import lengthened, measured
from bench.rounds import ROOT
from bench.startup import four_channels, imported


@pytest.mark.nightly
@pytest.mark.parametrize("platform", ["telegram", "slack"])
@pytest.mark.parametrize("module", ["echo", "ours_replying"])
def test_every_message_of_a_chat_is_replied_to(platform: str, module: str) -> None:
    found = measured(platform, module, chats=2, turns=2)
    assert min(found.p50_alone, found.cpu_seconds, found.rate) > 0


@pytest.mark.nightly
def test_replies_come_with_redis_too() -> None:
    assert measured("telegram", "ours_replying", chats=2, turns=1, redis=True).cpu_seconds > 0


@pytest.mark.nightly
def test_a_conversation_is_lengthened() -> None:
    assert lengthened(chats=1, early=1, late=2, redis=False) > 0


@pytest.mark.nightly
def test_an_import_and_a_server_are_weighed() -> None:
    assert imported("import gateway").megabytes > 0
    assert four_channels() > 0


@pytest.mark.nightly
def test_both_hops_of_an_approval_are_measured() -> None:
    questions, answers = approvals.measured("redis", 2, asks=2)
    assert len(questions) == len(answers) == 2
    assert min(*questions, *answers) > 0


@pytest.mark.parametrize(("part", "together"), [("desk", 2), ("growth", 1)])
def test_the_rules_and_a_grown_conversation_are_measured(part: str, together: int) -> None:
    """In `make test` too: the run stops at the first yes without an effect, like a yes refused by the gateway."""
    works = ["alone", "together"] if part == "desk" else ["fresh reply", "fresh ask", "grown reply", "grown ask"]
    found = in_a_process(ROOT, part, "memory", alone=1, together=together)
    assert found.keys() == {f"{work} {time}" for work in works for time in ("cpu", "wall")}
    assert all(0 < found[f"{work} cpu"] < 10 for work in works)


@pytest.mark.nightly
def test_a_press_on_telegram_is_measured() -> None:
    assert min(on_telegram(ROOT, "sqlite", alone=1, together=2).values()) > 0
