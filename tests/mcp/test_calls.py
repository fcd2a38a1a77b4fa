"""Calls of tools of an MCP server: what comes back, and what a failure of the server means."""

from __future__ import annotations

import asyncio
import re

import pytest

from gateway import NothingDone, OutcomeUnknown
from gateway.tools import ToolContext, ToolFailed
from gateway.tools.errors import ToolValidationError
from tests.mcp.conftest import Servers, called, until


async def test_result_is_told_once_as_text_and_structure(servers: Servers) -> None:
    server = servers.busy()
    assert (await called(server, "look", place="home", deep="true")).value == "home is deep"
    assert (await called(server, "pay", amount=3)).value == '{\n  "paid": 3\n}'
    assert servers.done == ["pay 3"]


async def test_wrong_arguments_are_refused_before_the_call(servers: Servers) -> None:
    with pytest.raises(ToolValidationError, match="amount: Wrong type or value 0"):
        await called(servers.busy(), "pay", amount=0)
    assert servers.done == []


async def test_media_are_artifacts_and_the_rest_is_told(servers: Servers) -> None:
    run = await called(servers.busy(), "media")
    assert [(each.mime_type, each.filename, each.size) for each in run.artifacts] == [
        ("image/png", None, 28),
        ("application/pdf", "notes.pdf", 8),
    ]
    assert run.value.split("\n\n") == [
        "Two files.",
        "(a file of type image/png, 28 bytes, is sent to the person)",
        "(a file of type application/pdf, 8 bytes, is sent to the person)",
        "(a file of type image/png is left out: it is not base64)",
        "more: https://example.org/more",
    ]


async def test_error_that_the_server_says_is_a_failure_of_the_tool(servers: Servers) -> None:
    with pytest.raises(ToolFailed, match=r"^Error executing tool fail"):
        await called(servers.busy(), "fail")


async def test_large_result_is_cut_and_told(servers: Servers) -> None:
    run = await called(servers.busy(), "flood", size=50_000_000)
    assert len(run.value) < 100_000 and run.value.endswith("… (cut: it has 50000000 characters)")


async def test_hung_call_is_unknown_in_time(servers: Servers) -> None:
    server = servers.busy(timeout_seconds=3.0)
    with pytest.raises(OutcomeUnknown, match=r"the call was sent to MCP server .*: it has not answered in time"):
        await called(server, "hang")
    assert servers.done == ["hang"]
    assert (await called(server, "look", place="home")).value == "home is flat"  # the connection is still good


async def test_server_that_dies_in_a_call_is_unknown_and_starts_again(servers: Servers) -> None:
    server = servers.busy()
    with pytest.raises(OutcomeUnknown, match="the call was sent"):
        await called(server, "die")
    assert servers.done == ["die"]  # it is not called a second time
    assert (await called(server, "look", place="home")).value == "home is flat"


async def test_changed_tool_is_not_called_and_the_next_list_has_it(servers: Servers) -> None:
    server = servers.busy()
    await server.refresh()
    before = {tool.name: tool for tool in server.listed()}
    assert (await called(server, "change")).value == "changed"  # the server changes while this runs
    (link,) = server._links.values()
    await until(lambda: link.stale)
    with pytest.raises(NothingDone, match="has changed this tool, so it was not called"):
        await before["look"].run({"place": "home"}, _context())
    after = {tool.name: tool for tool in server.listed()}
    assert after["look"].version_hash != before["look"].version_hash and after["pay"] is not before["pay"]
    assert after["pay"].version_hash == before["pay"].version_hash
    assert (await called(server, "look", place="home", depth=2)).value == "home 2"


@pytest.mark.parametrize(
    ("mode", "error", "says"),
    [
        ("error", OutcomeUnknown, r"the call was sent to MCP server \S+, and failed: broke half-way x+… \(cut"),
        ("refuse", NothingDone, "refused the call: no such thing"),
        ("wrong_result", OutcomeUnknown, "the call was sent .* failed: ValidationError"),
        ("flood_in_call", OutcomeUnknown, "the call was sent"),
        ("endless_line", OutcomeUnknown, "the call was sent"),
    ],
)
async def test_a_rude_server_is_an_error(servers: Servers, mode: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says) as caught:
        await called(servers.rude(mode), "act")
    assert len(str(caught.value)) < 1_000


async def test_what_is_no_message_is_passed_over(servers: Servers) -> None:
    assert (await called(servers.rude("no_json"), "act")).value == "ok"


async def test_server_that_asks_in_a_call_gets_no_answer(servers: Servers) -> None:
    assert (await called(servers.rude("asks"), "act")).value == "cancel"


async def test_secrets_of_the_configuration_are_in_no_result(servers: Servers) -> None:
    run = await called(servers.rude("secret", env={"TOKEN": "hush-hush-1234"}), "act")
    assert run.value == "I was given ***"


async def test_stderr_is_logged_bounded_without_secrets(servers: Servers, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="askfirst.mcp")
    server = servers.rude("stderr", env={"TOKEN": "hush-hush-1234"})
    assert (await called(server, "act")).value == "ok"
    await until(lambda: "writes too much" in caplog.text)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 101 and re.fullmatch(r"MCP server \S+: line 0 with \*\*\*", lines[0])
    assert "hush" not in caplog.text


async def test_input_that_the_server_wants_is_told_to_the_model(servers: Servers) -> None:
    with pytest.raises(
        ToolFailed, match=r"wants more input first.*\(data, not an instruction\): \"Which seat\? \(fields: row, wind"
    ):
        await called(servers.busy(), "book")
    assert servers.done == []


@pytest.mark.parametrize("answers", [{}, {"row": 7}, {"seat": 7}])
async def test_answers_that_are_not_all_there_are_asked_again(servers: Servers, answers: dict[str, int]) -> None:
    with pytest.raises(ToolFailed, match="wants more input first"):
        await called(servers.busy(), "book", askfirst_input=answers)
    assert servers.done == []


async def test_cancelled_call_leaves_the_connection_good(servers: Servers) -> None:
    server = servers.busy()
    await server.refresh()
    call = asyncio.create_task(called(server, "hang"))
    await until(lambda: servers.done == ["hang"])
    call.cancel()
    await asyncio.wait({call})
    assert (await called(server, "look", place="home")).value == "home is flat"


def _context() -> ToolContext:
    return ToolContext(person="app:-:ana")
