"""selectools' pending stores: stashing, confirming by text, and the right to run. In memory and on Redis."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest

from gateway import emit_artifact
from gateway.pending import (
    DEFAULT_TTL_SECONDS,
    PendingAction,
    PendingActionExistsError,
    RegexConfirmParser,
    compute_args_digest,
)
from gateway.pending.seed.base import PendingStore
from gateway.pending.seed.state import state_of
from gateway.store.errors import Overloaded
from gateway.store.transaction import Transaction
from gateway.store.types import Key
from tests.pending.conftest import ARGS, NoYes, Place, Ran, not_in_memory, stashed, status
from tests.stored import edited

# ── stashing ──


@pytest.mark.ledger("PEND-13")
async def test_a_stash_gives_a_pending_record_that_was_shown_at_once(pending: PendingStore) -> None:
    action = await stashed(pending)
    assert (action.status, action.kind, action.preview) == ("pending", "delete_invoice", "Delete invoice INV-42")
    assert action.args_digest == compute_args_digest(ARGS)
    assert action.expires_at is not None and action.expires_at - action.requested_at == timedelta(seconds=60)
    assert DEFAULT_TTL_SECONDS == action.ttl_seconds == action.answer_window_seconds == 60.0
    assert (action.tool_version, action.shown_at) == ("adapter", action.requested_at)
    assert len(action.pending_action_id) == 32
    assert await pending.get("ana") == action


NO_NUMBERS = (-1.0, 0.0, float("inf"), float("nan"), 1e15)
NO_JSON = (datetime(2026, 1, 1, tzinfo=UTC), float("nan"), {1, 2}, b"x", 2**60)
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"executor": "delete"}, "executor of 'delete_invoice' must be a function, not a str"),
    ({"executor": lambda invoice_id: invoice_id}, "missing a required argument: 'invoice_id'"),
    *(({"ttl_seconds": seconds}, "ttl_seconds") for seconds in NO_NUMBERS),
    *(({"args": {"at": bad}}, "canonical JSON") for bad in NO_JSON),
    *(({"args": bad}, "args must be a mapping") for bad in ([], "", [("invoice_id", "INV-42")], "INV-42")),
    *(({name: 42}, "_id must be a text") for name in ("user", "channel_id", "conversation_id")),
    ({"user": b"ana"}, "_id must be a text"),
    ({"user": ""}, "user_id"),
    ({"kind": ""}, "kind"),
    ({"preview": " "}, "preview"),
]
"""Options of a stash, and the complaint."""


async def test_stash_with_invalid_options_is_refused(pending: PendingStore) -> None:
    async def complaint(wrong: dict[str, Any]) -> str:
        try:
            await stashed(pending, **wrong)
        except ValueError as error:
            return str(error)
        return "nothing"

    wrongly = [(wrong, said) for wrong, why in REFUSED if why not in (said := await complaint(wrong))]
    assert wrongly == []
    assert await pending.get("ana") is None


@pytest.mark.parametrize("executor", [functools.partial(max, key=len), str])
async def test_executor_without_readable_parameters_is_stashed(pending: PendingStore, executor: Any) -> None:
    await stashed(pending, executor)


async def test_options_that_make_no_sense_are_refused(place: Place) -> None:
    wrong: list[dict[str, Any]] = [
        {"default_ttl_seconds": 0},
        {"default_ttl_seconds": float("nan")},
        {"max_entries": 0},
    ]
    for options in wrong:
        with pytest.raises(ValueError, match=next(iter(options))):
            await place.open(**options)


@pytest.mark.ledger("PEND-07", "ERR-04")
async def test_second_stash_in_a_scope_is_refused_and_first_remains(pending: PendingStore, ran: Ran) -> None:
    first = await stashed(pending, ran.deletes("first"))
    with pytest.raises(PendingActionExistsError, match="delete_invoice"):
        await stashed(pending, ran.deletes("second"))
    assert issubclass(PendingActionExistsError, RuntimeError)
    outcome = await pending.pop_if_confirmed("ana", "yes")
    assert outcome is not None and outcome.record.pending_action_id == first.pending_action_id
    assert ran.done == ["first"]


@pytest.mark.ledger("PEND-08")
async def test_expired_stash_gives_way_to_a_new_one(place: Place, pending: PendingStore) -> None:
    await stashed(pending)
    await place.later(61)
    again = await stashed(pending)
    assert await pending.get("ana") == again


@pytest.mark.ledger("PEND-33")
async def test_of_many_stashes_at_once_one_wins(place: Place) -> None:
    stores = [await place.open(elsewhere=place.kind == "redis") for _ in range(2 if place.kind == "redis" else 1)]
    tried = await asyncio.gather(
        *(stashed(stores[number % len(stores)]) for number in range(8)), return_exceptions=True
    )
    won = [each for each in tried if isinstance(each, PendingAction)]
    assert len(won) == 1
    assert all(isinstance(each, PendingActionExistsError) for each in tried if each is not won[0])
    assert await stores[0].get("ana") == won[0]


@pytest.mark.ledger("PEND-03")
async def test_where_processes_share_the_store_arguments_are_required(place: Place, pending: PendingStore) -> None:
    """Another process reads the question from the arguments, and a factory makes the executor from the arguments."""
    if place.kind == "redis":
        with pytest.raises(ValueError, match=r"args must be given.*'delete_invoice'.*what is asked"):
            await stashed(pending, args=None)
        assert await pending.get("ana") is None
        assert (await stashed(pending, args={})).args == {}
    else:
        assert (await stashed(pending, args=None)).args == {}


@pytest.mark.ledger("PEND-11")
async def test_a_user_is_needed_by_every_call_that_does_something(pending: PendingStore) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: pending.get(""),
        lambda: pending.pop_if_confirmed("", "yes"),
        lambda: pending.pop_if_intent("", "confirm"),
        lambda: pending.tighten_ttl("", 1),
        lambda: pending.drop(""),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="user_id"):
            await call()
    assert await pending.pop_if_confirmed("", "hello there") is None


@pytest.mark.ledger("PEND-11")
async def test_different_scopes_never_share_an_action(pending: PendingStore) -> None:
    scopes: list[tuple[str, str | None, str | None]] = [
        ("ana", None, None),
        ("ana", "", None),
        ("ana", None, ""),
        ("ana", "whatsapp", None),
        ("ana", None, "whatsapp"),
        ("ana/", "whatsapp", None),
        ("ana//whatsapp", None, None),
        ("ana", "=", None),
        ("ana", "-", None),
        ("ánа", None, None),
    ]
    made = {
        scope: await stashed(pending, user=scope[0], channel_id=scope[1], conversation_id=scope[2]) for scope in scopes
    }
    for (user, channel, conversation), action in made.items():
        assert await pending.get(user, channel_id=channel, conversation_id=conversation) == action
    assert len({action.conversation for action in made.values()}) == len(scopes)


@pytest.mark.ledger("PEND-26")
async def test_full_store_refuses_and_evicts_no_action(place: Place, ran: Ran) -> None:
    pending = await place.open(max_entries=3)
    for user in ("ana", "bob", "eva"):
        await stashed(pending, ran.deletes(user), user)
    with pytest.raises(Overloaded, match="3 actions wait"):
        await stashed(pending, user="mallory")
    assert status(await pending.pop_if_confirmed("ana", "yes")) == "executed"
    await stashed(pending, user="zoe")
    await place.later(61)
    for user in ("ana", "bob", "eva"):
        await stashed(pending, user=user)


async def test_one_user_cannot_take_all_the_room(place: Place) -> None:
    pending = await place.open(max_entries=60)
    for number in range(50):
        await stashed(pending, user="mallory", conversation_id=str(number))
    with pytest.raises(Overloaded, match="50 actions of this user"):
        await stashed(pending, user="mallory", conversation_id="more")
    await stashed(pending, user="ana")


async def test_many_at_once_do_not_get_past_the_bound(place: Place) -> None:
    pending = await place.open(max_entries=60)
    tried = await asyncio.gather(
        *(stashed(pending, user="mallory", conversation_id=str(number)) for number in range(55)), return_exceptions=True
    )
    assert sum(isinstance(each, PendingAction) for each in tried) == 50
    assert all(isinstance(each, PendingAction | Overloaded) for each in tried)
    await stashed(pending, user="ana")


async def test_foreign_record_in_the_store_does_not_block_a_stash(place: Place, pending: PendingStore) -> None:
    store = await pending.open()
    await place.change(pending, Key(store.partition("seed:z//"), "seed/seed:z//"), 10**15 * 1000)
    await stashed(pending)


async def test_answer_during_the_stash_finds_its_executor(
    pending: PendingStore, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, stored, go_on = await pending.open(), asyncio.Event(), asyncio.Event()
    commit = store.commit

    async def slowly(transaction: Transaction) -> Any:
        try:
            return await commit(transaction)
        finally:
            stored.set()
            await go_on.wait()

    monkeypatch.setattr(store, "commit", slowly)
    stashing = asyncio.create_task(stashed(pending, ran.deletes()))
    await stored.wait()
    monkeypatch.setattr(store, "commit", commit)
    assert status(await pending.pop_if_confirmed("ana", "yes")) == "executed"
    go_on.set()
    await stashing
    assert ran.done == ["INV-42"]


async def test_record_names_the_parser_of_its_stash(place: Place) -> None:
    assert (await stashed(await place.open())).parser_version == RegexConfirmParser().version
    assert (await stashed(await place.open(parser=NoYes()), user="bob")).parser_version == "no-yes-1"


@pytest.mark.ledger("PEND-35")
async def test_drop_removes_and_returns_the_action(place: Place, pending: PendingStore, ran: Ran) -> None:
    action = await stashed(pending, ran.deletes())
    assert await pending.get("ana") == action
    dropped = await pending.drop("ana")
    assert dropped is not None and dropped.pending_action_id == action.pending_action_id
    assert dropped.status == "cancelled"
    assert await pending.get("ana") is None
    assert await pending.drop("ana") is None
    assert await pending.pop_if_confirmed("ana", "yes") is None
    assert ran.done == []
    await stashed(pending)
    await place.later(61)
    expired = await pending.drop("ana")
    assert expired is not None and expired.status == "cancelled"
    await stashed(pending)
    await place.later(59)
    assert await pending.get("ana") is not None
    await place.later(2)
    assert await pending.get("ana") is None


# ── confirming by text ──


@pytest.mark.ledger("PEND-16")
async def test_yes_of_another_user_or_place_does_not_count(pending: PendingStore, ran: Ran) -> None:
    action = await stashed(pending, ran.deletes(), channel_id="wa", conversation_id="c1")
    where: list[tuple[str, dict[str, Any]]] = [
        ("bob", {"channel_id": "wa", "conversation_id": "c1"}),
        ("ana", {"channel_id": "wa", "conversation_id": "c2"}),
        ("ana", {"channel_id": "wa"}),
        ("ana", {}),
    ]
    for user, ids in where:
        assert await pending.pop_if_confirmed(user, "yes", **ids) is None
        assert await pending.pop_if_intent(user, "confirm", **ids) is None
    assert await pending.get("ana", channel_id="wa", conversation_id="c1") == action
    assert ran.done == []


async def test_an_async_parser_is_heard_out(place: Place, ran: Ran) -> None:
    """The returned awaitable is no yes before the await."""

    class Later(RegexConfirmParser):
        async def is_confirm(self, message: str) -> bool:  # type: ignore[override]
            return message == "go"

    pending = await place.open(parser=Later())
    await stashed(pending, ran.deletes())
    assert await pending.pop_if_confirmed("ana", "no") is None
    assert ran.done == []
    assert status(await pending.pop_if_confirmed("ana", "go")) == "executed"


@pytest.mark.ledger("PEND-36", "PEND-45")
async def test_a_parser_that_is_given_alone_reads_the_text(place: Place, ran: Ran) -> None:
    """The parser reads every text, and no other word is a yes."""

    class Codeword:
        version = "codeword-1"
        heard: ClassVar[list[str]] = []

        def is_confirm(self, message: str) -> bool:
            self.heard.append(message)
            return message == "abracadabra"

        def is_cancel(self, message: str) -> bool:
            return False

    pending = await place.open(parser=Codeword())
    assert isinstance(pending.parser, Codeword)
    assert (await stashed(pending, ran.deletes())).parser_version == "codeword-1"
    assert await pending.pop_if_confirmed("ana", "yes") is None
    assert ran.done == []
    outcome = await pending.pop_if_confirmed("ana", "abracadabra")
    assert outcome is not None and (outcome.status, outcome.record.parser_version) == ("executed", "codeword-1")
    assert Codeword.heard == ["yes", "abracadabra"]


@pytest.mark.ledger("PEND-15", "PEND-22", "PEND-68")
async def test_yes_executes_once_and_returns_the_executors_result(pending: PendingStore, ran: Ran) -> None:
    """Other texts change no action."""
    action = await stashed(pending, ran.deletes())
    for text in ("", "hello", "no", "yes?", "yes, but tell me more first", "ok", "claro", "isso"):
        assert await pending.pop_if_confirmed("ana", text) is None
        assert await pending.get("ana") == action
    for count, text in enumerate(("yes", "Sim!", "sí", "yes please", "sim, por favor"), 1):
        outcome = await pending.pop_if_confirmed("ana", text, args_digest=action.args_digest)
        assert outcome is not None and outcome.executed
        assert (outcome.status, outcome.result) == ("executed", "INV-42 is deleted.")
        assert (outcome.record.status, outcome.record.outcome) == ("consumed", "INV-42 is deleted.")
        assert await pending.pop_if_confirmed("ana", text) is None
        assert await pending.get("ana") is None
        assert ran.done == ["INV-42"] * count
        await stashed(pending, ran.deletes())


@pytest.mark.ledger("PEND-19", "PEND-20", "PEND-23")
async def test_of_many_at_once_one_executes(place: Place, ran: Ran) -> None:
    stores = [await place.open(elsewhere=place.kind == "redis") for _ in range(4 if place.kind == "redis" else 1)]
    for each in stores:
        each.register_executor_factory("delete_invoice", ran.factory)
    await stashed(stores[0])
    outcomes = await asyncio.gather(
        *(stores[number % len(stores)].pop_if_confirmed("ana", "yes") for number in range(8))
    )
    assert sorted(map(str, map(status, outcomes))) == ["None"] * 7 + ["executed"]
    assert ran.done == ["INV-42"]


@pytest.mark.ledger("PEND-16", "PEND-17")
async def test_running_action_hides_from_twins_and_lets_the_next_in(place: Place, ran: Ran) -> None:
    pending, begun, go_on = await place.open(), asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        begun.set()
        await go_on.wait()
        return "slowly done"

    await stashed(pending, slow)
    running = asyncio.create_task(pending.pop_if_confirmed("ana", "yes"))
    await begun.wait()
    assert await pending.pop_if_confirmed("ana", "yes") is None
    assert await pending.get("ana") is None
    if place.kind == "redis":
        assert await (await place.open(elsewhere=True)).pop_if_confirmed("ana", "yes") is None
    await stashed(pending, ran.deletes("next"))
    go_on.set()
    outcome = await running
    assert outcome is not None and (outcome.status, outcome.result) == ("executed", "slowly done")
    assert status(await pending.pop_if_confirmed("ana", "yes")) == "executed"
    assert ran.done == ["next"]


@pytest.mark.ledger("PEND-16", "PEND-43")
async def test_late_yes_is_answered_as_expired(place: Place, pending: PendingStore, ran: Ran) -> None:
    await stashed(pending, ran.deletes())
    await place.later(61)
    assert await pending.get("ana") is None
    for _ in range(2):
        outcome = await pending.pop_if_confirmed("ana", "yes")
        assert outcome is not None
        assert (outcome.status, outcome.record.status, outcome.result) == ("expired", "expired", None)
    await place.later(601)
    assert await pending.pop_if_confirmed("ana", "yes") is None
    assert ran.done == []


@pytest.mark.ledger("PEND-16", "PEND-18", "PEND-25")
async def test_another_digest_disarms(pending: PendingStore, ran: Ran) -> None:
    await stashed(pending, ran.deletes())
    outcome = await pending.pop_if_confirmed("ana", "yes", args_digest=compute_args_digest({"invoice_id": "INV-43"}))
    assert outcome is not None
    assert (outcome.status, outcome.executed, outcome.result) == ("digest_mismatch", False, None)
    assert outcome.record.status == "cancelled"
    assert await pending.get("ana") is None
    assert await pending.pop_if_confirmed("ana", "yes") is None
    await stashed(pending)
    assert ran.done == []


@pytest.mark.ledger("PEND-15", "PEND-64")
async def test_another_id_neither_fires_nor_disarms(pending: PendingStore, ran: Ran) -> None:
    action = await stashed(pending, ran.deletes())
    outcome = await pending.pop_if_confirmed("ana", "yes", expected_id="5e" * 16)
    assert outcome is not None and (outcome.status, outcome.detail) == ("kind_mismatch", "id_mismatch")
    assert ran.done == []
    assert await pending.get("ana") == action
    assert status(await pending.pop_if_confirmed("ana", "yes", expected_id=action.pending_action_id)) == "executed"


async def test_wrong_id_beats_expired_and_expired_beats_wrong_digest(place: Place, pending: PendingStore) -> None:
    await stashed(pending)
    await place.later(61)
    assert await pending.pop_if_confirmed("ana", "yes", expected_id="5e" * 16) is None
    assert status(await pending.pop_if_confirmed("ana", "yes", args_digest="0" * 64)) == "expired"


# ── executors ──


@pytest.mark.ledger("PEND-24", "PEND-31")
async def test_without_closure_and_factory_it_is_disarmed(pending: PendingStore) -> None:
    await stashed(pending)
    outcome = await pending.pop_if_confirmed("ana", "yes")
    assert outcome is not None and (outcome.status, outcome.record.status) == ("no_executor", "cancelled")
    assert await pending.get("ana") is None
    await stashed(pending)


@pytest.mark.ledger("PEND-04")
async def test_factory_runs_from_the_frozen_record_before_a_closure(pending: PendingStore, ran: Ran) -> None:
    pending.register_executor_factory("delete_invoice", ran.factory)
    args = dict(ARGS)
    await stashed(pending, ran.deletes("closure"), args=args)
    args["invoice_id"] = "INV-43"
    assert status(await pending.pop_if_confirmed("ana", "yes")) == "executed"
    assert ran.done == ["INV-42"]


async def test_arguments_changed_after_the_stash_stay_frozen(place: Place) -> None:
    """A closure alone runs the closed-over values; the prompt, the record and a factory get the stashed values."""
    pending, seen = await place.open(), list[Any]()

    async def asked() -> dict[str, Any]:
        args: dict[str, Any] = {"invoices": ["INV-42"]}

        def closure() -> str:
            seen.append(list(args["invoices"]))
            return ""

        action = await stashed(pending, closure, args=args)
        args["invoices"].append("INV-43")
        action.args["invoices"].append("INV-44")  # type: ignore[union-attr]
        return args

    for _ in range(2):
        args = await asked()
        waiting = await pending.get("ana")
        assert waiting is not None and waiting.args == {"invoices": ["INV-42"]}
        outcome = await pending.pop_if_confirmed("ana", "yes", args_digest=compute_args_digest(waiting.args))
        assert outcome is not None and outcome.executed and outcome.record.args == {"invoices": ["INV-42"]}
        assert args == {"invoices": ["INV-42", "INV-43"]}
        pending.register_executor_factory("delete_invoice", lambda record: lambda: seen.append(record.args["invoices"]))
    assert seen == [["INV-42", "INV-43"], ["INV-42"]]


@pytest.mark.ledger("PEND-28", "PEND-29", "PEND-31")
@not_in_memory
async def test_another_process_needs_a_factory(place: Place, ran: Ran) -> None:
    await stashed(await place.open(), ran.deletes("closure"))
    other = await place.open(elsewhere=True)
    assert (await other.get("ana")) is not None
    assert status(await other.pop_if_confirmed("ana", "yes")) == "no_executor"
    await stashed(other, ran.deletes("closure"))
    third = await place.open(elsewhere=True)
    third.register_executor_factory("delete_invoice", ran.factory)
    assert status(await third.pop_if_confirmed("ana", "yes")) == "executed"
    assert ran.done == ["INV-42"]


async def test_a_factory_is_asked_only_when_it_is_to_run(place: Place, pending: PendingStore) -> None:
    asked: list[PendingAction] = []
    pending.register_executor_factory("delete_invoice", lambda record: asked.append(record) or str)  # type: ignore[func-returns-value]
    await stashed(pending)
    assert status(await pending.pop_if_confirmed("ana", "yes", args_digest="0" * 64)) == "digest_mismatch"
    await stashed(pending)
    await place.later(61)
    assert status(await pending.pop_if_confirmed("ana", "yes")) == "expired"
    assert asked == []
    await stashed(pending)
    assert status(await pending.pop_if_confirmed("ana", "yes")) == "executed"
    assert len(asked) == 1


async def test_a_factory_that_makes_no_executor_is_refused(pending: PendingStore) -> None:
    """The refusal comes at the registration if the fault is visible, else at the run; no executor runs."""

    async def later(record: PendingAction) -> Any:
        raise AssertionError

    class Later:
        async def __call__(self, record: PendingAction) -> Any:
            raise AssertionError

    for wrong in (later, Later(), functools.partial(later), None, "delete"):
        with pytest.raises(ValueError, match="factory of 'delete_invoice' must"):
            pending.register_executor_factory("delete_invoice", wrong)  # type: ignore[arg-type]
    for makes in (lambda record: later(record), lambda record: None):
        pending.register_executor_factory("delete_invoice", makes)  # type: ignore[arg-type]
        await stashed(pending)
        outcome = await pending.pop_if_confirmed("ana", "yes")
        assert outcome is not None and (outcome.status, outcome.record.outcome) == ("failed", "error: TypeError")


@pytest.mark.ledger("PEND-21")
@pytest.mark.parametrize("where", ["executor", "async executor", "factory"])
async def test_an_error_is_told_by_its_type_and_never_retried(place: Place, where: str) -> None:
    pending, tried = await place.open(), 0

    def fails(*_: Any) -> Any:
        nonlocal tried
        tried += 1
        raise RuntimeError("db down at 10.0.0.7")

    async def fails_later() -> str:
        fails()
        return ""

    if where == "factory":
        pending.register_executor_factory("delete_invoice", fails)
    await stashed(pending, fails_later if where.startswith("async") else fails)
    outcome = await pending.pop_if_confirmed("ana", "yes")
    assert outcome is not None
    assert (outcome.status, outcome.executed, outcome.result) == ("failed", False, None)
    assert (outcome.record.status, outcome.record.outcome) == ("consumed", "error: RuntimeError")
    assert "db down" not in repr(outcome)
    assert await pending.pop_if_confirmed("ana", "yes") is None
    assert tried == 1


async def test_an_error_that_leaves_it_open_is_unknown(pending: PendingStore) -> None:
    def breaks() -> str:
        raise ConnectionResetError("after the request went out")

    await stashed(pending, breaks)
    assert status(await pending.pop_if_confirmed("ana", "yes")) == "unknown"
    assert status(await pending.pop_if_confirmed("ana", "yes")) == "unknown"


async def test_executor_raising_stop_iteration_has_failed(pending: PendingStore) -> None:
    await stashed(pending, lambda: next(iter([])))
    outcome = await asyncio.wait_for(pending.pop_if_confirmed("ana", "yes"), 20)
    assert outcome is not None and (outcome.status, outcome.record.outcome) == ("failed", "error: RuntimeError")


async def test_caller_cancelled_after_the_execution_leaves_it_done(
    place: Place, pending: PendingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, writing, go_on, done = await pending.open(), asyncio.Event(), asyncio.Event(), False
    commit = store.commit

    async def slowly(transaction: Transaction) -> Any:
        if done:
            writing.set()
            await go_on.wait()
        return await commit(transaction)

    async def deletes() -> str:
        nonlocal done
        done = True
        return "it is deleted"

    await stashed(pending, deletes)
    monkeypatch.setattr(store, "commit", slowly)
    popping = asyncio.create_task(pending.pop_if_confirmed("ana", "yes"))
    await writing.wait()
    popping.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await popping
    assert await pending.pop_if_confirmed("ana", "yes") is None
    (stored,) = (await place.stored(pending, "action/")).values()
    assert '"state":"done"' in stored["body"]


class Stop(BaseException):
    """Ends more than one call."""


@pytest.mark.parametrize("error", [Stop, asyncio.CancelledError])
@pytest.mark.parametrize("where", ["sync", "async", "factory"])
async def test_error_ending_more_than_the_executor_leaves_unknown(
    place: Place, where: str, error: type[BaseException]
) -> None:
    pending, tried = await place.open(), 0

    def stops() -> str:
        nonlocal tried
        tried += 1
        raise error

    async def stops_later() -> str:
        return stops()

    if where == "factory":
        pending.register_executor_factory("delete_invoice", lambda _: stops)
    await stashed(pending, {"sync": stops, "async": stops_later}.get(where))
    with pytest.raises(error):
        await pending.pop_if_confirmed("ana", "yes")
    outcome = await pending.pop_if_confirmed("ana", "yes")
    assert outcome is not None and (outcome.status, outcome.record.state) == ("unknown", "unknown")
    assert outcome.record.outcome == ("error: Stop" if error is Stop else "stopped while running")
    assert tried == 1
    await stashed(pending)


async def test_cancelled_caller_leaves_unknown_until_the_thread_ends(place: Place) -> None:
    pending, begun, go_on = await place.open(), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow() -> str:
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(60)
        return "done after all"

    await stashed(pending, slow)
    popping = asyncio.create_task(pending.pop_if_confirmed("ana", "yes"))
    await begun.wait()
    popping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await popping
    outcome = await pending.pop_if_confirmed("ana", "yes")
    assert outcome is not None and (outcome.status, outcome.record.state) == ("unknown", "unknown")
    go_on.set()
    await pending.close()  # waits for it
    if place.kind == "redis":
        again = await place.open()
        assert await again.pop_if_confirmed("ana", "yes") is None
        assert '"done after all"' in str(await place.stored(again, "action/"))


@pytest.mark.ledger("PEND-04")
@pytest.mark.parametrize(
    "way",
    ["async", "returns a coroutine", "partial", "none", "number", "generator", "async generator", "pieces left over"],
)
@pytest.mark.parametrize("made", [False, True])
async def test_executor_of_any_kind_gives_its_result(place: Place, way: str, *, made: bool) -> None:
    async def deletes(what: str = "it") -> str:
        return f"deleted {what}"

    def piece_by_piece() -> Iterator[str]:
        yield "deleted "
        yield "all"

    async def piece_by_piece_later() -> AsyncIterator[str]:
        for piece in piece_by_piece():
            yield piece

    executors: dict[str, tuple[Callable[[], Any], str | None]] = {
        "async": (deletes, "deleted it"),
        "returns a coroutine": (lambda: deletes("this"), "deleted this"),
        "partial": (functools.partial(deletes, "that"), "deleted that"),
        "none": (lambda: None, None),
        "number": (lambda: {"deleted": 1}, '{"deleted": 1}'),
        "generator": (piece_by_piece, "deleted all"),
        "async generator": (piece_by_piece_later, "deleted all"),
        "pieces left over": (lambda: (piece for piece in ("deleted ", 2)), "deleted 2"),
    }
    executor, result = executors[way]
    pending = await place.open()
    if made:
        pending.register_executor_factory("delete_invoice", lambda _: executor)
    await stashed(pending, None if made else executor)
    outcome = await pending.pop_if_confirmed("ana", "yes")
    assert outcome is not None and (outcome.status, outcome.result) == ("executed", result)


@pytest.mark.ledger("PEND-67")
async def test_files_that_the_executor_emits_come_with_the_outcome(place: Place) -> None:
    def exports() -> str:
        emit_artifact(content=b"a,b", filename="export.csv")
        return "exported"

    pending = await place.open()
    await stashed(pending, exports)
    outcome = await pending.pop_if_confirmed("ana", "yes")
    assert outcome is not None and [each.filename for each in outcome.artifacts] == ["export.csv"]


# ── access to the store without the key ──


async def test_arguments_changed_in_the_store_are_not_run(place: Place, pending: PendingStore, ran: Ran) -> None:
    pending.register_executor_factory("delete_invoice", ran.factory)
    await stashed(pending)
    ((key, stored),) = (await place.stored(pending, "action/")).items()
    await place.change(pending, key, edited(stored, args={"invoice_id": "INV-43"}))
    outcome = await pending.pop_if_confirmed("ana", "yes")
    assert outcome is not None and (outcome.status, outcome.detail) == ("digest_mismatch", "tampered")
    assert outcome.record.status == "cancelled"
    assert await pending.get("ana") is None
    await stashed(pending)
    assert ran.done == []


async def test_a_record_that_is_none_any_more_is_told_and_not_run(
    place: Place, pending: PendingStore, ran: Ran, caplog: pytest.LogCaptureFixture
) -> None:
    pending.register_executor_factory("delete_invoice", ran.factory)
    await stashed(pending)
    ((key, _),) = (await place.stored(pending, "action/")).items()
    await place.change(pending, key, "{not json")
    with caplog.at_level(logging.ERROR):
        assert await pending.get("ana") is None
    assert "seal check failed" in caplog.text
    assert status(await pending.pop_if_confirmed("ana", "yes")) == "digest_mismatch"
    assert ran.done == []
    await stashed(pending)
    assert status(await pending.pop_if_confirmed("ana", "yes")) == "executed"


@pytest.mark.ledger("PEND-28")
async def test_no_code_is_stored(place: Place, pending: PendingStore, ran: Ran) -> None:
    await stashed(pending, ran.deletes())
    assert "deletes" not in repr(await place.stored(pending, ""))


@pytest.mark.ledger("PEND-29")
async def test_no_closure_is_kept_for_an_ended_action(place: Place, pending: PendingStore, ran: Ran) -> None:
    kept = state_of(await pending.open()).executors
    for answer in (
        lambda: pending.pop_if_confirmed("ana", "yes"),
        lambda: pending.pop_if_intent("ana", "cancel"),
        lambda: pending.drop("ana"),
        lambda: pending.pop_if_confirmed("ana", "yes", args_digest="0" * 64),
    ):
        await stashed(pending, ran.deletes())
        assert len(kept) == 1
        assert await answer() is not None
        assert kept == {}
    await stashed(pending, ran.deletes())
    await place.later(61)
    await stashed(pending, user="bob")
    assert kept == {}
