"""Command ``askfirst init``: write a first bot."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

_BOTS = ("tasks", "support", "ops", "orders", "nightly", "site", "mcp")
_BESIDE = {".env.example": "env.example.txt", ".gitignore": "gitignore.txt"}
_SERVERS = {"mcp": {"tickets.py": "tickets.py.txt"}}
"""Template -> the file of a server that the bot starts."""


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path), default=Path())
@click.option(
    "--template",
    type=click.Choice(_BOTS),
    default="tasks",
    help="tasks: a list that asks. support: refunds that a manager decides. ops: restarts, with permissions. "
    "orders: an order desk for WhatsApp. nightly: a job for cron. site: a chat in a site with "
    "a login. mcp: the tools of an MCP server.",
)
def init(directory: Path, template: str) -> None:
    """Write a small bot, its test, an example of its settings and a .gitignore into DIRECTORY (or this one).

    No file is overwritten: when one of the files is there already, none is written.
    """
    bot = {"bot.py": f"{template}.py.txt", "test_bot.py": f"test_{template}.py.txt"}
    written = {**bot, **_SERVERS.get(template, {}), **_BESIDE}
    if there := [name for name in written if (directory / name).exists()]:
        raise click.ClickException(f"nothing was written: {directory} already has {', '.join(there)}")
    directory.mkdir(parents=True, exist_ok=True)
    for name, source in written.items():
        with (directory / name).open("x", encoding="utf-8") as file:
            file.write((files("gateway.cli") / "templates" / source).read_text("utf-8"))
        click.echo(f"Wrote {directory / name}")
    click.echo(f"\nTry it:   askfirst dev {directory / 'bot.py'}\nTest it:  pytest {directory}")
