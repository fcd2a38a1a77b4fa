"""Commands ``askfirst conversations``: list, show, search, export and forget.

They work on a store, with its server up or down.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from gateway.cli.control_socket import operate
from gateway.cli.operator_commands import on_a_store, tell
from gateway.cli.terminal import json_text, visible
from gateway.settings import Settings


@click.group()
def conversations() -> None:
    """Conversations: list, show, search, export and forget them."""


@conversations.command("list")
@click.option("--person", default="", help="Only where this person has written, for example telegram:123:456.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True)
@on_a_store
def conversations_list(settings: Settings, person: str, limit: int, *, as_json: bool) -> None:
    """List the names of the conversations, in order."""
    found = operate(settings, "conversations", person=person, limit=str(limit))
    tell(found, as_json=as_json, plain="\n".join(map(visible, found)) or "There are no conversations.")


@conversations.command("show")
@click.argument("conversation")
@click.option("--last", type=click.IntRange(1), default=60, show_default=True, help="So many of the last messages.")
@on_a_store
def conversations_show(settings: Settings, conversation: str, last: int, *, as_json: bool) -> None:
    """Show the last messages of a CONVERSATION, as the model reads them."""
    found = operate(settings, "history", conversation=conversation, last=str(last))
    tell(found, as_json=as_json, plain="\n".join(map(_said, found)) or "It has no messages.")


@conversations.command("search")
@click.argument("text")
@click.option("--person", default="", help="Only where this person has written, for example telegram:123:456.")
@click.option("--limit", type=click.IntRange(1), default=5, show_default=True)
@on_a_store
def conversations_search(settings: Settings, text: str, person: str, limit: int, *, as_json: bool) -> None:
    """Find the newest messages that contain TEXT."""
    found = operate(settings, "search", text=text, person=person, limit=str(limit))
    lines = [f"{each['at'][:19]}  {each['conversation']}\n  {_said(each['message'])}" for each in found]
    tell(found, as_json=as_json, plain="\n".join(lines) or "It was never said.")


@conversations.command("export")
@click.argument("name")
@on_a_store
def conversations_export(settings: Settings, name: str, *, as_json: bool) -> None:
    """Print all that is kept of a conversation, or of a person like telegram:123:456, as JSON."""
    click.echo(json_text(operate(settings, "export", who=name)))


@conversations.command("forget")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask first.")
@on_a_store
def conversations_forget(settings: Settings, name: str, *, yes: bool, as_json: bool) -> None:
    """Remove all that is kept of a conversation, or of a person like telegram:123:456. It cannot be undone.

    In a group the turns of the person go, and the rest stays. Lines of the audit stay, and tell of no person any more.
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
    tell(found, as_json=as_json, plain=plain)


def _said(message: Mapping[str, Any]) -> str:
    """Return a message on one line."""
    calls = [call["name"] for call in message.get("tool_calls", ())]
    text = message.get("content", "") or (f"calls {', '.join(calls)}" if calls else "")
    return visible(f"{message.get('speaker') or message['role']}: {text}")
