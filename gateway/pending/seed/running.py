"""Running a confirmed executor in this process, under the fence of the launched record."""

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
from gateway.logs import describe_error
from gateway.pending import transitions
from gateway.pending.actions import ConversationActions
from gateway.pending.seal import Keyring
from gateway.pending.seed.outcome import ConfirmOutcome
from gateway.pending.seed.state import AdapterState, heartbeat_put, is_alive, state_of
from gateway.store.base import Store
from gateway.store.errors import Conflict, StoreError, StoreUnavailable
from gateway.store.transaction import Transaction
from gateway.store.types import Key
from gateway.stored import keys
from gateway.tools import OutcomeUnknown, leaves_open, serialise
from gateway.tools.pending_action import PendingAction
from gateway.tools.stash import Executor, called

log = logging.getLogger("askfirst.pending")

_BEAT_SECONDS = 2.0
_WAITS_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)
"""The waits between attempts to write the outcome while the store does not answer."""
DIED = "the process that ran it died"


@dataclass(frozen=True, slots=True)
class _End:
    """The outcome of an executor, as written into the record."""

    state: Literal["done", "failed", "unknown"]
    outcome: str | None
    artifacts: tuple[Artifact, ...] = ()


async def end_dead(store: Store, state: AdapterState, actions: ConversationActions) -> None:
    """End as unknown the running actions of dead processes; the caller writes the change.

    An embedded store has only this process. On a shared store, the process running an action writes heartbeats.
    """
    going = [action for action in actions.by_id.values() if action.state == "running"]
    suspects = [action for action in going if not state.running[action.pending_action_id]]
    if suspects and store.shared:
        names = {each.pending_action_id: keys.heartbeat(each.pending_action_id) for each in suspects}
        beats = {action_id: Key(actions.partition, name) for action_id, name in names.items()}
        found = await store.get(list(beats.values()))
        suspects = [each for each in suspects if not is_alive(found[beats[each.pending_action_id]].value, found.now)]
    for action in suspects:
        log.error("action %s (%s) may or may not have happened: %s", action.pending_action_id, action.kind, DIED)
        died = transitions.finish(action, action.fence, "unknown", DIED, actions.now)
        actions.put(died, "finished", None, actions.now)


async def sweep_executors(store: Store, keyring: Keyring) -> list[PendingAction]:
    """End as unknown all running actions of dead processes in a store, and return these actions.

    The process serving the store calls this function, because the scopes of these actions may never be used again.
    """
    state, ended = state_of(store), list[PendingAction]()
    state.keyring = state.keyring or keyring
    for key, record in await store.scan(keys.heartbeat("")):
        conversation = record.value.get("conversation") if isinstance(record.value, dict) else None
        if not isinstance(conversation, str) or store.partition(conversation) != key.partition:
            continue
        actions = await state.load(store, conversation)
        await end_dead(store, state, actions)
        with contextlib.suppress(Conflict):  # another process has ended them
            await state.write(store, actions)
            ended += [action for action in actions.changes.actions.values() if action.state == "unknown"]
    return ended


async def run(
    store: Store, state: AdapterState, actions: ConversationActions, action: PendingAction, executor: Executor
) -> ConfirmOutcome:
    """Commit the launch of an action, run the executor to the end, commit the end, and return the outcome.

    Raises Conflict when another process changed the records first; the executor did not run. Raises CancelledError and
    KeyboardInterrupt once the action is recorded as unknown. A sync executor then runs on in its thread, and its end is
    recorded later.
    """
    running = asyncio.ensure_future(_run(store, state, actions, action, executor))
    state.start(running)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        running.cancel()
        await asyncio.wait([running])
        raise


async def _run(
    store: Store, state: AdapterState, actions: ConversationActions, action: PendingAction, executor: Executor
) -> ConfirmOutcome:
    with _said_to_run(store, state, action), collecting() as emitted:
        await _launch(store, state, actions, action)
        try:
            end = _End("done", _text(await _called(executor, _follow(store, state, action))), tuple(emitted))
        except asyncio.CancelledError:
            await _finish(store, state, action, _End("unknown", "stopped while running"))
            raise
        except Exception as error:  # noqa: BLE001 - an author's executor may raise anything
            end = _ended_by(action, error)
        except BaseException as error:
            await _finish(store, state, action, _End("unknown", f"error: {type(error).__name__}"))
            raise
        record = await _finish(store, state, action, end)
    status: Literal["executed", "failed", "unknown"] = "executed" if end.state == "done" else end.state
    return ConfirmOutcome(status, record, end.outcome if end.state == "done" else None, artifacts=end.artifacts)


async def _launch(store: Store, state: AdapterState, actions: ConversationActions, action: PendingAction) -> None:
    launching = asyncio.ensure_future(state.write(store, actions))
    try:
        await asyncio.shield(launching)
    except asyncio.CancelledError:
        await asyncio.wait([launching])
        if launching.exception() is None:
            await _finish(store, state, action, _End("failed", "stopped before it began"))
        raise


def _ended_by(action: PendingAction, error: Exception) -> _End:
    log.warning("action %s (%s): %s", action.pending_action_id, action.kind, describe_error(error))
    in_doubt = isinstance(error, OutcomeUnknown) or leaves_open(error)
    return _End("unknown" if in_doubt else "failed", f"error: {type(error).__name__}")


def _text(result: object) -> str | None:
    return None if result is None else serialise(result)


async def _called(executor: Executor, on_late: Callable[[asyncio.Future[Any]], None]) -> Any:
    """Return the executor's result. An async executor runs on the event loop, any other in a thread.

    `on_late` receives the call if still running in its thread after a cancellation.
    """
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
    except StopIteration as error:  # a future cannot hold it, and the caller would wait for ever
        raise RuntimeError("the executor raised StopIteration") from error


def _follow(store: Store, state: AdapterState, action: PendingAction) -> Callable[[asyncio.Future[Any]], None]:
    """Return a callback to record the end of a call after its caller was cancelled."""

    async def follow(call: asyncio.Future[Any]) -> None:
        with _said_to_run(store, state, action):
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
            await _finish(store, state, action, end)

    return lambda call: state.start(asyncio.ensure_future(follow(call)))


@contextmanager
def _said_to_run(store: Store, state: AdapterState, action: PendingAction) -> Iterator[None]:
    """Count the action as running in this process, and write heartbeats on a shared store, while the body runs."""
    state.running[action.pending_action_id] += 1
    beating = asyncio.ensure_future(_beat(store, action)) if store.shared else None
    try:
        yield
    finally:
        if beating is not None:
            beating.cancel()
        state.running[action.pending_action_id] -= 1
        state.running += Counter()  # drops the keys that count 0


async def _beat(store: Store, action: PendingAction) -> None:
    while True:
        await asyncio.sleep(_BEAT_SECONDS)
        with contextlib.suppress(StoreError):
            partition = store.partition(action.conversation)
            puts = {keys.heartbeat(action.pending_action_id): heartbeat_put(action, await store.now())}
            await store.commit(Transaction(partition=partition, puts=puts))


async def _finish(store: Store, state: AdapterState, action: PendingAction, end: _End) -> PendingAction:
    """Commit the end of an action, shielded from cancellation, and return its record."""
    writing = asyncio.ensure_future(_write_end(store, state, action, end))
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait([writing])
        raise


async def _write_end(store: Store, state: AdapterState, action: PendingAction, end: _End) -> PendingAction:
    """Commit the end of an action, and return the record.

    Retries while the store is unavailable, for some seconds. After these retries the end is only logged.
    """
    action_id, waits = action.pending_action_id, iter(_WAITS_SECONDS)
    while True:
        try:
            actions = await state.load(store, action.conversation, action_id)
            found = actions.get(action_id)
            if found is None:
                return action
            try:
                ended = transitions.finish(found, action.fence, end.state, end.outcome, actions.now)
            except transitions.WrongState:  # an earlier attempt, whose answer was lost, wrote it
                return found
            actions.put(ended, "finished", None, actions.now)
            await state.write(store, actions)
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
