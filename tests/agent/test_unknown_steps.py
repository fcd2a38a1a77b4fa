"""A checkpoint that is not understood: no call runs because of it, and none is repeated."""

from __future__ import annotations

from typing import Any

import pytest

from channels import Json
from gateway.agent.journal import UnreadableStep
from gateway.tools import Tool, tool
from tests.agent.scripted import Notebook, Script, Turn, call, told

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
