"""The commands of a bot: built in, and added by the author."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from channels import Reply
from gateway.bot.turn import Outcome, Turn, without_buttons
from gateway.memory import RESET, to_entries
from gateway.tools import ToolContext
from gateway.tools.approver_places import written_place
from gateway.tools.escape import plain
from gateway.wording import say

# The confirmation code is half of the package, and only a running bot needs it: it is imported inside functions.
if TYPE_CHECKING:
    from gateway.pending.actions import ConversationActions
    from gateway.tools.pending_action import PendingAction


CommandHandler: TypeAlias = Callable[[ToolContext, str], Awaitable[str | Reply | None]]

BUILT_IN: Final = ("start", "help", "new", "stop", "pending", "receipts", "usage", "export", "forget")
"""Commands of every bot. /stop runs in the decision lane. /whoami and /pair are not listed."""
_RECEIPTS: Final = 10
"""The most outcomes listed by /receipts."""


class BotCommands:
    """The commands of a bot: built in, and added by the author."""

    def __init__(self) -> None:
        self._own: dict[str, tuple[CommandHandler, str]] = {}

    def register(self, name: str, handler: CommandHandler, description: str) -> None:
        """Add a command of the author. Without a description, the handler's docstring is shown."""
        self._own[name] = (handler, description or inspect.cleandoc(handler.__doc__ or name))

    def check_name(self, name: str) -> None:
        """Raises ValueError for a taken name, or a name not accepted by every platform."""
        if not name.isidentifier() or name != name.lower() or len(name) > 32:
            raise ValueError(f"a command is up to 32 small letters, digits and _, not {name!r}")
        if name in self._own or name in BUILT_IN:
            raise ValueError(f"there is a /{name} already")

    def described(self, language: str) -> dict[str, str]:
        """Return every command with its description, in display order."""
        own = {name: description for name, (_, description) in self._own.items()}
        return {name: say(f"cmd_{name}", language) for name in BUILT_IN} | own

    def help(self, language: str) -> str:
        """Return the answer to /help, as Markdown."""
        listed = [f"/{name} – {plain(description)}" for name, description in self.described(language).items()]
        return say("help", language, commands="\n".join(listed))

    def are_meant(self, turn: Turn) -> bool:
        """Return True if the turn is answered by a command."""
        command = turn.command
        unlisted = command == "whoami" or (command == "pair" and turn.admit is not None)
        # A /stop that was typed was worked when it came. Another one, such as a forwarded one, is a text.
        return unlisted or (command in BUILT_IN and command != "stop") or command in self._own

    def are_built_in(self, turn: Turn) -> bool:
        """Return True if the turn is answered by a built-in command."""
        return self.are_meant(turn) and turn.command not in self._own

    async def answer(self, turn: Turn, *, greeting: str | None) -> Outcome:
        """Run the command of the turn. `greeting` is the answer to /start; None: the gateway's own greeting."""
        command = turn.command or ""
        outcome = Outcome(stop_reason="command", transcript=to_entries(turn.notes))
        match command:
            case "start":
                outcome.replies = [Reply(text=greeting or say("greeting", turn.language))]
            case "help":
                outcome.replies = [Reply(text=self.help(turn.language))]
            case "new":
                outcome.replies, outcome.transcript = [Reply(text=say("new_done", turn.language))], [RESET]
            case "pending":
                outcome.replies = [
                    Reply(text=_open_actions(turn, await turn.actions(), await turn.elsewhere()), exact=True)
                ]
            case "receipts":
                outcome.replies = [Reply(text=_receipts(turn, await turn.settled()), exact=True)]
            case "usage":
                outcome.replies = [Reply(text=await turn.expenses.report(turn.language), exact=True)]
            case "export":
                outcome.replies = [await turn.own_data.export(turn.messages[0].text, turn.language)]
            case "forget":
                outcome.replies = [await turn.own_data.forget(turn.messages[0].text, turn.language)]
            case "whoami" if command not in self._own:
                lines = [say("whoami", turn.language, person=f"`{turn.person}`")]
                if turn.address.group:
                    lines.append(f"`{written_place(turn.address)}`")
                outcome.replies = [Reply(text="\n\n".join(lines))]
            case "pair" if command not in self._own and turn.admit is not None:
                outcome.replies = [Reply(text=await turn.admit(turn.messages[0].text, turn.language))]
            case _:
                answer = await self._own[command][0](turn.context, turn.messages[0].text)
                if answer is not None:
                    outcome.replies = [without_buttons(answer)]
        return outcome


def _open_actions(turn: Turn, actions: ConversationActions, elsewhere: Sequence[PendingAction]) -> str:
    from gateway.pending.permission import described
    from gateway.pending.prompt import brief, with_asker
    from gateway.pending.standing import permissions_of

    waiting, allowed = actions.open_for(str(turn.person)), permissions_of(actions, str(turn.person))
    lines = [f"- {with_asker(action, brief(action.preview))} ({action.code})" for action in waiting]
    for action in elsewhere:
        mine = action.requester == str(turn.person)
        asked = brief(action.preview) if mine else with_asker(action, brief(action.preview))
        lines.append(f"- {asked} ({plain(str(action.address))})")
    listed = (
        "\n".join([say("pending_list", turn.language), "", *lines]) if lines else say("pending_none", turn.language)
    )
    permitted = [described(each, actions.now, turn.language) for each in allowed]
    return "\n\n".join([listed, *permitted])


def _receipts(turn: Turn, actions: ConversationActions) -> str:
    from gateway.pending.prompt import receipt

    person, theirs = str(turn.person), []
    for entry in actions.index.settled:
        action = actions.by_id.get(entry.action_id)
        if action is not None and action.settled and person in (action.requester, action.decided_by):
            theirs.append(receipt(action, entry.at, turn.language))
    if not theirs:
        return say("receipts_none", turn.language)
    return "\n".join([say("receipts_list", turn.language), "", *(f"- {line}" for line in theirs[:_RECEIPTS])])
