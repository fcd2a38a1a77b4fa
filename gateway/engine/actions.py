"""Execution: the effect of a confirmed action, launched under a fence, and told whatever comes of it.

`running` is recorded before the effect. What ends without a word after that (a timeout, a cancellation, a drain, a dead
worker) is `unknown`: told, and never repeated in silence. An idempotent tool is run again with the same key, one with a
probe is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from channels import Media
from gateway.artifacts import Artifact, NotKept, collecting, emit_artifact
from gateway.engine.crew import Shares
from gateway.engine.leases import Held, at_last, for_newer
from gateway.engine.retrying import attempts
from gateway.engine.shared import Shared
from gateway.pending import settling
from gateway.pending.actions import ConversationActions
from gateway.pending.loading import conversation_of, stored_action
from gateway.pending.prompt import statement
from gateway.pending.transitions import is_stale, may_relaunch
from gateway.store.base import Conflict, Fenced, Key, Lease, StoreError, Transaction
from gateway.store.form import NewerForm
from gateway.tools import OutcomeUnknown, Tool, ToolContext, ToolError, ToolExecutionError, serialise
from gateway.tools.action import Detail, PendingAction
from gateway.tools.escape import link
from gateway.tools.previews import LAUNCH_PREVIEW_SECONDS, asked_with, changed
from gateway.wording import say

__all__ = ["MOST_OF_A_TOOL", "Actions"]

log = logging.getLogger("askfirst.actions")

_TIMEOUT_SECONDS = 60.0
MOST_OF_A_TOOL = 32
"""Effects of one tool at once: as many are left for others, whatever hangs or waits for a lock."""
_AGAIN_SECONDS = 5.0
_CHECKED_WITHIN = timedelta(minutes=1)
"""So long a preview that cannot be made again is tried."""
_CHANNEL_BACK_WITHIN = timedelta(hours=1)
"""So long what was confirmed waits for its channel; later nobody would expect it to happen."""


@dataclass(frozen=True, slots=True)
class _End:
    """How an effect ended, as far as this worker knows."""

    state: Literal["done", "failed", "unknown"]
    outcome: str
    text: str | None = None
    media: tuple[Media, ...] = ()
    again: bool = False
    """Nobody knows whether it happened, and it may be tried again with the same key."""


class Actions:
    """Executes what was approved."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._running = Shares(MOST_OF_A_TOOL)

    async def run(self, lease: Lease) -> PendingAction | None:
        """Execute the action this lease is for, or see to what a dead worker left. The action, if that has ended it."""
        launched: PendingAction | None = None
        ended: PendingAction | None = None
        end = _End("unknown", "the worker lost its lease")
        try:
            with Held(self._shared, lease):
                found = await self._find(lease)
                if found is None:
                    await self._give_back(lease)
                elif (why := await self._waits(found)) is not None:
                    if not lease.tries:
                        log.warning("action %s waits: %s", lease.lane, why)
                    await self._give_back(lease, again=True)
                elif found.state == "running" and (left := await self._after_a_death(found)) is not None:
                    ended = await self._finish(found, left, lease)
                else:
                    with self._running.one(found.kind):
                        if (launched := await self._launch(lease, found)) is None:
                            await self._give_back(lease, again=await self._is_approved(lease))
                        elif (end := await self._effect(launched)).again:
                            await self._give_back(lease, again=True)
                        else:
                            ended = await self._finish(launched, end, lease)
        except NewerForm as newer:
            await self._shared.commit(for_newer(lease, newer))
        except Fenced:
            log.warning("action %s: somebody else has taken over", lease.lane)
            if launched is not None and end.state != "unknown":
                ended = await self._finish(launched, end, None)
        except asyncio.CancelledError:
            if launched is not None:
                known = end if end.state != "unknown" else _End("unknown", "stopped while running")
                await at_last(self._finish(launched, known, lease, patient=False))
            raise
        return ended

    async def _find(self, lease: Lease) -> PendingAction | None:
        """Return the action of this lease; one that was changed by somebody is closed. None: it is not to be found.

        Raises NewerForm.
        """
        shared, key = self._shared, Key(lease.partition, f"action/{lease.lane}")
        snapshot = lease.seen if shared.is_shown(lease) else await shared.store.get([key])
        stored_action(shared.keyring, key, snapshot[key], first_form=shared.first_form)  # a newer one says so
        conversation = conversation_of(snapshot[key].value)
        if conversation is None or shared.store.partition(conversation) != lease.partition:
            log.error("action %s cannot be read: it will not run", lease.lane)
            return None
        return (await shared.actions(conversation, lease.lane)).get(lease.lane)

    async def _is_approved(self, lease: Lease) -> bool:
        """Return True when the action of this lease still waits to be launched."""
        found = await self._find(lease)
        return found is not None and found.state == "approved"

    # ── before ──

    async def _waits(self, action: PendingAction) -> str | None:
        """Why it cannot be begun now."""
        if is_stale(action, await self._shared.store.now()):
            return None  # nor ever: the launch says so
        if action.state == "approved" and self._shared.bot.drifted(action) and not self._shared.drifted(action):
            return "its tool is another here"
        if await self._waits_for_channel(action):
            return "its channel is off here, so nobody would be told"
        if action.state == "approved" and not await self._shared.store.has_room():
            return "the store has no room to write its end"
        if action.state == "approved" and self._running.are_taken(action.kind):
            return f"{MOST_OF_A_TOOL} of {action.kind} run already"
        return None

    def _is_mute(self, action: PendingAction) -> bool:
        """Whether its person could be told nothing from here."""
        return action.address is not None and action.address.channel not in self._shared.channels

    async def _waits_for_channel(self, action: PendingAction) -> bool:
        """Whether it is left for somebody who has its channel, or until this process has."""
        since = action.launched_at or action.decided_at
        if since is None or not self._is_mute(action):
            return False
        return await self._shared.store.now() - since < _CHANNEL_BACK_WITHIN

    async def _launch(self, lease: Lease, found: PendingAction) -> PendingAction | None:
        """Record that the effect is about to run. None: it will not run now, and all there is to say is said."""
        shared = self._shared
        why = await self._checked(found)
        if why == "not_checked" and not self._is_late(found, await shared.store.now()):
            return None
        launched: PendingAction | None = None
        for attempt in attempts(patient=True):
            async with attempt:
                actions = await shared.actions(found.conversation, lease.lane)
                action = actions.get(lease.lane)
                if action is not None and action.state == "running" and action.fence == lease.fence:
                    return action  # recorded by the commit whose answer was lost; only this lease can have
                transaction = Transaction(partition=lease.partition, lease=lease)
                launched = None
                if why is not None and not is_stale(found, actions.now):
                    settling.close_drifted(actions, lease.lane, actions.now, why)
                else:
                    launched = settling.launch(actions, lease.lane, lease.fence, actions.now)
                self._write(transaction, actions, found)
                launching = asyncio.ensure_future(shared.commit(transaction))
                try:
                    await asyncio.shield(launching)
                except asyncio.CancelledError:
                    await at_last(self._call_off(launching, launched, lease))
                    raise
        return launched

    async def _call_off(self, launching: Awaitable[object], launched: PendingAction | None, lease: Lease) -> None:
        """Once it says that the effect is about to run: that it did not."""
        with contextlib.suppress(StoreError):
            await launching
            if launched is not None:
                await self._finish(launched, _End("failed", "stopped before it began"), lease, patient=False)

    async def _after_a_death(self, action: PendingAction) -> _End | None:
        """A worker died while this ran. None: run it again, with the same key, through the same tool."""
        shared, tool = self._shared, self._shared.bot.tool(action.kind)
        if tool is None or shared.bot.drifted(action):
            return _End("unknown", "the worker died while it ran")
        if tool.idempotent and may_relaunch(action, await shared.store.now()):
            return None
        if tool.confirm is not None and tool.confirm.probe is not None:
            match await self._probe(action, tool):
                case "done":
                    return _End("done", "found done by its probe", text=tool.done_text(action.args, ""))
                case "not_done":
                    return _End("failed", "found not done by its probe")
        return _End("unknown", "the worker died while it ran")

    async def _probe(self, action: PendingAction, tool: Tool) -> Literal["done", "not_done", "unknown"]:
        try:
            return await tool.probe(action.args, self._context(action), timeout_seconds=_TIMEOUT_SECONDS)
        except ToolError as error:
            log.warning("the probe of %s failed: %s", action.kind, type(error).__name__)
            return "unknown"

    async def _checked(self, action: PendingAction) -> Detail | None:
        """Return why what is about to run is not what was shown, as far as that can be told; None: it is."""
        tool = self._shared.bot.tool(action.kind)
        if tool is None or action.state != "approved":
            return None
        if self._is_mute(action):
            return "not_checked"
        if not tool.compares(action):
            return None
        try:
            now = await tool.preview(action.args, self._context(action), timeout_seconds=LAUNCH_PREVIEW_SECONDS)
        except ValueError:
            return "changed"
        except ToolError as error:
            log.warning("the preview of %s could not be made again: %s", action.kind, type(error).__name__)
            return "not_checked"
        return "changed" if changed(asked_with(action), now) else None

    @staticmethod
    def _is_late(action: PendingAction, now: datetime) -> bool:
        """Return True when what could not be looked at has been tried for long enough."""
        return action.decided_at is None or now - action.decided_at > _CHECKED_WITHIN

    # ── the effect ──

    async def _effect(self, action: PendingAction) -> _End:
        tool = self._shared.bot.tool(action.kind)
        if tool is None:
            return _End("failed", "the tool is gone")
        feed, context = self._shared.feed, self._context(action)
        feed.publish("effect.started", action=action.pending_action_id, tool=action.kind, args=action.args)
        try:
            with collecting() as emitted:
                result = await tool.run(action.args, context, timeout_seconds=_TIMEOUT_SECONDS)
        except ToolError as error:
            end = self._failure(action, tool, error)
        else:
            end = await self._success(action, tool, result, emitted)
        feed.publish("effect.finished", action=action.pending_action_id, tool=action.kind, state=end.state)
        return end

    async def _success(self, action: PendingAction, tool: Tool, result: object, emitted: list[Artifact]) -> _End:
        said = tool.done_text(action.args, result)
        if said is None and isinstance(result, str) and result.strip():
            said = serialise(result)
        links = [link(artifact.filename, artifact.url) for artifact in emitted if artifact.url]
        text = "\n\n".join([said, *links]) if said else "\n\n".join(links)
        try:
            media = tuple([await self._shared.artifacts.keep(each) for each in emitted if each.content is not None])
        except NotKept as error:
            log.error("action %s is done, but its file is lost: %s", action.pending_action_id, error)
            media = ()
            done = text or say("done", action.language, preview=statement(action.preview))
            text = f"{done}\n\n{say('file_lost', action.language)}"
        return _End("done", serialise(result), text=text or None, media=media)

    def _failure(self, action: PendingAction, tool: Tool, error: ToolError) -> _End:
        cause = error.error if isinstance(error, ToolExecutionError) else error
        name = type(cause).__name__
        log.warning("action %s (%s): %s", action.pending_action_id, action.kind, name)
        self._shared.feed.publish("effect.failed", tool=action.kind, error=name, cause=cause)
        if isinstance(error, OutcomeUnknown):
            again = tool.idempotent and may_relaunch(action, action.launched_at or action.requested_at)
            return _End("unknown", f"error: {name}", again=again)
        return _End("failed", f"error: {name}")

    # ── after ──

    async def _finish(
        self,
        action: PendingAction,
        end: _End,
        lease: Lease | None,
        *,
        patient: bool = True,
    ) -> PendingAction | None:
        """Record the end and tell the person; the ended action, or None when there was nothing more to say.

        Without a lease it is a late one: it still settles what is `unknown`. `patient`: a store that does not answer is
        asked again for a while.
        """
        shared, action_id = self._shared, action.pending_action_id
        ended: PendingAction | None = None
        told = perhaps_told = False
        for attempt in attempts(patient=patient):
            async with attempt:
                perhaps_told, told = perhaps_told or (attempt.outcome_unknown and told), False
                actions = await shared.actions(action.conversation, action_id)
                told = settling.finish(
                    actions,
                    action_id,
                    action.fence,
                    end.state,
                    end.outcome,
                    actions.now,
                    text=end.text,
                    media=end.media,
                )
                if not told and lease is None:
                    return actions.get(action_id) if perhaps_told else None
                transaction = Transaction(partition=shared.store.partition(action.conversation), lease=lease)
                transaction.finish = "done" if lease is not None else None
                self._write(transaction, actions, action)
                try:
                    await shared.commit(transaction)
                except Fenced as error:
                    if patient and not perhaps_told:  # else it is our own commit that has ended the lease
                        log.warning("action %s: somebody else has taken over", action_id)
                    lease = None
                    raise Conflict("the lease is gone") from error
                ended = actions.get(action_id) if told else None
        return ended

    def _write(self, transaction: Transaction, actions: ConversationActions, action: PendingAction) -> None:
        actions.write(transaction)
        if action.address is not None:
            cause = f"action/{action.pending_action_id}"
            transaction.parts += self._shared.parts.render(
                action.conversation, action.address, actions.says, cause=cause, language=action.language
            )

    async def _give_back(self, lease: Lease, *, again: bool = False) -> None:
        due = await self._shared.store.now() + timedelta(seconds=_AGAIN_SECONDS) if again else None
        transaction = Transaction(partition=lease.partition, lease=lease, finish="failed" if again else "done", due=due)
        await self._shared.commit(transaction)

    def _context(self, action: PendingAction) -> ToolContext:
        shared = self._shared
        outside = action.address is not None and action.address.channel == "app"
        return ToolContext(
            person=action.requester,
            address=None if outside else action.address,
            conversation=action.conversation,
            language=action.language,
            deps=shared.bot.deps,
            idempotency_key=action.pending_action_id,
            action=action,
            now=shared.wall_clock,
            emit=emit_artifact,
        )
