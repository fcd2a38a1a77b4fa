"""The bench of asks and their yes runs: with tiny numbers, and nothing said of how fast."""

from __future__ import annotations

from bench.confirm import in_a_process, on_telegram
from bench.rounds import ROOT


def test_the_rules_alone_are_measured() -> None:
    found = in_a_process(ROOT, "desk", "memory", alone=1, together=2)
    assert min(found.values()) > 0


def test_a_conversation_that_has_grown_is_measured() -> None:
    found = in_a_process(ROOT, "growth", "memory", alone=1, together=1)
    assert min(found.values()) > 0


def test_a_press_on_telegram_is_measured() -> None:
    found = on_telegram(ROOT, "sqlite", alone=1, together=2)
    assert min(found.values()) > 0
