"""This release goes on with the stores of an earlier one that was killed: nothing is lost, and nothing else is run."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from gateway.store.redis import RedisStore
from tests.store.conftest import redis_url
from tests.upgrade.loading import load_redis, load_sqlite, unpack
from tests.upgrade.story import Seen, Story, play, refused_now

__all__ = ["redis_url"]

WRITTEN_BY = Path(__file__).with_name("f34d6b2")
ANSWERED = ("SOLO", "TRIO", "PAIR", "AGAIN", "TEAM", "NOTIFY", "OTHER", "REFUND", "CLOSE", "DESK", "OWN")
QUEUED = ("UNSENT", "DOWN", "TWICE")
DECIDED_AT_THE_START = ("YES", "REPEAT", "PRESSED", "CODE", "REPLY")
NEVER_RUN = ("LOST", "PROBED", "PRESSEDNO", "CODENO", "STOP", "WORDNO", "SHORT", "QUEUED", "DONE", "REFUSED", "STOPPED")


@pytest.fixture(scope="module", params=["sqlite", "redis"])
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    directory, fixture = tmp_path_factory.mktemp("upgrade"), unpack(WRITTEN_BY / f"{request.param}.json.xz")
    if request.param == "sqlite":
        yield asyncio.run(play(load_sqlite(fixture, directory), directory))
        return
    url, prefix = str(request.getfixturevalue("redis_url")), f"askfirst-test-{secrets.token_hex(6)}"
    manifest = load_redis(fixture, url, prefix)
    try:
        store = RedisStore(url, prefix=prefix, ack_seconds=15)
        yield asyncio.run(play(manifest, directory, store=store, secret=fixture["secret"]))
    finally:
        with Redis.from_url(url) as redis:
            redis.delete(*redis.scan_iter(f"{prefix}:*", count=1000))


def counted(effects: Iterable[tuple[str, object]]) -> Counter[str]:
    return Counter(f"{kind} {json.dumps(args, sort_keys=True)}" for kind, args in effects)


def states(seen: Seen, story: Story, *plots: str) -> set[tuple[str, str | None]]:
    found = [seen.actions[asked.invoice] for asked in story.manifest.of(*plots)]
    return {(action.state, action.reason) for action in found}


def test_the_fixture_holds_what_it_is_to_hold(story: Story) -> None:
    found = Counter(asked.state for asked in story.manifest.actions.values())
    assert found["pending"] >= 200
    assert (found["approved"], found["running"]) == (7, 6)
    assert {name for name, count in story.manifest.counts.items() if count} == {
        "waiting",
        "pointed",
        "parts",
        "timers",
        "dead",
    }


def test_people_find_the_buttons_they_were_shown(story: Story) -> None:
    assert story.troubles == []


def test_no_action_is_lost(story: Story) -> None:
    assert set(story.manifest.actions) <= set(story.started.actions)
    for asked in story.manifest.of(*ANSWERED, *QUEUED, "SHORT"):
        action = story.started.actions[asked.invoice]
        assert (action.pending_action_id, action.state, action.code) == (asked.id, "pending", asked.code), asked.invoice
        assert (action.kind, dict(action.args), action.requester) == (asked.kind, dict(asked.args), asked.person)


def test_each_yes_runs_once_with_what_was_asked(story: Story) -> None:
    confirmed = [asked for asked in story.manifest.of(*ANSWERED, *QUEUED) if not refused_now(asked)]
    confirmed += story.manifest.of(*DECIDED_AT_THE_START, "WORDYES")
    confirmed += [asked for asked in story.manifest.of("ELDER") if asked.state == "pending"]
    new = [story.later.actions[invoice] for invoice in ("LATER-0", "LATER-1", *story.manifest.in_checkpoints)]
    expected = [*[asked.effect for asked in confirmed], *[(action.kind, action.args) for action in new]]
    done = counted(story.later.effects)
    for effect in done:
        if effect.startswith("archive_invoice"):  # idempotent: a run whose process stalls is run again
            done[effect] = 1
    assert done == counted(expected)
    assert states(story.answered, story, *DECIDED_AT_THE_START, *QUEUED, "WORDYES") == {("done", None)}


def test_each_outcome_is_told(story: Story) -> None:
    for asked in story.manifest.of(*ANSWERED, *QUEUED, *DECIDED_AT_THE_START, "WORDYES"):
        if asked.chat and not refused_now(asked):
            words = "Paid" if asked.kind == "pay_invoice" else "is finished"
            assert story.answered.wrote(asked.chat, words, asked.invoice), asked.invoice


def test_a_no_closes_and_runs_nothing(story: Story) -> None:
    refused = [asked for asked in story.manifest.of(*ANSWERED) if refused_now(asked)]
    assert {story.answered.actions[asked.invoice].reason for asked in refused} == {"refused"}
    assert states(story.answered, story, "PRESSEDNO", "CODENO", "WORDNO") == {("closed", "refused")}
    ran = {str(args["invoice_id"]) for _, args in story.later.effects}
    assert not ran & {asked.invoice for asked in [*refused, *story.manifest.of(*NEVER_RUN)]}


def test_who_may_not_decide_still_may_not(story: Story) -> None:
    assert counted(story.strangers.effects) == counted(story.started.effects)
    assert states(story.strangers, story, "REFUND", "CLOSE", "TEAM", "OTHER") == {("pending", None)}


def test_what_waited_is_decided_at_the_start(story: Story) -> None:
    assert states(story.started, story, "PRESSED", "CODE", "REPLY") == {("done", None)}
    assert states(story.started, story, "PRESSEDNO", "CODENO") == {("closed", "refused")}
    assert states(story.started, story, "STOP") == {("closed", "withdrawn")}
    # What came first, the word or the question, an older release did not write down: it may be asked again.
    assert states(story.started, story, "WORDYES") <= {("done", None), ("pending", None)}
    assert states(story.started, story, "WORDNO") <= {("closed", "refused"), ("pending", None)}
    for asked in story.manifest.of("WORDYES", "WORDNO"):
        assert story.started.texts.get(asked.chat), f"{asked.invoice}: the word was answered by nothing"


def test_what_was_approved_is_run_at_the_start(story: Story) -> None:
    assert states(story.started, story, "YES", "REPEAT") == {("done", None)}


def test_what_a_dead_worker_left_is_not_run_again(story: Story) -> None:
    assert states(story.later, story, "LOST") == {("unknown", None)}
    probed = [story.later.actions[f"PROBED-{number}"].state for number in range(2)]
    assert probed == ["failed", "done"]
    for asked in story.manifest.of("LOST", "PROBED"):
        assert story.later.wrote(asked.chat, asked.invoice), asked.invoice
        assert not story.later.wrote(asked.chat, "is finished"), asked.invoice


def test_a_question_of_a_turn_that_died_is_asked_once(story: Story) -> None:
    assert len(story.manifest.in_checkpoints) == 3
    for invoice in story.manifest.in_checkpoints:
        action = story.started.actions[invoice]
        assert (action.state, action.shown_at is not None) == ("pending", True)
        assert story.later.actions[invoice].state == "done"
    assert story.later.asked_twice == ()


def test_a_tool_that_had_begun_in_a_turn_is_not_run_again(story: Story) -> None:
    assert not [args for kind, args in story.later.effects if kind == "note_down"]


def test_questions_that_were_not_sent_are_sent(story: Story) -> None:
    for asked in story.manifest.of(*QUEUED):
        shown = [set(tokens) for tokens in story.started.buttons[asked.chat]]
        assert any(set(asked.tokens[0]) <= tokens for tokens in shown), asked.invoice
        assert story.started.actions[asked.invoice].shown_at is not None, asked.invoice


def test_answers_and_edits_that_were_not_sent_are_sent(story: Story) -> None:
    for chat, text in story.manifest.said["unsent"]:
        assert story.started.wrote(chat, f"Noted: {text}")
    for asked in story.manifest.of("QUEUED"):
        assert not [shown for shown in story.started.buttons[asked.chat] if shown], f"{asked.invoice} has its buttons"
        assert story.started.wrote(asked.chat, asked.invoice), asked.invoice


def test_each_message_that_waited_is_answered(story: Story) -> None:
    for chat, text in story.manifest.said["hello"]:
        assert story.started.wrote(chat, "Noted:", text), text
    assert story.started.actions["LATER-0"].state == story.started.actions["LATER-1"].state == "pending"
    assert "and now?" in story.at_the_counter


def test_what_was_settled_stays_settled(story: Story) -> None:
    assert states(story.again, story, "DONE", "ELDER") == {("done", None)}
    assert states(story.again, story, "FAILED") == {("failed", None)}
    assert states(story.again, story, "REFUSED") == {("closed", "refused")}
    assert states(story.again, story, "STOPPED") == {("closed", "withdrawn")}
    assert counted(story.again.effects) == counted(story.answered.effects)
    assert all(press.answered and press.text for press in story.presses.values())


def test_timers_of_before_fall_due(story: Story) -> None:
    assert states(story.again, story, "SHORT") == {("pending", None)}
    assert states(story.later, story, "SHORT") == {("closed", "expired")}
    for asked in story.manifest.of("SHORT"):
        assert story.later.wrote(asked.chat, asked.invoice), asked.invoice
    for chat, text in story.manifest.said["notify"]:
        assert (story.again.wrote(chat, text), story.later.wrote(chat, text)) == (False, True)


def test_dead_letters_are_listed(story: Story) -> None:
    assert sorted(str(letter["what"]) for letter in story.letters) == ["event", "part", "payload"]
