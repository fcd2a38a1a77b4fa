"""Commands ``askfirst pending``, ``waiting``, ``dead``, ``people``, ``usage``, ``audit``, ``send``, ``conversations``.

All work on a store, with the server up or down.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import click

from channels import AskfirstError
from channels.catalogue import load
from gateway.cli.bots import BotRef, load_settings
from gateway.cli.control_socket import operate
from gateway.cli.terminal import json_text, visible
from gateway.config.settings import Settings
from gateway.operations.control_server import store_file
from gateway.operations.dead_letters import LETTERS_A_PAGE


class Answer(NamedTuple):
    """The answer of a command as JSON, and as text."""

    found: Any
    plain: str
    failed: bool = False
    """True to end with the exit code 1."""


def on_a_store(command: Callable[..., Answer | None]) -> Callable[..., None]:
    """Decorate a command with `--json` and with the settings of the store, and print the answer."""

    @click.option(
        "--bot", type=BotRef.parse, metavar="BOT", help="Whose store it is. Default: the one in this directory."
    )
    @click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
    @functools.wraps(command)
    def with_settings(bot: BotRef | None, *, as_json: bool, **arguments: Any) -> None:
        settings = load_settings(bot.directory if bot is not None else Path.cwd())
        file = store_file(settings.store)
        if bot is None and file is not None and not file.exists():
            raise AskfirstError(f"there is no store {file}: name the bot with --bot, or its store in ASKFIRST_STORE")
        answer = command(settings, **arguments)
        if answer is not None:
            click.echo(json_text(answer.found) if as_json else answer.plain)
            if answer.failed:
                sys.exit(1)

    return with_settings


def _named(group: click.Group, name: str, operation: str, **argument: str) -> Callable[[Callable[[Any], str]], None]:
    """Decorate the text about the result of an operation on a named thing: make the text the command `name`.

    `argument` is the argument of the operation, with the displayed name for the help.
    """
    [(parameter, metavar)] = argument.items()

    def register(says: Callable[[Any], str]) -> None:
        @group.command(name, help=says.__doc__)
        @click.argument(parameter, metavar=metavar)
        @on_a_store
        def command(settings: Settings, **given: str) -> Answer:
            found = operate(settings, operation, **given)
            return Answer(found, says(found))

    return register


@click.group()
def pending() -> None:
    """Actions: waiting for a person, running, or of unknown outcome."""


@pending.command("list")
@on_a_store
def pending_list(settings: Settings) -> Answer:
    """List the actions: unknown outcomes first, then the oldest first."""
    found = operate(settings, "pending")
    rows = [(a["id"][:8], a["code"], a["state"], _age(a["requested_at"]), a["requester"], a["preview"]) for a in found]
    table = _table(("ID", "CODE", "STATE", "AGE", "ASKED BY", "WHAT"), rows)
    doubts = sum(a["state"] == "unknown" for a in found)
    if doubts:
        table += f"\n\nIn doubt: {doubts}. Look whether it happened, then: askfirst pending settle ID done|failed"
    return Answer(found, table or "Nothing is waiting.")


@_named(pending, "show", "action", action_id="ID")
def _action(found: Any) -> str:
    """Show all fields of an action. The beginning of its ID is enough."""
    return _listing(found)


@_named(pending, "cancel", "cancel", action_id="ID")
def _withdrawn(found: Any) -> str:
    """Withdraw an action before its run. The prompt is updated, and the person is notified."""
    return f"Withdrawn: {found['preview']}"


@pending.command("settle")
@click.argument("action_id", metavar="ID")
@click.argument("outcome", type=click.Choice(["done", "failed"]))
@on_a_store
def pending_settle(settings: Settings, action_id: str, outcome: str) -> Answer:
    """Settle an action of unknown outcome, as done or failed. The person is notified."""
    found = operate(settings, "settle", action_id=action_id, state=outcome)
    return Answer(found, f"Settled as {outcome}: {found['preview']}")


@click.group(invoke_without_command=True)
@on_a_store
def waiting(settings: Settings) -> Answer | None:
    """Show the number of waiting events, the largest mailboxes, and the limits reached within the hour."""
    if click.get_current_context().invoked_subcommand is not None:
        return None
    found = operate(settings, "waiting")
    rows = [(str(each["waiting"]), _age(each["oldest"]), each["conversation"]) for each in found["conversations"]]
    table = _table(("WAITING", "OLDEST", "CONVERSATION"), rows)
    plain = (
        f"{found['waiting']} events wait, {found['unsent']} messages are not sent, "
        f"{found['later']} conversations are put off."
    )
    if table:
        plain += f"\n\n{table}\n\nTo put what waits in one aside: askfirst waiting put-aside CONVERSATION"
    reached = [(name, note["limit"], _age(note["at"])) for name, note in found["limits_reached"].items()]
    if table := _table(("LIMIT REACHED", "AS SET", "AGE"), reached):
        plain += f"\n\n{table}\n\nTo raise one: ASKFIRST_LIMITS"
    return Answer(found, plain)


@_named(waiting, "put-aside", "put_aside", conversation="CONVERSATION")
def _put_aside(found: Any) -> str:
    """Move all waiting events of CONVERSATION to the dead letters. `dead replay` puts an event back."""
    return f"Put aside: {found['put_aside']} events of {found['conversation']}. See: dead list"


@click.group()
def dead() -> None:
    """Dead letters: events and messages given up after their last retry."""


@dead.command("list")
@click.option("--after", default="0", metavar="NUMBER", help="Go on behind the page that ended with this.")
@on_a_store
def dead_list(settings: Settings, after: str) -> Answer:
    """List the dead letters, the oldest first, a page at a time; then the unreadable shapes of events."""
    found = operate(settings, "dead", after=after)
    rows = [
        (letter["id"], letter["what"], _age(letter["at"]), letter["conversation"], letter["reason"]) for letter in found
    ]
    table = _table(("ID", "HOLDS", "AGE", "CONVERSATION", "WHY"), rows)
    last = next((letter["seq"] for letter in reversed(found) if letter["seq"] is not None), None)
    if len(found) >= LETTERS_A_PAGE and found[-1]["seq"] is not None:
        table += f"\n\nThere may be more: askfirst dead list --after {last}"
    return Answer(found, table or "There are no dead letters.")


@_named(dead, "show", "letter", dead_id="ID")
def _letter(found: Any) -> str:
    """Show all fields of a dead letter, with the text of the person. The beginning of the ID is enough."""
    return _listing(found)


@_named(dead, "replay", "replay", dead_id="ID")
def _replayed(found: Any) -> str:
    """Put a dead letter back into its mailbox or outbox."""
    return f"Put back: the {found['what']} of {found['conversation']}"


@dead.command("drop")
@click.argument("dead_id", metavar="ID", required=False)
@click.option("--all", "everything", is_flag=True, help="Throw all of them away.")
@click.option("--reason", default="", metavar="TEXT", help="Throw away those with TEXT in their reason.")
@on_a_store
def dead_drop(settings: Settings, dead_id: str | None, reason: str, *, everything: bool) -> Answer:
    """Throw a letter away, or all letters, or the letters with a reason."""
    if sum((dead_id is not None, everything, bool(reason))) != 1:
        raise click.UsageError("name one ID, or --all, or --reason TEXT")
    if dead_id is None:
        found = operate(settings, "drop_all", reason=reason)
        return Answer(found, f"Thrown away: {found['dropped']} dead letters")
    found = operate(settings, "drop", dead_id=dead_id)
    return Answer(found, f"Thrown away: the {found['what']} of {found['conversation']}")


@click.group()
def people() -> None:
    """People without access who wrote to the bot, people let in by a code, and sessions of the web chat."""


@people.command("list")
@on_a_store
def people_list(settings: Settings) -> Answer:
    """List the people, and the line of ASKFIRST_ALLOW that lets the last writer in."""
    found = operate(settings, "people")
    away = [(each["person"], each["name"] or "", _age(each["at"]), each["code"] or "") for each in found["turned_away"]]
    inside = [(each["person"], each["name"] or "", _age(each["at"]), each["by"]) for each in found["admitted"]]
    sections = [
        _table(("TURNED AWAY", "NAME", "AGE", "CODE"), away) or "Nobody was turned away within a day.",
        _table(("LET IN", "NAME", "AGE", "BY"), inside),
    ]
    if away:
        allow = ",".join([*(settings.allow or ()), away[-1][0]])
        how = f" askfirst people admit {away[-1][3]}, or" if away[-1][3] else ""
        sections.append(f"To let in who wrote last:{how}\nASKFIRST_ALLOW={visible(allow)}")
    return Answer(found, "\n\n".join(text for text in sections if text))


@_named(people, "admit", "admit", code="CODE")
def _admitted(found: Any) -> str:
    """Let the person with this CODE in, and notify the person."""
    return f"Let in: {visible(found['person'])} {visible(found['name'] or '')}".rstrip()


@_named(people, "remove", "expel", person="PERSON")
def _expelled(found: Any) -> str:
    """Withdraw the access given by a code to PERSON, for example telegram:123:456."""
    return f"No longer let in: {visible(found['person'])}"


@people.command("end-sessions")
@click.argument("person", metavar="PERSON", required=False)
@click.option("--all", "everybody", is_flag=True, help="End the sessions of all people.")
@on_a_store
def people_end_sessions(settings: Settings, person: str | None, *, everybody: bool) -> Answer:
    """End the web chat's sessions of PERSON, webchat:local:SESSION or webchat:site:USER, or all sessions.

    Open pages say so within 15 seconds. A page that is opened anew begins a new session.
    """
    if (person is None) != everybody:
        raise click.UsageError("name one PERSON, or --all")
    found = operate(settings, "end_sessions", person=person or "")
    return Answer(found, "Ended: all sessions." if everybody else f"Ended: the sessions of {visible(found['ended'])}")


@people.command("reseal")
@on_a_store
def people_reseal(settings: Settings) -> Answer:
    """Seal anew with the first key of ASKFIRST_SECRET the people, actions, transcripts and memories of an older one.

    Then the older one can be taken out of it: see `askfirst doctor`.
    """
    found = operate(settings, "reseal")
    return Answer(found, f"Sealed anew: {counted(found) or 'nothing hung on an old key'}.")


def counted(found: Mapping[str, int]) -> str:
    """Return counts by kind in words."""
    return ", ".join(f"{count} {kind}" for kind, count in found.items())


@click.command()
@click.option("--by", type=click.Choice(["person", "conversation", "bot", "day"]), default="day", show_default=True)
@click.option("--since", type=click.DateTime(["%Y-%m-%d"]), metavar="DAY", help="From this day of UTC on: 2026-11-01.")
@on_a_store
def usage(settings: Settings, by: str, since: datetime | None) -> Answer:
    """Show the usage of the model: calls, tokens and cost, for the last two months or since a day."""
    found = operate(settings, "usage", by=by, since="" if since is None else f"{since:%Y-%m-%d}")
    head = (by.upper(), "CALLS", "TOKENS IN", "CACHED", "OUT", "USD", "UNPRICED", "SAVED USD")
    return Answer(found, _table(head, [_usage_row(by, each) for each in found]) or "Nothing was used.")


def _usage_row(by: str, each: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a row of `usage`. Tokens without a known price stand apart: the cost does not include such tokens."""
    counts = (each[name] for name in ("calls", "prompt_tokens", "cached_prompt_tokens", "completion_tokens"))
    cost = "unknown" if each["cost_usd"] is None else f"{each['cost_usd']:.4f}"
    return (each[by], *map(str, counts), cost, str(each["unpriced_tokens"]), f"{each['saved_usd']:.4f}")


@click.command()
@click.argument("action_id", metavar="[ACTION]", default="")
@click.option("--person", default="", metavar="PERSON", help="Only with this person: telegram:123:456.")
@click.option("--since", type=click.DateTime(["%Y-%m-%d"]), metavar="DAY", help="From this day of UTC on: 2026-11-01.")
@click.option("--verify", is_flag=True, help="Check that no line was changed, removed or added.")
@on_a_store
def audit(settings: Settings, action_id: str, person: str, since: datetime | None, *, verify: bool) -> Answer:
    """Show the asks, decisions and runs of actions, with person and time: the last 1,000 lines, or the lines of ACTION.

    The beginning of its ID is enough. With --verify the chains are checked instead, and the command fails if a chain
    is not whole.
    """
    if verify:
        found = operate(settings, "verify_audit", action_id=action_id)
        rows = [(each[:8], fault) for each, fault in sorted(found["faults"].items())]
        plain = _table(("ACTION", "FAULT"), rows) or f"{found['lines']} lines of {found['actions']} actions are whole."
        return Answer(found, plain, failed=bool(rows))
    day = "" if since is None else f"{since:%Y-%m-%d}"
    found = operate(settings, "audit", action_id=action_id, person=person, since=day)
    lines = [(each["at"][:19], each["action"][:8], each["what"], _who(each)) for each in found]
    return Answer(found, _table(("AT (UTC)", "ACTION", "WHAT", "BY"), lines) or "There are no lines.")


def _who(line: Mapping[str, Any]) -> str:
    """Return the person of an audit line, or the pseudonym of a forgotten person."""
    return f"{line['person'][:9]} (forgotten)" if line.get("forgotten") else line["person"] or ""


@click.command()
@click.argument("address")
@click.argument("text")
@on_a_store
def send(settings: Settings, address: str, text: str) -> Answer:
    """Write TEXT, in Markdown, to ADDRESS, for example telegram:123:456 (channel:account:place).

    With - for TEXT it is read from the standard input: else the shell's history keeps it, and the list of processes
    shows it. It goes into the outbox; a running server sends it at once, else the next one does.
    """
    _check_account(settings, address)
    if text == "-":
        text = sys.stdin.read()
    found = operate(settings, "send", address=address, text=text)
    return Answer(found, f"In the outbox of {found['conversation']}")


def _check_account(settings: Settings, address: str) -> None:
    """Refuse the account of another bot: a message there would begin a conversation never read by the other bot."""
    channel, _, rest = address.partition(":")
    if channel not in settings.channels_on():
        return
    mine = settings.channel_settings(channel)
    ours = getattr(load(channel).from_settings(mine, way="polling"), "account", None)
    several = "TWILIO_MESSAGING_SERVICE_SID" in mine
    if ours is not None and rest.partition(":")[0] != ours and not several:
        raise click.ClickException(
            f"{address} is of another bot: this one's account there is {ours}, so write {channel}:{ours}:..."
        )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format rows as columns with headings. Without rows the text is empty."""
    lines = [[visible(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    if not rows:
        return ""
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _listing(found: Mapping[str, Any]) -> str:
    width = max(map(len, found))
    shown = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in found.items()
    }
    return "\n".join(
        f"{name.ljust(width)}  {visible(value)}" for name, value in shown.items() if found[name] is not None
    )


def _age(stamp: str | None) -> str:
    """Return the age of a time stamp in the largest unit, as in ``3h``. Empty for None."""
    if stamp is None:
        return ""
    seconds = max((datetime.now(UTC) - datetime.fromisoformat(stamp)).total_seconds(), 0)
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f}{unit}"
    return f"{seconds:.0f}s"


@click.group()
def conversations() -> None:
    """Conversations: list, show, search, export, forget."""


@conversations.command("list")
@click.option("--person", default="", help="Only where this person has written, for example telegram:123:456.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True)
@on_a_store
def conversations_list(settings: Settings, person: str, limit: int) -> Answer:
    """List the names of the conversations, in order."""
    found = operate(settings, "conversations", person=person, limit=str(limit))
    return Answer(found, "\n".join(map(visible, found)) or "There are no conversations.")


@conversations.command("show")
@click.argument("conversation")
@click.option("--last", type=click.IntRange(1), default=60, show_default=True, help="So many of the last messages.")
@on_a_store
def conversations_show(settings: Settings, conversation: str, last: int) -> Answer:
    """Show the last messages of a CONVERSATION, as the model reads them."""
    found = operate(settings, "history", conversation=conversation, last=str(last))
    return Answer(found, "\n".join(map(_said, found)) or "It has no messages.")


@conversations.command("search")
@click.argument("text")
@click.option("--person", default="", help="Only where this person has written, for example telegram:123:456.")
@click.option("--limit", type=click.IntRange(1), default=5, show_default=True)
@on_a_store
def conversations_search(settings: Settings, text: str, person: str, limit: int) -> Answer:
    """Find the newest messages containing TEXT."""
    found = operate(settings, "search", text=text, person=person, limit=str(limit))
    lines = [f"{each['at'][:19]}  {each['conversation']}\n  {_said(each['message'])}" for each in found]
    return Answer(found, "\n".join(lines) or "It was never said.")


@conversations.command("export")
@click.argument("name")
@on_a_store
def conversations_export(settings: Settings, name: str) -> Answer:
    """Print all stored data of a conversation, or of a person like telegram:123:456, as JSON."""
    found = operate(settings, "export", who=name)
    return Answer(found, json_text(found))


@conversations.command("forget")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask first.")
@on_a_store
def conversations_forget(settings: Settings, name: str, *, yes: bool) -> Answer:
    """Remove all stored data of a conversation, or of a person like telegram:123:456. This cannot be undone.

    In a group the turns of the person go, and the rest stays. Audit lines are kept, without the person's name.
    """
    if not yes:
        click.confirm(f"Remove all that is kept of {visible(name)}? This cannot be undone.", abort=True, err=True)
    found = operate(settings, "forget", who=name)
    gone = ", ".join(f"{count} {what}" for what, count in sorted(found["gone"].items()))
    plain = f"Gone: {gone}." if gone else f"Nothing is kept of {visible(name)}."
    if found["shared"]:
        plain += (
            "\nRedis keeps the removed bytes in its append-only file and snapshots until it writes them anew: "
            "run `redis-cli BGREWRITEAOF` and `redis-cli BGSAVE`."
        )
    return Answer(found, plain)


def _said(message: Mapping[str, Any]) -> str:
    """Return a message on one line."""
    calls = [call["name"] for call in message.get("tool_calls", ())]
    text = message.get("content", "") or (f"calls {', '.join(calls)}" if calls else "")
    return visible(f"{message.get('speaker') or message['role']}: {text}")
