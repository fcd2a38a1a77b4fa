"""Running a confirmed executor in this process, under the fence of its launched record."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from channels.cancellable_threads import hand_over
from gateway.artifacts import Artifact, collecting
from gateway.observe import describe_error
from gateway.pending import transitions
from gateway.pending.actions import ConversationActions
from gateway.pending.seal import Keyring
from gateway.pending.seed_alive import ALIVE, alive, alive_put, is_alive
from gateway.pending.seed_home import Home, home_of
from gateway.pending.seed_outcome import ConfirmOutcome
from gateway.store.base import Conflict, Key, Store, StoreError, StoreUnavailable, Transaction
from gateway.tools import OutcomeUnknown, leaves_open, serialise
from gateway.tools.executor import Executor, called
from gateway.tools.pending_action import PendingAction

__all__ = ["end_dead", "run", "sweep"]

log = logging.getLogger("askfirst.pending")

_BEAT_SECONDS = 2.0
_WAITS_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Between attempts to write down an end at a store that does not answer."""
DIED = "the process that ran it died"


@dataclass(frozen=True, slots=True)
class _End:
    state: Literal["done", "failed", "unknown"]
    outcome: str | None
    artifacts: tuple[Artifact, ...] = ()


async def end_dead(store: Store, home: Home, actions: ConversationActions) -> None:
    """End the actions as unknown whose process died while it ran them; nothing is written yet.

    An embedded store has one process, this one. Of a shared one, whoever runs an action says so again and again.
    """
    going = [action for action in actions.by_id.values() if action.state == "running"]
    suspects = [action for action in going if not home.running[action.pending_action_id]]
    if suspects and store.shared:
        keys = {each.pending_action_id: Key(actions.partition, alive(each.pending_action_id)) for each in suspects}
        seen = await store.get(list(keys.values()))
        suspects = [each for each in suspects if not is_alive(seen[keys[each.pending_action_id]].value, seen.now)]
    for action in suspects:
        log.error("action %s (%s) may or may not have happened: %s", action.pending_action_id, action.kind, DIED)
        died = transitions.finish(action, action.fence, "unknown", DIED, actions.now)
        actions.put(died, "finished", None, actions.now)


async def sweep(store: Store, keyring: Keyring) -> list[PendingAction]:
    """End as unknown all actions of a store whose process died while it ran them, and return them.

    For whoever serves the store: nobody may ever ask for their scopes again.
    """
    home, ended = home_of(store), list[PendingAction]()
    home.keyring = home.keyring or keyring
    for key, record in await store.scan(ALIVE):
        conversation = record.value.get("conversation") if isinstance(record.value, dict) else None
        if not isinstance(conversation, str) or store.partition(conversation) != key.partition:
            continue
        actions = await home.load(store, conversation)
        await end_dead(store, home, actions)
        with contextlib.suppress(Conflict):  # somebody else sees to it
            await home.write(store, actions)
            ended += [action for action in actions.changes.actions.values() if action.state == "unknown"]
    return ended


async def run(
    store: Store, home: Home, actions: ConversationActions, action: PendingAction, executor: Executor
) -> ConfirmOutcome:
    """Write that an action is launched, run it to its end, and write that down; return what it came to.

    Raises Conflict when somebody else was faster: nothing ran. Raises what ends more than the executor (CancelledError,
    KeyboardInterrupt) once the action is noted as unknown. A sync executor goes on in its thread then, and how it ends
    is written down later.
    """
    running = asyncio.ensure_future(_run(store, home, actions, action, executor))
    home.start(running)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        running.cancel()
        await asyncio.wait([running])
        raise


async def _run(
    store: Store, home: Home, actions: ConversationActions, action: PendingAction, executor: Executor
) -> ConfirmOutcome:
    with _said_to_run(store, home, action), collecting() as emitted:
        await _launch(store, home, actions, action)
        try:
            end = _End("done", _text(await _called(executor, _follow(store, home, action))), tuple(emitted))
        except asyncio.CancelledError:
            await _finish(store, home, action, _End("unknown", "stopped while running"))
            raise
        except Exception as error:  # noqa: BLE001 - an author's executor may raise anything
            end = _ended_by(action, error)
        except BaseException as error:
            await _finish(store, home, action, _End("unknown", f"error: {type(error).__name__}"))
            raise
        record = await _finish(store, home, action, end)
    status: Literal["executed", "failed", "unknown"] = "executed" if end.state == "done" else end.state
    return ConfirmOutcome(status, record, end.outcome if end.state == "done" else None, artifacts=end.artifacts)


async def _launch(store: Store, home: Home, actions: ConversationActions, action: PendingAction) -> None:
    launching = asyncio.ensure_future(home.write(store, actions))
    try:
        await asyncio.shield(launching)
    except asyncio.CancelledError:
        await asyncio.wait([launching])
        if launching.exception() is None:
            await _finish(store, home, action, _End("failed", "stopped before it began"))
        raise


def _ended_by(action: PendingAction, error: Exception) -> _End:
    log.warning("action %s (%s): %s", action.pending_action_id, action.kind, describe_error(error))
    in_doubt = isinstance(error, OutcomeUnknown) or leaves_open(error)
    return _End("unknown" if in_doubt else "failed", f"error: {type(error).__name__}")


def _text(result: object) -> str | None:
    return None if result is None else serialise(result)


async def _called(executor: Executor, on_late: Callable[[asyncio.Future[Any]], None]) -> Any:
    """Return what the executor returns: an async one on the loop, any other in a thread."""
    if inspect.iscoroutinefunction(executor):
        return await executor()
    call = hand_over(partial(_sync, executor))
    try:
        result = await asyncio.shield(asyncio.wrap_future(call))
    except asyncio.CancelledError:
        if not call.cancel() and not call.done():
            on_late(asyncio.wrap_future(call))
        raise
    return await result if inspect.isawaitable(result) else result


def _sync(executor: Executor) -> Any:
    try:
        return called(executor)
    except StopIteration as error:  # no future takes it: whoever waits would wait for ever
        raise RuntimeError("the executor raised StopIteration") from error


def _follow(store: Store, home: Home, action: PendingAction) -> Callable[[asyncio.Future[Any]], None]:
    """Return what has an end written down that comes after its caller was cancelled."""

    async def follow(call: asyncio.Future[Any]) -> None:
        with _said_to_run(store, home, action):
            try:
                result = await call
            except Exception as error:  # noqa: BLE001
                end = _ended_by(action, error)
            else:
                if inspect.iscoroutine(result):
                    result.close()
                    return
                end = _End("done", _text(result))
            log.warning("action %s (%s) has ended late: %s", action.pending_action_id, action.kind, end.state)
            await _finish(store, home, action, end)

    return lambda call: home.start(asyncio.ensure_future(follow(call)))


@contextmanager
def _said_to_run(store: Store, home: Home, action: PendingAction) -> Iterator[None]:
    """Have it known while the body runs that this process runs the action."""
    home.running[action.pending_action_id] += 1
    beating = asyncio.ensure_future(_beat(store, action)) if store.shared else None
    try:
        yield
    finally:
        if beating is not None:
            beating.cancel()
        home.running[action.pending_action_id] -= 1
        home.running += Counter()  # without what has come to nothing


async def _beat(store: Store, action: PendingAction) -> None:
    while True:
        await asyncio.sleep(_BEAT_SECONDS)
        with contextlib.suppress(StoreError):
            partition = store.partition(action.conversation)
            puts = {alive(action.pending_action_id): alive_put(action, await store.now())}
            await store.commit(Transaction(partition=partition, puts=puts))


async def _finish(store: Store, home: Home, action: PendingAction, end: _End) -> PendingAction:
    """Write down how it ended, to the end also when the caller is cancelled, and return the record as it is then."""
    writing = asyncio.ensure_future(_write_end(store, home, action, end))
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait([writing])
        raise


async def _write_end(store: Store, home: Home, action: PendingAction, end: _End) -> PendingAction:
    """Write down how it ended, and return the record as it is then; a store that is away is waited for."""
    action_id, waits = action.pending_action_id, iter(_WAITS_SECONDS)
    while True:
        try:
            actions = await home.load(store, action.conversation, action_id)
            found = actions.get(action_id)
            if found is None:
                return action
            try:
                ended = transitions.finish(found, action.fence, end.state, end.outcome, actions.now)
            except transitions.WrongState:  # written down by an attempt whose answer was lost
                return found
            actions.put(ended, "finished", None, actions.now)
            await home.write(store, actions)
        except Conflict:
            continue
        except StoreUnavailable:
            if (wait := next(waits, None)) is None:
                log.error("action %s (%s) is %s, which cannot be written down", action_id, action.kind, end.state)
                at = action.launched_at or action.requested_at
                return transitions.finish(action, action.fence, end.state, end.outcome, at)
            await asyncio.sleep(wait)
        else:
            return actions.by_id[action_id]
