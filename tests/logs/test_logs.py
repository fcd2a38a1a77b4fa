"""The allowed and the forbidden contents of a log line."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import logs
from gateway.logs import configure_logging, describe_error, redact

TOKEN = "123456:AAbbCCddEE+ff/gg"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def root_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers = root.handlers[:]
    levels = {name: logging.getLogger(name).level for name in ("root", *logging.root.manager.loggerDict)}
    yield
    root.handlers[:] = handlers
    for name in list(logging.root.manager.loggerDict):
        logging.getLogger(name).setLevel(levels.get(name, logging.NOTSET))
    root.setLevel(levels["root"])


def logged(stream: io.StringIO, message: str, **extra: object) -> str:
    configure_logging("info", secrets=[TOKEN, "ab"], stream=stream)
    logging.getLogger("gateway.test").info(message, extra=extra)
    return stream.getvalue()


def test_a_line_is_json_with_its_fields() -> None:
    line = logged(io.StringIO(), "stored", channel="telegram", count=3, ids=["a"], more={"b": None})
    facts = json.loads(line)
    assert (facts["message"], facts["level"], facts["logger"]) == ("stored", "INFO", "gateway.test")
    assert (facts["channel"], facts["count"], facts["ids"], facts["more"]) == ("telegram", 3, ["a"], {"b": None})
    assert facts["at"].endswith("+00:00")


def test_line_on_a_terminal_is_plain() -> None:
    line = logged(Terminal(), "stored", channel="telegram")
    assert line.endswith("INFO    gateway.test: stored channel=telegram\n")


@given(text=st.text())
@pytest.mark.parametrize("stream_type", [io.StringIO, Terminal])
def test_one_record_is_one_line_that_no_terminal_acts_on(stream_type: type[io.StringIO], text: str) -> None:
    line = logged(stream_type(), "{} %s \x1b[2J\r\n\u2028\u202e".replace("%", "%%") + text.replace("%", "%%"), who=text)
    assert line.endswith("\n")
    assert line[:-1].isprintable()


@pytest.mark.parametrize("stream_type", [io.StringIO, Terminal])
def test_secrets_are_nowhere_in_a_line(stream_type: type[io.StringIO]) -> None:
    line = logged(
        stream_type(),
        f"POST https://api.telegram.org/bot{TOKEN}/sendMessage",
        url="https://x.example/?t=123456%3AAAbbCCddEE%2Bff%2Fgg",
        deep=[{"token": TOKEN}],
    )
    assert "AAbbCC" not in line
    assert line.count("***") == 3


def test_a_short_secret_does_not_blot_out_words() -> None:
    assert redact(["ab"])("about") == "about"


def test_error_is_logged_as_type_and_place_without_its_text() -> None:
    stream = io.StringIO()
    configure_logging("INFO", stream=stream)
    with pytest.raises(ValueError, match="hunter2") as caught:
        try:
            dict[str, str]()["password=hunter2"]
        except KeyError as error:
            raise ValueError("password=hunter2") from error
    logging.getLogger("x").error("failed", exc_info=caught.value)

    assert "hunter2" not in stream.getvalue()
    assert stream.getvalue().count("\n") == 1
    described = json.loads(stream.getvalue())["error"]
    assert described == describe_error(caught.value)
    assert described.startswith("ValueError (test_logs.py:")
    assert " from KeyError (test_logs.py:" in described


async def test_asyncio_log_of_a_failed_task_has_no_error_text() -> None:
    stream = io.StringIO()
    configure_logging("INFO", stream=stream)

    async def charge() -> None:
        raise ValueError("ana@example.org owes 12")

    def remind(whom: str) -> None:
        raise ValueError(f"{whom} owes 12")

    loop = asyncio.get_running_loop()
    failed = asyncio.ensure_future(charge())
    await asyncio.wait([failed])
    del failed
    gc.collect()
    loop.call_soon(remind, "ana@example.org")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task, callback = map(json.loads, stream.getvalue().splitlines())
    assert task["message"] == "Task exception was never retrieved"
    assert re.fullmatch(r"ValueError \(test_logs\.py:\d+ charge\)", task["error"])
    assert callback["message"].startswith("Exception in callback ")
    assert re.fullmatch(r"ValueError \(test_logs\.py:\d+ remind\)", callback["error"])
    assert "ana@example.org" not in stream.getvalue()


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="LOUD"):
        configure_logging("loud", stream=io.StringIO())


@pytest.mark.parametrize(
    "library", ["anthropic", "openai._base_client", "httpx", "telegram.Bot", "slack_sdk", "asyncio"]
)
def test_a_librarys_requests_are_not_logged_and_its_warnings_are(library: str) -> None:
    stream = io.StringIO()
    configure_logging("debug", stream=stream)
    logging.getLogger(library).debug("Request: what a person wrote")
    logging.getLogger(library).info("POST https://api.example/bot123:TOKEN/send")
    assert stream.getvalue() == ""
    logging.getLogger(library).warning("slow")
    logging.getLogger("an.authors.own").debug("here")
    assert stream.getvalue().count("\n") == 2
    configure_logging("error", stream=stream)
    logging.getLogger(library).warning("slow")
    assert stream.getvalue().count("\n") == 2


class Writes(io.StringIO):
    """The lines of each write."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[list[str]] = []
        self.written = asyncio.Event()

    def write(self, text: str) -> int:
        self.held.append([json.loads(line)["message"] for line in text.splitlines()])
        self.written.set()
        return len(text)


def writes(monkeypatch: pytest.MonkeyPatch, gather_seconds: float = 60.0) -> tuple[Writes, logging.Logger]:
    """By default, lines soon after a write wait for longer than a test takes."""
    monkeypatch.setattr(logs, "GATHER_SECONDS", gather_seconds)
    stream = Writes()
    configure_logging("info", stream=stream)
    return stream, logging.getLogger("gateway.test")


async def test_the_lines_of_one_round_of_a_loop_are_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, log = writes(monkeypatch)
    log.info("1")
    log.info("2")
    assert stream.held == []
    await asyncio.sleep(0)
    assert stream.held == [["1", "2"]]


async def test_lines_in_quick_succession_are_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, log = writes(monkeypatch, 1.0)
    log.info("1")
    await stream.written.wait()
    stream.written.clear()
    for number in "234":
        log.info(number)
        await asyncio.sleep(0)
    await stream.written.wait()
    assert stream.held == [["1"], ["2", "3", "4"]]


async def test_a_line_that_comes_alone_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, log = writes(monkeypatch, 0.0)
    for number in "123":
        log.info(number)
        await asyncio.sleep(0)
    assert stream.held == [["1"], ["2"], ["3"]]


async def test_warning_and_earlier_lines_are_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, log = writes(monkeypatch)
    log.warning("1")
    log.info("2")
    log.info("3")
    log.warning("4")
    log.info("5")
    log.error("6")
    assert stream.held == [["1"], ["2", "3", "4"], ["5", "6"]]


async def test_line_from_another_thread_flushes_the_waiting_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, log = writes(monkeypatch)
    log.warning("1")
    log.info("2")
    await asyncio.to_thread(log.info, "3")
    assert stream.held == [["1"], ["2", "3"]]


async def test_no_more_than_so_many_lines_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, log = writes(monkeypatch)
    log.warning("first")
    for number in range(1_200):
        log.info("%s", number)
    held = [len(lines) for lines in stream.held]
    assert sum(held) >= 1_000
    assert max(held) <= 500
    assert [told for lines in stream.held[1:] for told in lines] == [str(number) for number in range(sum(held) - 1)]


async def test_unread_log_does_not_block_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A paused terminal, or a stalled log driver."""
    monkeypatch.setattr(logs, "_AGAIN_SECONDS", 0.001)
    log, reader, written = logging.getLogger("gateway.test"), *os.pipe()
    os.set_blocking(reader, False)
    with os.fdopen(written, "w") as stream, os.fdopen(reader, "rb", buffering=0) as unread:
        configure_logging("info", stream=stream)
        for number in range(20_000):
            log.info("%s", number)
            if number % 100 == 0:
                await asyncio.sleep(0)
        told = b""
        while not told.endswith(b'nobody read them"}\n'):
            told += unread.read() or b""
            await asyncio.sleep(0)
        log.warning("on it goes")
        assert b"on it goes" in unread.read()
    *numbers, lost = [json.loads(line)["message"] for line in told.splitlines()]
    assert numbers == [str(number) for number in range(len(numbers))]
    assert len(numbers) > 5_000
    assert lost == f"{20_000 - len(numbers)} lines are lost: nobody read them"


async def test_line_keeps_its_values_from_the_time_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, log = writes(monkeypatch)
    parts = ["a"]
    log.info("sent %s", parts)
    parts.append("b")
    log.warning("end")
    assert stream.held == [["sent ['a']", "end"]]


def test_lines_left_by_a_loop_are_written_with_the_next_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, log = writes(monkeypatch)

    async def last_words(words: str) -> None:
        log.info(words)

    log.info("1")
    asyncio.run(last_words("2"))
    assert stream.held == [["1"]]
    asyncio.run(last_words("3"))
    log.info("4")
    assert stream.held == [["1"], ["2", "3", "4"]]


def test_lines_of_a_loop_that_ended_are_written_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream, log = writes(monkeypatch, 0.0)
    loop = asyncio.new_event_loop()
    loop.call_soon(log.info, "last words")
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()

    async def another() -> None:
        log.info("in another loop")
        await asyncio.sleep(0)
        assert stream.held == [["last words", "in another loop"]]

    asyncio.run(another())


@pytest.mark.parametrize(
    "end",
    ["", "raise SystemExit(1)", "raise RuntimeError('not caught')", "from gateway.cli.process import leave; leave()"],
)
def test_a_process_that_ends_has_written_all_it_told(end: str) -> None:
    program = f"""
import asyncio, logging
from gateway import logs
from gateway.logs import configure_logging

async def main():
    logging.warning("first")
    logging.info("last words")
    {end}

logs.GATHER_SECONDS = 60.0
configure_logging("info")
asyncio.run(main())
"""
    run = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=False)
    told = [json.loads(line)["message"] for line in run.stderr.splitlines() if line.startswith("{")]
    assert told == ["first", "last words"]


def _odd_error() -> ValueError:
    error = ValueError("its text is left out")
    error.__cause__ = KeyError("x")
    return error


class Word(str):
    pass


class Count(int):
    pass


_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.builds(Word, st.text()),
    st.builds(Count, st.integers()),
    st.sampled_from([TOKEN, datetime(2026, 1, 1, tzinfo=UTC), b"bytes", frozenset("x"), logging.INFO]),
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner), st.lists(inner).map(tuple), st.dictionaries(st.one_of(st.text(), st.integers()), inner)
    ),
    max_leaves=8,
)


_TAKEN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
"""Python's own fields, forbidden as extras."""


@given(
    fields=st.dictionaries(
        st.one_of(st.sampled_from(["at", "level", "logger", "error", "event"]), st.text(min_size=1)), _VALUES
    ),
    message=st.text(),
    error=st.sampled_from([None, _odd_error()]),
)
def test_line_is_the_json_document_of_its_facts(
    fields: dict[str, object], message: str, error: Exception | None
) -> None:
    fields = {key: value for key, value in fields.items() if key not in _TAKEN}
    stream = io.StringIO()
    configure_logging("info", stream=stream)
    log = logging.getLogger("gateway.test")
    record = log.makeRecord(log.name, logging.INFO, "", 0, message, (), None, extra=fields)
    record.created = 1_772_373_779.0625
    if error is not None:
        record.exc_info = (type(error), error, None)
    log.handle(record)
    facts: dict[str, object] = {
        "at": "2026-03-01T14:02:59.062+00:00",
        "level": "INFO",
        "logger": "gateway.test",
        "message": message,
    }
    facts |= fields | ({} if error is None else {"error": describe_error(error)})
    assert stream.getvalue() == json.dumps(facts, default=str) + "\n"


def test_forked_child_does_not_write_its_parents_waiting_lines() -> None:
    """A tool may bring forked workers."""
    stream = io.StringIO()
    configure_logging("info", stream=stream)

    def in_a_round() -> int:
        log = logging.getLogger("gateway.test")
        log.info("the parent's")
        if (child := os.fork()) == 0:
            log.warning("the child's")
            os._exit(stream.getvalue().count("\n"))
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    async def round_() -> int:
        return in_a_round()

    assert asyncio.run(round_()) == 1, "lines that the child wrote"
    assert stream.getvalue().count("\n") == 1


def test_closed_stream_raises_no_error() -> None:
    stream = io.StringIO()
    configure_logging("info", stream=stream)
    stream.close()
    logging.getLogger("gateway.test").warning("nobody reads it")
