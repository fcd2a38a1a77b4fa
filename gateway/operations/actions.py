"""An operator's commands on actions: list, show, cancel, settle."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Literal

from gateway.engine.retrying import attempts
from gateway.operations.base import JsonObject, NotDone, StoreCommands, iso
from gateway.pending import deciding, settling, standing
from gateway.pending.actions import ConversationActions
from gateway.pending.audit import OPERATOR
from gateway.pending.index import Index
from gateway.pending.loading import Counters, load_actions, stored_action
from gateway.pending.permission import covered, fixed_arguments
from gateway.pending.seal import SEAL_FAILED
from gateway.store.transaction import Transaction
from gateway.stored import keys
from gateway.tools.pending_action import PendingAction
from gateway.wording import FALLBACK, say

log = logging.getLogger("askfirst.operator")

_ACTIONS = keys.action("")


class ActionCommands(StoreCommands):
    """Commands on the actions of a store."""

    async def pending(self) -> list[JsonObject]:
        """Return the open, running and doubtful actions, oldest first.

        Actions in doubt come first: with an unknown outcome, or with a record changed without the key. Standing
        permissions come last, in the state ``permitted``.
        """
        found: list[PendingAction] = []
        unreadable: list[JsonObject] = []
        for key, record in await self._store.scan(_ACTIONS):
            action = stored_action(self._keyring, key, record)
            if action is None:
                unreadable.append(_unreadable(key.name.removeprefix(_ACTIONS)))
            elif action.ballot_of is None and (not action.settled or action.state == "unknown"):
                found.append(action)
        found.sort(key=lambda action: (action.state != "unknown", action.requested_at))
        doubts = sum(action.state == "unknown" for action in found)
        permitted = [_permitted(each) for each in await self._permissions()]
        return [*map(_summary, found[:doubts]), *unreadable, *map(_summary, found[doubts:]), *permitted]

    async def action(self, action_id: str) -> JsonObject:
        """Return all fields of an action, by the id or its beginning. Raises NotDone."""
        action = await self._find(action_id)
        return {
            **_summary(action),
            "args": dict(action.args),
            "conversation": action.conversation,
            "approvers": list(action.approvers),
            "decided_at": iso(action.decided_at),
            "decided_by": action.decided_by,
            "launched_at": iso(action.launched_at),
            "finished_at": iso(action.finished_at),
            "outcome": action.outcome,
            "digest": action.digest,
            "seal": "holds",
        }

    async def cancel(self, action_id: str) -> JsonObject:
        """Withdraw an action not launched yet, or a standing permission. The person is notified. Raises NotDone."""
        held = [
            each for each in await self._permissions() if action_id and each.pending_action_id.startswith(action_id)
        ]
        if held:
            return await self._revoke(held[0])

        def withdraw(actions: ConversationActions, action: PendingAction) -> bool:
            return bool(deciding.withdraw(actions, None, actions.now, action_id=action.pending_action_id, by=OPERATOR))

        return await self._change(action_id, withdraw, "only what has not run yet can be cancelled")

    async def settle(self, action_id: str, state: Literal["done", "failed"]) -> JsonObject:
        """Settle an action of unknown outcome as done or failed. The person is notified. Raises NotDone."""
        if state not in ("done", "failed"):
            raise NotDone(f"an action is settled as done or failed, not as {state}")

        def settle(actions: ConversationActions, action: PendingAction) -> bool:
            return settling.settle(actions, action.pending_action_id, state, OPERATOR, actions.now)

        return await self._change(action_id, settle, "only what is unknown can be settled")

    async def _permissions(self) -> list[PendingAction]:
        """Return the actions with a valid standing permission."""
        prefix = keys.index("")
        found: list[PendingAction] = []
        for key, record in await self._store.scan(prefix):
            with contextlib.suppress(ValueError):
                sealed = self._keyring.open(key.name, record.value)
                if sealed is not None and Index.from_text(sealed.text).permissions:
                    found += standing.permissions_of(await self._load(key.name.removeprefix(prefix)))
        return found

    async def _revoke(self, giver: PendingAction) -> JsonObject:
        conversation = giver.conversation
        for attempt in attempts():
            async with attempt:
                actions = await self._load(conversation)
                language = actions.language or FALLBACK
                gone = standing.revoke(actions, None, actions.now, why="revoked", action_id=giver.pending_action_id)
                for each in gone:
                    actions.say(say("standing_revoked", language, covered=covered(each, language)))
                transaction = Transaction(partition=self._store.partition(conversation))
                await actions.write(transaction)
                if actions.index.address is not None:
                    transaction.parts = self._render(
                        conversation, actions.index.address, actions.says, language=language
                    )
                await self._store.commit(transaction)
        return _permitted(giver)

    async def _load(self, conversation: str, *also: str) -> ConversationActions:
        return await load_actions(
            self._store,
            conversation,
            keyring=self._keyring,
            counters=Counters(),
            drift=lambda _: None,
            also=also,
        )

    async def _find(self, action_id: str) -> PendingAction:
        """Return the action with an id beginning with this text. Raises NotDone."""
        found = await self._store.scan(keys.action(action_id)) if action_id else []
        if len(found) > 1:
            raise NotDone(f"{len(found)} actions begin with {action_id}: give more of the id")
        if not found:
            raise NotDone(f"there is no action {action_id}")
        action = stored_action(self._keyring, *found[0])
        if action is None:
            raise NotDone(f"action {action_id}: {SEAL_FAILED}")
        return action

    async def _change(
        self, action_id: str, change: Callable[[ConversationActions, PendingAction], bool], rule: str
    ) -> JsonObject:
        """Change an action, and return the action's summary. Raises NotDone with `rule` when `change` returns False."""
        for attempt in attempts():
            async with attempt:
                action = await self._find(action_id)
                actions = await self._load(action.conversation, action.pending_action_id)
                for tampered in actions.changes.tampered:
                    log.error("action %s: %s: it will not run", tampered, SEAL_FAILED)
                if not change(actions, action):
                    action = actions.get(action.pending_action_id) or action
                    raise NotDone(f"action {action_id} is {action.reason or action.state}: {rule}")
                transaction = Transaction(partition=self._store.partition(action.conversation))
                await actions.write(transaction)
                if action.address is not None:
                    transaction.parts = self._render(
                        action.conversation, action.address, actions.says, language=action.language
                    )
                await self._store.commit(transaction)
        return _summary(await self._find(action_id))


def _summary(action: PendingAction) -> JsonObject:
    return {
        "id": action.pending_action_id,
        "code": action.code,
        "tool": action.kind,
        "preview": action.preview,
        "state": action.state,
        "reason": action.reason,
        "requester": action.requester,
        "requested_at": iso(action.requested_at),
        "shown_at": iso(action.shown_at),
        "expires_at": iso(action.expires_at),
    }


def _permitted(giver: PendingAction) -> JsonObject:
    """Return the summary of the standing permission given by an action."""
    grant, offer = giver.grant, giver.standing
    if grant is None or offer is None:
        raise ValueError(f"action {giver.pending_action_id} gave no permission")
    covers = [f"{name}={value!r}" for name, value in fixed_arguments(giver, offer).items()]
    covers += [f"{name} up to {bound}" for name, bound in offer.most] + [f"any {name}" for name in offer.free]
    call = f"{giver.kind} with {', '.join(covers)}" if covers else giver.kind
    left = offer.uses - len(grant.used)
    return {
        "id": giver.pending_action_id,
        "code": "",
        "tool": giver.kind,
        "preview": f"{call}: {left} more times until {grant.until:%Y-%m-%d %H:%M} UTC",
        "state": "permitted",
        "reason": None,
        "requester": giver.requester,
        "requested_at": iso(grant.given),
        "shown_at": None,
        "expires_at": iso(grant.until),
    }


def _unreadable(action_id: str) -> JsonObject:
    """Return the summary of an unreadable record or of a record without a valid seal."""
    return {
        "id": action_id,
        "code": "",
        "tool": "",
        "preview": "unreadable: somebody has changed the record, or it is damaged",
        "state": "unreadable",
        "reason": None,
        "requester": "",
        "requested_at": None,
        "shown_at": None,
        "expires_at": None,
    }
