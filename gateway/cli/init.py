"""Command ``askfirst init``: write a first bot."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

_TEMPLATES = {
    "bot.py": "bot.py.txt",
    "test_bot.py": "test_bot.py.txt",
    ".env.example": "env.example.txt",
    ".gitignore": "gitignore.txt",
}


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path), default=Path())
def init(directory: Path) -> None:
    """Write a small bot, its test, an example of its settings and a .gitignore into DIRECTORY (or this one).

    No file is overwritten: when one of the files is there already, none is written.
    """
    if there := [name for name in _TEMPLATES if (directory / name).exists()]:
        raise click.ClickException(f"nothing was written: {directory} already has {', '.join(there)}")
    directory.mkdir(parents=True, exist_ok=True)
    for name, template in _TEMPLATES.items():
        with (directory / name).open("x", encoding="utf-8") as file:
            file.write((files("gateway.cli") / "templates" / template).read_text("utf-8"))
        click.echo(f"Wrote {directory / name}")
    click.echo(f"\nTry it:   askfirst dev {directory / 'bot.py'}\nTest it:  pytest {directory}")
