"""Writes the list of docs/commands.md from the command line's own parser: each command with its options.

The examples are listed here. ``python -m scripts.commands`` rewrites the list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import cleandoc
from pathlib import Path
from typing import Final

import click

from gateway.cli import main

__all__ = ["EXAMPLES", "PAGE", "leaves", "written"]

PAGE: Final = Path(__file__).parent.parent / "docs" / "commands.md"
_BEGIN: Final = "<!-- commands: written by `make commands` -->\n"
_END: Final = "<!-- /commands -->"
_SHARED: Final = {"--bot BOT": "`--bot`", "--json": "`--json`"}
"""Options that the page describes once -> their names."""

EXAMPLES: Final[Mapping[str, str]] = {
    "audit": "--since 2026-11-01 --person telegram:123456:789",
    "chat": "bot.py",
    "conversations export": "telegram:123456:789",
    "conversations forget": "telegram:123456:789 --yes",
    "conversations list": "--person telegram:123456:789",
    "conversations search": "'Blue Bakery' --limit 20",
    "conversations show": "invoices/telegram:123456:789 --last 10",
    "dead drop": "--reason 'blocked by the user'",
    "dead list": "--json",
    "dead replay": "3f2a",
    "dead show": "3f2a",
    "dev": "bot.py --port 8090",
    "doctor": "bot.py --model",
    "init": "mybot --template support",
    "pending cancel": "3f2a",
    "pending list": "--bot bot.py",
    "pending settle": "3f2a done",
    "pending show": "3f2a",
    "people admit": "K7P2-QX4M --bot bot.py",
    "people end-sessions": "--all",
    "people list": "--bot bot.py",
    "people remove": "telegram:123456:789",
    "people reseal": "--bot bot.py",
    "preview": """bot.py delete_invoice '{"invoice_id": "INV-42"}' --person telegram:123456:789""",
    "replay": "bot.py report.jsonl",
    "send": "telegram:123456:789 'The report is **ready**.'",
    "serve": "bot.py --host 127.0.0.1",
    "slack manifest": "bot.py",
    "tools": "bot.py",
    "usage": "--by person --since 2026-11-01",
    "version": "",
    "waiting": "--json",
    "waiting put-aside": "invoices/telegram:123456:789",
    "webhooks delete": "bot.py",
    "webhooks set": "bot.py",
    "webhooks show": "bot.py",
}
"""Command -> what is typed after it."""


def written(page: str) -> str:
    """Return the page with the current list of the commands."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    entries = "\n\n".join(_entry(name, command) for name, command in leaves())
    return f"{before}{_BEGIN}\n{entries}\n\n{_END}{after}"


def leaves(command: click.Command = main, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield each command that can be called, with its name after ``askfirst``."""
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield name, command
    if not isinstance(command, click.Group):
        return
    context = click.Context(command)
    for word in command.list_commands(context):
        inner = command.get_command(context, word)
        assert inner is not None, word
        yield from leaves(inner, f"{name} {word}".lstrip())


def _entry(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=f"askfirst {name}")
    arguments = [piece for piece in click.Command.collect_usage_pieces(command, context) if piece != "[OPTIONS]"]
    example = f"askfirst {name} {EXAMPLES[name]}".rstrip()
    pieces = [
        f"## {name}",
        f"`{' '.join(['askfirst', name, *arguments])}`",
        cleandoc(command.help or ""),
        f"```sh\n{example}\n```",
    ]
    return "\n\n".join([*pieces, *_options(command, context)])


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    records = dict(filter(None, (param.get_help_record(context) for param in command.get_params(context))))
    # The help of a command that was run before is written "-h, --help".
    told = {option: what for option, what in records.items() if what and not option.endswith("--help")}
    own = {option: what for option, what in told.items() if option not in _SHARED}
    if own:
        yield "\n".join(f"- `{option}`: {' '.join(what.split())}" for option, what in own.items())
    if shared := [name for option, name in _SHARED.items() if option in records]:
        yield f"Also: {' and '.join(shared)}."


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), encoding="utf-8")
