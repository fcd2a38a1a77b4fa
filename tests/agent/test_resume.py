"""A turn after a take-over repeats no finished call and no call in doubt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from channels import Json, Media
from gateway.agent import AgentConfig
from gateway.agent.journal import UnreadableStep
from gateway.artifacts import Artifact, NotKept, emit_artifact
from gateway.observe.events import LlmEnd, ObservedEvent, PendingStashed, ToolEnd
from gateway.providers import ProviderError
from gateway.tools import Tool, ToolContext, tool
from tests.agent.scripted import Notebook, Script, Turn, call, calls, told


class Killed(BaseException):
    """The process dies here."""


def counting(**options: Any) -> tuple[Tool, list[str]]:
    keys: list[str] = []

    @tool(**options)
    async def count(n: int, ctx: ToolContext) -> str:
        """Count."""
        keys.append(ctx.idempotency_key)
        return f"counted {n}"

    return count, keys


async def until(turn: Turn, step: int) -> Notebook:
    """Run the turn and kill it after this many recorded steps; return the journal."""
    record = turn.journal.record

    async def dying(line: Json) -> None:
        await record(line)
        if len(turn.journal.lines) == step:
            raise Killed

    turn.journal.record = dying  # type: ignore[method-assign, assignment]
    with pytest.raises(Killed):
        await turn.run()
    return Notebook(turn.journal.steps)


async def test_a_tool_with_effects_is_recorded_before_and_after() -> None:
    count, _ = counting()
    turn = Turn(Script([call("count", n=1), "ok"]), [count])
    await turn.run()
    assert turn.journal.kinds() == ["reply", "started", "finished"]


@pytest.mark.parametrize("flag", ["read_only", "idempotent"])
async def test_a_tool_that_may_be_repeated_is_recorded_after_only(flag: str) -> None:
    count, _ = counting(**{flag: True})
    turn = Turn(Script([call("count", n=1), "ok"]), [count])
    await turn.run()
    assert turn.journal.kinds() == ["reply", "finished"]


async def test_a_recorded_reply_is_not_asked_for_again() -> None:
    count, keys = counting()
    left = await until(Turn(Script([call("count", n=1)]), [count]), 1)
    assert keys == []
    turn = Turn(Script(["done"]), [count], journal=left)
    outcome = await turn.run()
    assert (outcome.content, len(keys), len(turn.provider.requests)) == ("done", 1, 1)
    assert [m.role for m in outcome.messages] == ["assistant", "tool", "assistant"]
    assert outcome.iterations == 2


async def test_call_started_but_not_finished_is_not_run_again() -> None:
    count, keys = counting()
    left = await until(Turn(Script([call("count", n=1)]), [count]), 2)
    turn = Turn(Script(["I do not know"]), [count], journal=left)
    (text,) = told(await turn.run())
    assert "unknown" in text
    assert keys == []
    assert turn.journal.kinds() == ["reply", "started", "finished"]


async def test_interrupted_idempotent_call_reruns_under_the_same_key() -> None:
    keys: list[str] = []

    @tool(idempotent=True)
    async def pay(ctx: ToolContext) -> str:
        """Pay."""
        keys.append(ctx.idempotency_key)
        return "paid"

    left = await until(Turn(Script([call("pay")]), [pay]), 2)
    second = Turn(Script(["ok"]), [pay], journal=Notebook(left.steps[:1]))
    assert told(await second.run()) == ["paid"]
    assert keys == ["turn/1.1", "turn/1.1"]


async def test_finished_calls_keep_their_results_and_the_others_run() -> None:
    count, keys = counting(read_only=True)
    reply = calls(call("count", n=1), call("count", n=2), content="looking")
    left = await until(Turn(Script([reply]), [count], AgentConfig(parallel_tool_execution=False)), 2)
    outcome = await Turn(Script(["ok"]), [count], journal=left).run()
    assert told(outcome) == ["counted 1", "counted 2"]
    assert keys == ["turn/1.1", "turn/1.2"]


async def test_a_finished_call_keeps_its_result_when_its_tool_is_gone() -> None:
    count, _ = counting()
    left = await until(Turn(Script([call("count", n=1)]), [count]), 3)
    assert told(await Turn(Script(["ok"]), [], journal=left).run()) == ["counted 1"]


async def test_a_person_is_not_asked_twice() -> None:
    @tool(confirm="Wipe?")
    async def wipe() -> None:
        """Wipe."""

    first = Turn(Script([call("wipe")]), [wipe])
    left = await until(first, 2)
    assert left.kinds() == ["reply", "asked"]
    second = Turn(Script([]), [wipe], journal=left)
    outcome = await second.run()
    assert second.person.asked == []
    assert outcome.stop_reason == "asked"
    (asked,) = outcome.asked
    assert (asked.confirmation.action, asked.action.pending_action_id) == ("action-id-0", "action-id-0")
    assert (asked.action.kind, asked.action.args) == ("wipe", {})


async def test_asked_call_does_not_run_when_its_tool_stops_asking() -> None:
    ran: list[str] = []

    def wiping(confirm: bool) -> Tool:
        @tool(confirm=confirm)
        async def wipe() -> None:
            """Wipe."""
            ran.append("wipe")

        return wipe

    left = await until(Turn(Script([call("wipe")]), [wiping(True)]), 2)
    outcome = await Turn(Script([]), [wiping(False)], journal=left).run()
    assert (outcome.stop_reason, ran) == ("asked", [])


@pytest.mark.ledger("RES-09", "RES-10", "RES-16")
async def test_files_are_kept_before_they_are_recorded_and_come_back(tmp_path: Path) -> None:
    kept: list[bytes | None] = []

    async def keep(artifact: Artifact) -> Media:
        kept.append(artifact.content)
        return Media(sha256=artifact.sha256 or "", mime_type="text/plain", filename="a.txt", size=artifact.size or 0)

    @tool
    async def export(ctx: ToolContext) -> str:
        """Export."""
        emit_artifact(content=b"one", filename="../a")
        ctx.emit_artifact(content=b"two", filename="b", role="preview")
        return "exported"

    first = Turn(Script([call("export"), ProviderError("script", "down", retryable=False)]), [export])
    with pytest.raises(ProviderError):
        await first.run(keep=keep)
    assert kept == [b"one", b"two"]
    assert "content" not in json.dumps(first.journal.steps[-1])
    second = Turn(Script(["here"]), [export], journal=Notebook(first.journal.steps))
    outcome = await second.run(keep=keep)
    assert len(kept) == 2
    assert [(a.filename, a.mime_type, a.size, a.role) for a in outcome.artifacts] == [
        ("a.txt", "text/plain", 3, None),
        ("a.txt", "text/plain", 3, "preview"),
    ]
    assert all(a.content is None and a.sha256 for a in outcome.artifacts)
    assert told(outcome) == ["exported"]


async def test_files_not_kept_are_reported_without_a_second_run() -> None:
    async def keep(artifact: Artifact) -> Media:
        raise NotKept("a file could not be kept in /data: No space left on device")

    @tool
    async def export() -> str:
        """Export."""
        emit_artifact(content=b"one", filename="a.txt")
        return "exported"

    outcome = await Turn(Script([call("export"), "Sorry, no file."]), [export]).run(keep=keep)
    assert told(outcome) == ["exported\n\nBut its files could not be kept: nobody gets them. Tell the person."]
    assert (outcome.stop_reason, outcome.artifacts) == ("answered", ())


async def test_a_reply_is_recorded_before_it_is_told() -> None:
    count, _ = counting()
    turn = Turn(Script([call("count", n=1), "ok"]), [count])
    recorded: list[int] = []
    keep = turn.told.read

    def read(event: ObservedEvent) -> None:
        if isinstance(event, LlmEnd):
            recorded.append(len(turn.journal.lines))
        keep(event)

    turn.told.read = read  # type: ignore[method-assign]
    await turn.run()
    assert recorded[0] == 1


async def test_finished_call_is_told_as_from_an_earlier_attempt() -> None:
    count, _ = counting()
    script = Script([call("count", n=1), "ok"])
    journal = await until(Turn(script, [count]), 3)
    turn = Turn(script, [count], journal=journal)
    outcome = await turn.run()
    (ended,) = turn.told.of_kind(ToolEnd)
    assert (ended.result, ended.from_checkpoint, ended.duration_ms) == ("counted 1", True, 0.0)
    (step,) = outcome.trace.filter(type="tool_execution")
    assert (step.from_checkpoint, step.duration_ms, step.tool_args) == (True, None, {"n": 1})
    used = outcome.usage.by_tool["count"]
    assert (used.calls, used.failed) == (1, 0)


async def test_ask_is_told_as_from_an_earlier_attempt() -> None:
    count, _ = counting(confirm=True)
    script = Script([call("count", n=1), "ok"])
    first = Turn(script, [count])
    journal = await until(first, 2)
    turn = Turn(script, [count], journal=journal)
    outcome = await turn.run()
    (stashed,) = turn.told.of_kind(PendingStashed)
    assert stashed.from_checkpoint
    (step,) = outcome.trace.filter(type="pending_stashed")
    assert (step.from_checkpoint, step.duration_ms) == (True, None)


# ── An unreadable checkpoint: no call runs because of it, and none is repeated ──


REPLY: dict[str, Json] = {
    "content": "",
    "tool_calls": [{"call_id": "c", "name": "wipe", "args": {}, "parse_error": None}],
    "usage": {"prompt_tokens": 0, "completion_tokens": 0},
    "model": "",
    "finish": "tools",
    "echo": None,
}
RESULT: dict[str, Json] = {"text": "wiped", "failed": False, "stop": None, "artifacts": []}


def wiping(confirm: bool) -> tuple[Tool, list[str]]:
    ran: list[str] = []

    @tool(confirm=confirm)
    async def wipe() -> str:
        """Wipe."""
        ran.append("wipe")
        return "wiped"

    return wipe, ran


def taken_over(tools: list[Tool], *steps: Any) -> Turn:
    return Turn(Script([call("wipe"), "I see"]), tools, journal=Notebook([{"reply": REPLY}, *steps]))


@pytest.mark.parametrize(
    "verdict",
    [
        "approved",
        "APPROVED",
        {"deferred": "newer"},
        {"approved": True},
        {"refused": None},
        {"confirmation": {"action": "a"}, "record": {}},
        {"confirmation": {"action": "a", "preview": "p", "user_prompt": "u"}, "record": None},
        None,
        True,
        [],
    ],
    ids=str,
)
async def test_a_verdict_that_is_no_known_one_refuses_the_call(verdict: Any) -> None:
    wipe, ran = wiping(confirm=True)
    turn = taken_over([wipe], {"asked": 1, "verdicts": [["1.1", verdict]]})
    outcome = await turn.run()
    assert "cannot be read" in told(outcome)[0]
    assert (ran, outcome.stop_reason) == ([], "asked"), "the model may ask for it again, and the person is then asked"
    assert len(turn.person.asked) == 1


@pytest.mark.parametrize(
    "step",
    [
        {"approved": "1.1"},
        {"begun": "1.1"},
        {"started": 11},
        {"started": ["1.1"]},
        {"finished": "1.1"},
        {"finished": "1.1", "result": "wiped"},
        {"finished": "1.1", "result": {**RESULT, "stop": "approved"}},
        {"finished": "1.1", "result": {**RESULT, "failed": "perhaps"}},
        {"finished": "1.1", "result": {"text": "wiped"}},
        {"asked": "1", "verdicts": []},
        {"asked": 1, "verdicts": {}},
        {"asked": 1, "verdicts": [["1.1"]]},
        {"asked": 1, "verdicts": [[["1.1"], {"refused": "no"}]]},
        {"reply": {**REPLY, "finish": "approved"}},
        {"reply": {**REPLY, "tool_calls": "wipe"}},
        {"reply": None},
        "approved",
        None,
        {},
    ],
    ids=str,
)
@pytest.mark.parametrize("confirm", [True, False])
async def test_a_step_that_is_no_known_one_ends_the_turn(step: Any, confirm: bool) -> None:
    wipe, ran = wiping(confirm)
    turn = taken_over([wipe], step)
    with pytest.raises(UnreadableStep, match="step 2 of the turn's checkpoint"):
        await turn.run()
    assert (ran, turn.person.asked, turn.provider.requests) == ([], [], [])
