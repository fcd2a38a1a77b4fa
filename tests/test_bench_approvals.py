"""The bench of decisions across chats runs: with tiny numbers, and nothing said of how fast."""

from __future__ import annotations

from bench.approvals import measured


def test_both_hops_are_measured_over_two_processes() -> None:
    questions, answers = measured("redis", 2, asks=2)
    assert len(questions) == len(answers) == 2
    assert min(*questions, *answers) > 0
