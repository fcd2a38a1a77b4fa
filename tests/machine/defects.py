"""Defects to be planted one at a time: the machine must see each of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from channels import ButtonPress, Message
from gateway.engine.decisions import judging
from gateway.engine.decisions.judging import Judge, Judgement
from gateway.engine.execution.effects import Effects
from gateway.engine.execution.executor import ActionExecutor
from gateway.engine.intake import inbox
from gateway.engine.messages import is_typed
from gateway.engine.tool_locks import HeldLock
from gateway.engine.turns.bare_replies import BareReplyHandler
from gateway.pending import deciding, loading, prompting, settling, transitions
from gateway.pending.loading import Counters
from gateway.pending.reading import decides
from gateway.pending.seal import Keyring
from gateway.pending.tokens import token_partition, token_sha256
from gateway.store.redis import RedisStore
from gateway.store.sqlite import SqliteStore
from gateway.store.types import Incoming, Key
from gateway.tools.locks import Lock
from gateway.tools.pending_action import PendingAction
from gateway.tools.tool import Tool

__all__ = [
    "command_read_as_text",
    "event_of_another_person",
    "head_counter_off",
    "index_trusted",
    "late_end_dropped",
    "launch_twice",
    "lock_freed_early",
    "order_check_off",
    "preview_not_compared",
    "seal_off",
    "showings_unlimited",
    "token_of_another_chat",
    "twin_accepted",
    "window_ignored",
]


def seal_off(patch: pytest.MonkeyPatch) -> None:
    """A record that somebody has changed passes for genuine."""
    patch.setattr(Keyring, "_holds", lambda self, purpose, mac, context, text: True)


def window_ignored(patch: pytest.MonkeyPatch) -> None:
    """A yes counts however late it comes."""
    patch.setattr(transitions, "expired", lambda action, at: False)
    patch.setattr(settling, "expire", lambda actions, action_id, at: None)
    patch.setattr(deciding, "expire", lambda actions, action_id, at: None)


def launch_twice(patch: pytest.MonkeyPatch) -> None:
    """What a dead worker had launched is launched again, whatever the tool."""

    async def no_end(self: Effects, action: PendingAction) -> None:
        return None

    patch.setattr(Effects, "after_a_death", no_end)


def late_end_dropped(patch: pytest.MonkeyPatch) -> None:
    """What a call comes to that outlasted its time is thrown away."""

    async def thrown_away(self: ActionExecutor, action: PendingAction, coming: Any) -> None:
        await coming

    patch.setattr(ActionExecutor, "_settle_late", thrown_away)


def lock_freed_early(patch: pytest.MonkeyPatch) -> None:
    """A lock is free as soon as its holder has outlasted its time, in the process and in the store."""
    for kind in (Lock, HeldLock):
        patch.setattr(kind, "leave_to", lambda self, call: None)


def twin_accepted(patch: pytest.MonkeyPatch) -> None:
    """What the platform delivers again is a new event."""
    numbers = itertools.count()
    for kind in (SqliteStore, RedisStore):
        real: Any = kind.accept

        async def accept(self: Any, events: Sequence[Incoming], real: Any = real) -> Any:
            return await real(self, [replace(event, event_ids=(f"new {next(numbers)}",)) for event in events])

        patch.setattr(kind, "accept", accept)


def token_of_another_chat(patch: pytest.MonkeyPatch) -> None:
    """A button counts wherever it is pressed."""

    async def pressed(self: Judge, conversation: str, press: ButtonPress, at: datetime) -> Judgement:
        key = Key(str(token_partition(press.token)), f"token/{token_sha256(press.token)}")
        found: Any = (await self._context.store.get([key]))[key].value
        actions = await self._context.actions(found["conversation"], found["action_id"])
        feedback = deciding.press(actions, found["action_id"], press.token, press.person, at)
        return Judgement(actions, True, feedback.text("en"), feedback.told)

    patch.setattr(Judge, "_pressed", pressed)


def event_of_another_person(patch: pytest.MonkeyPatch) -> None:
    """Anybody may say yes."""
    patch.setattr(transitions, "may_approve", lambda action, person: True)
    patch.setattr(transitions, "may_refuse", lambda action, person: True)


def index_trusted(patch: pytest.MonkeyPatch) -> None:
    """The index of a conversation is believed, whoever wrote it."""
    real: Any = Keyring._holds

    def holds(self: Keyring, purpose: str, mac: str, context: str, text: str) -> bool:
        return context.startswith("open/") or real(self, purpose, mac, context, text)

    patch.setattr(Keyring, "_holds", holds)


def head_counter_off(patch: pytest.MonkeyPatch) -> None:
    """An old record of the gateway's own is as good as the last one."""
    real: Any = loading._judged

    def judged(*args: Any) -> Any:
        action, verdict = real(*args)
        return action, "held" if action is not None else verdict

    patch.setattr(loading, "_judged", judged)
    patch.setattr(Counters, "is_old", lambda self, conversation, counter: False)


def order_check_off(patch: pytest.MonkeyPatch) -> None:
    """A bare word counts as written after the question, whatever the platform says."""

    async def written(self: BareReplyHandler, *args: Any) -> str:
        return "after"

    patch.setattr(BareReplyHandler, "_written", written)


def preview_not_compared(patch: pytest.MonkeyPatch) -> None:
    """What was shown is not looked at again before the launch."""
    patch.setattr(Tool, "compares", lambda self, action: False)


def showings_unlimited(patch: pytest.MonkeyPatch) -> None:
    """A question is shown again as often as somebody says something."""
    patch.setattr(prompting, "_RESHOWN_AT_MOST", 1000)


def command_read_as_text(patch: pytest.MonkeyPatch) -> None:
    """What stands behind a command is read as if there were none."""

    def bare(event: Any) -> Any:
        is_command = isinstance(event, Message) and event.command != "stop"
        return replace(event, command=None) if is_command else event

    patch.setattr(judging, "is_typed", lambda message: is_typed(bare(message)))
    patch.setattr(inbox, "decides", lambda event, lang: decides(bare(event), lang))
