"""Confirmations in the loop: the port for asking a person, and confirmations without a chat."""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from channels import Json
from gateway.agent.config import AgentConfig, ConfirmAction
from gateway.logs import describe_error
from gateway.providers.base import ToolCall
from gateway.tools import PendingAction, PendingConfirmation, Preview, Tool, ToolContext, compute_args_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A call that needs a confirmation."""

    call: ToolCall
    tool: Tool
    args: Mapping[str, Json]
    """The validated, coerced and complete arguments of the call."""
    preview: Preview
    reason: str
    """The reason for the confirmation: the tool's ``confirm=``, or the rule of the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The verdict "a person is being asked". The call was not made, and the turn ends with this verdict."""

    confirmation: PendingConfirmation
    """The result of the call for the model."""
    action: PendingAction
    """The action, stored with the turn and returned with the outcome, also after a take-over by another process."""


Verdict: TypeAlias = Asked | str
"""The verdict on a call: a person is asked, or a text for the model refuses the call.

No verdict approves a call: a confirmed action runs from its own record, never within a turn.
"""


class OnConfirm(Protocol):
    async def __call__(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        """Return one verdict for each ask, in order. All asks of one reply come together, for one question."""
        ...


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Approved:
    """The verdict of `confirm_action` to run the call now."""


class Unattended:
    """A confirmation port without a chat: asks the agent's `confirm_action`.

    Without a `confirm_action` no call runs, and each call is returned as a pending action.
    """

    def __init__(self, config: AgentConfig, context: ToolContext) -> None:
        self._config, self._context = config, context
        self._denied: dict[tuple[str, str], str] = {}

    async def __call__(self, asks: Sequence[Ask]) -> Sequence[Verdict | Approved]:
        confirm_action = self._config.confirm_action
        if confirm_action is None:
            return [self._write_down(ask) for ask in asks]
        return [await self._confirmed(ask, confirm_action) for ask in asks]

    async def _confirmed(self, ask: Ask, confirm_action: ConfirmAction) -> Verdict | Approved:
        call = (ask.tool.name, compute_args_digest(ask.args))
        if (before := self._denied.get(call)) is not None:
            return before
        try:
            async with asyncio.timeout(self._config.approval_timeout_seconds):
                asked = (ask.tool.name, dict(ask.args), ask.reason)
                # In a thread, since it may wait for a person at a keyboard.
                waits = inspect.iscoroutinefunction(confirm_action)
                answer: object = confirm_action(*asked) if waits else await asyncio.to_thread(confirm_action, *asked)
                approved = await answer if inspect.isawaitable(answer) else answer
        except TimeoutError:
            why = "nobody answered in time"
        except Exception as error:  # noqa: BLE001 - the call does not run after any error
            _log.warning("confirm_action raised %s for tool %s: denied", describe_error(error), ask.tool.name)
            why = "the approval failed"
        else:
            if approved is True:
                return Approved()
            why = "it was not approved"
        self._denied[call] = f"Tool {ask.tool.name!r} was not run: {why}."
        return self._denied[call]

    def _write_down(self, ask: Ask) -> Asked:
        action = PendingAction(
            pending_action_id=secrets.token_hex(16),
            kind=ask.tool.name,
            tool_version=ask.tool.version_hash,
            args=ask.args,
            precondition=ask.preview.precondition,
            preview=ask.preview.text,
            table=tuple(ask.preview.table or ()),
            requester=self._context.person,
            conversation=self._context.conversation,
            address=self._context.address,
            language=self._context.language,
            args_digest=compute_args_digest(ask.args),
            requested_at=self._context.clock(),
        )
        confirmation = PendingConfirmation(
            action=action.pending_action_id, preview=action.preview, user_prompt=action.preview
        )
        return Asked(confirmation=confirmation, action=action)
