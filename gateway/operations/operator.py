"""All commands of an operator on one store."""

from __future__ import annotations

from gateway.operations.actions import ActionCommands
from gateway.operations.audit import AuditCommands
from gateway.operations.conversations import ConversationCommands
from gateway.operations.dead_letters import DeadLetterCommands
from gateway.operations.histories import HistoryCommands
from gateway.operations.ownership import record_served
from gateway.operations.people import PeopleCommands
from gateway.operations.usage import UsageCommands


class Operator(
    ActionCommands,
    AuditCommands,
    ConversationCommands,
    DeadLetterCommands,
    HistoryCommands,
    PeopleCommands,
    UsageCommands,
):
    """The commands of an operator. Each public method but `remember` is one, and its result is JSON."""

    async def remember(self) -> None:
        """Record which bot is served from the store, for commands beside the server."""
        await record_served(self._store, self._bot)
