"""What a log line may hold, and what never."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.observe import configure_logging, describe_error, redact

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


def test_on_a_terminal_it_is_plain() -> None:
    line = logged(Terminal(), "stored", channel="telegram")
    assert line.endswith("INFO    gateway.test: stored channel=telegram\n")


@given(text=st.text())
@pytest.mark.parametrize("stream_type", [io.StringIO, Terminal])
def test_one_record_is_one_line_that_no_terminal_acts_on(stream_type: type[io.StringIO], text: str) -> None:
    line = logged(stream_type(), "{} %s \x1b[2J\r\n\u2028\u202e".replace("%", "%%") + text.replace("%", "%%"), who=text)
    assert line.endswith("\n")
    assert line[:-1].isprintable()


@pytest.mark.parametrize("stream_type", [io.StringIO, Terminal])
def test_secrets_are_nowhere_in_it(stream_type: type[io.StringIO]) -> None:
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


def test_of_an_error_its_type_and_place_are_told_and_never_its_text() -> None:
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
    """What each write held."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[list[str]] = []

    def write(self, text: str) -> int:
        self.held.append([json.loads(line)["message"] for line in text.splitlines()])
        return len(text)


def test_the_lines_of_one_round_of_a_loop_are_one_write_and_none_is_lost() -> None:
    stream = Writes()
    configure_logging("info", stream=stream)
    log = logging.getLogger("gateway.test")

    async def rounds() -> None:
        log.info("1")
        log.info("2")
        await asyncio.sleep(0)
        assert stream.held == [["1", "2"]]
        log.info("3")
        log.warning("4")
        assert stream.held[1:] == [["3", "4"]], "bad news is not kept back"

    asyncio.run(rounds())
    log.info("outside")
    assert stream.held[-1] == ["outside"]

    def last_words() -> None:
        log.info("last words")

    loop = asyncio.new_event_loop()
    loop.call_soon(last_words)
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    asyncio.run(rounds_of(log))
    assert stream.held[-1] == ["last words", "in another loop"]


async def rounds_of(log: logging.Logger) -> None:
    log.info("in another loop")
    await asyncio.sleep(0)


def test_what_a_process_has_yet_to_write_its_child_does_not_write_too() -> None:
    """A tool may bring workers of its own, which are forked."""
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


def test_a_stream_that_is_gone_ends_nothing() -> None:
    stream = io.StringIO()
    configure_logging("info", stream=stream)
    stream.close()
    logging.getLogger("gateway.test").warning("nobody reads it")
