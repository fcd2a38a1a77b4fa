"""Each error of ours survives pickling and copying, for any constructor."""

from __future__ import annotations

import copy
import pickle
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType
from typing import Any, TypeAlias

import click
import pytest
from telegram.error import TelegramError

import channels
import gateway
from channels import AskfirstError, MissingSetting, PlaceRefused, RateLimited, SendError, Unavailable
from channels.telegram.api import Moved, TooManyRequests
from gateway.agent.checking import CallFailed
from gateway.agent.interceptors import InterceptorFailed, Vetoed
from gateway.agent.journal import UnreadableStep
from gateway.channel_agent import LifespanFailed
from gateway.config.options import WrongOption
from gateway.engine.delivery.attempt_state import WrongAttempt
from gateway.mcp.link import NoConnection
from gateway.pending.transitions import WrongState
from gateway.privacy.conversations import UnknownConversation
from gateway.providers.base import ProviderConfigurationError, ProviderError, ProviderFault, TranscriptionFailed
from gateway.providers.lenient import FailedAnswer
from gateway.store.errors import MailboxFull
from gateway.tools.errors import (
    Problem,
    ToolBusy,
    ToolError,
    ToolExecutionError,
    ToolFailed,
    ToolTimeout,
    ToolValidationError,
)
from gateway.tools.function import GoesOn
from tests.pending.records import record

Make: TypeAlias = Callable[[type[Exception]], Exception]


def by(*args: Any, **kwargs: Any) -> Make:
    return lambda error_class: error_class(*args, **kwargs)


MADE: dict[type, Make] = {
    CallFailed: by("Tool 'pay' was not run", ToolError("no")),
    FailedAnswer: by({"message": "overloaded"}),
    GoesOn: by(Future()),
    InterceptorFailed: by("closed", "it returned bool, not None"),
    LifespanFailed: by(ConnectionRefusedError(111, "Connection refused")),
    MailboxFull: by("telegram:42", 50),
    MissingSetting: by("TELEGRAM_BOT_TOKEN", "copy it from @BotFather"),
    Moved: by("-10042"),
    TranscriptionFailed: by("the server answered 503"),
    NoConnection: by("the server is not there", is_paused=True),
    PlaceRefused: by("topic_closed", thread=True),
    ProviderFault: by("openai", "it raised RuntimeError"),
    ProviderConfigurationError: by("openai", "the key is missing", env_var="OPENAI_API_KEY"),
    ProviderError: by("openai", "429", retryable=True, rate_limited=True, retry_after_seconds=2.5),
    RateLimited: by("429", retry_after_seconds=2.5),
    SendError: by("blocked"),
    TelegramError: by("timed_out"),
    TooManyRequests: by(2.5),
    ToolBusy: by("pay", "invoice-7"),
    ToolFailed: by("exit 3", person="locked"),
    ToolExecutionError: by("pay", sqlite3.OperationalError("no such table: invoices")),
    ToolTimeout: by("pay", 2.5),
    ToolValidationError: by("pay", Problem("amount", "is missing", "Ask for it."), expected="amount: number"),
    Unavailable: by("401", mend=MissingSetting("TELEGRAM_BOT_TOKEN", "copy it from @BotFather")),
    UnreadableStep: by(4),
    Vetoed: by("We are closed."),
    WrongAttempt: by("sent", "repeated"),
    WrongOption: by("Agent", {"model": "should be a string"}),
    WrongState: by(record(), "be launched"),
    click.ClickException: by("the store is damaged"),
    # Python's own constructors:
    Exception: by("it was said twice", 2),
    ValueError: by("it was said twice", 2),
    RuntimeError: by("it was said twice", 2),
    UnknownConversation: by("Bot/sms:1:2"),
}
"""The class with the constructor -> a maker of an error."""
DESCRIBED: dict[type, dict[str, object]] = {GoesOn: {"call": "Future"}}
"""The values of an error after pickling in place of values that cannot be pickled."""


def all_modules() -> Iterator[ModuleType]:
    for package in (channels, gateway):
        for found in walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith(".__main__"):
                yield import_module(found.name)


def our_errors() -> list[type[Exception]]:
    ours = {module.__name__ for module in all_modules()}
    found, left = set(), [Exception]
    while left:
        below = left.pop().__subclasses__()
        found |= {error_class for error_class in below if error_class.__module__ in ours}
        left += below
    return sorted(found, key=lambda error_class: (error_class.__module__, error_class.__name__))


def made(error_class: type[Exception]) -> Exception:
    """Return an error of the class. KeyError: a new constructor without a row in MADE."""
    writes = next(each for each in error_class.__mro__ if "__init__" in vars(each))
    return MADE[writes](error_class)


def facts(value: object, **described: object) -> object:
    """Return the facts of an error, and of inner errors, that must survive. Errors do not compare by content."""
    if not isinstance(value, Exception):
        return value
    attributes = {name: facts(each) for name, each in (vars(value) | described).items()}
    return type(value), str(value), [facts(each) for each in value.args], attributes


class TheirError(Exception):
    """An error of a library that cannot be unpickled: the constructor takes more than the text."""

    def __init__(self, text: str, *, status: int) -> None:
        super().__init__(text)
        self.status = status


@pytest.mark.ledger("ERR-05")
@pytest.mark.parametrize("error_class", our_errors())
def test_an_error_survives_pickling_and_copying(error_class: type[Exception]) -> None:
    error = made(error_class)
    error.add_note("seen in the second try")

    copied = copy.copy(error)
    assert facts(copied) == facts(error)
    assert copied.__notes__ == ["seen in the second try"]
    loaded = pickle.loads(pickle.dumps(error))
    assert facts(loaded) == facts(error, **DESCRIBED.get(error_class, {}))
    assert loaded.__notes__ == ["seen in the second try"]


@pytest.mark.ledger("ERR-05")
def test_a_value_that_cannot_be_pickled_becomes_its_type() -> None:
    error = ToolExecutionError("pay", TheirError("secret", status=500))
    error.tool_lock = threading.Lock()  # type: ignore[attr-defined]

    pickled = pickle.dumps(error)
    loaded = pickle.loads(pickled)
    assert (str(loaded), loaded.tool_name) == (str(error), "pay")
    assert (loaded.error, loaded.tool_lock) == ("TheirError", "lock")
    assert "secret" not in repr(vars(loaded))
    assert copy.copy(error).error is error.error


@pytest.mark.ledger("ERR-05")
def test_an_argument_that_does_not_survive_keeps_its_text() -> None:
    error = ToolError(TheirError("the bank is closed", status=503))
    loaded = pickle.loads(pickle.dumps(error))
    assert (str(loaded), loaded.args) == ("the bank is closed", ("the bank is closed",))


@pytest.mark.ledger("ERR-05")
def test_a_value_unknown_to_the_loading_process(monkeypatch: pytest.MonkeyPatch) -> None:
    error = LifespanFailed(SendError("blocked"))
    pickled = pickle.dumps(error)
    monkeypatch.delattr(sys.modules[SendError.__module__], "SendError")
    loaded = pickle.loads(pickled)
    assert (str(loaded), loaded.error) == (str(error), "SendError")


@pytest.mark.ledger("ERR-05")
def test_errors_that_hold_each_other_are_pickled() -> None:
    first, second = AskfirstError("first"), AskfirstError("second")
    first.other, second.other = second, first  # type: ignore[attr-defined]
    assert str(pickle.loads(pickle.dumps(first)).other) == "second"


@pytest.mark.ledger("ERR-09")
def test_errors_of_a_tool_are_one_tree_with_data() -> None:
    late, wrong = ToolTimeout("pay", 2.0), ToolValidationError("pay", Problem("cents", "is missing"))
    assert (late.tool_name, late.seconds, wrong.problems[0].parameter) == ("pay", 2.0, "cents")
    assert issubclass(ToolTimeout, gateway.OutcomeUnknown) and issubclass(ToolBusy, gateway.NothingDone)
    assert all(
        issubclass(each, ToolError) for each in (gateway.OutcomeUnknown, gateway.NothingDone, ToolExecutionError)
    )
