"""Command ``askfirst chat``: talk to the bot in the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from channels import Person
from channels.direct import DirectChannel, own_place
from gateway.artifacts import Artifact, media_of
from gateway.assembly import in_memory
from gateway.channel_agent import ChannelAgent
from gateway.cli.bots import BotRef, bot_argument, load_settings
from gateway.cli.process import log_to_stderr
from gateway.cli.terminal import from_markdown, visible
from gateway.engine.engine import Engine
from gateway.observe.results import AgentResult
from gateway.pending.prompt import labels
from gateway.pending.words import Intent

__all__ = ["chat"]

PERSON = "you"
_WRITTEN = f"{DirectChannel.name}:-:{PERSON}"


@click.command()
@bot_argument
@click.option(
    "--files",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("askfirst-files"),
    show_default=True,
    help="Where the files are put that the bot sends.",
)
def chat(bot: BotRef, files: Path) -> None:
    """Talk to BOT in the terminal. Answer its questions with a number, a code, yes or no; Ctrl-D ends.

    The conversation is kept in memory alone, and is gone when the command ends.
    """
    settings = load_settings(bot.directory)
    log_to_stderr(settings, settings.log_level if "log_level" in settings.model_fields_set else "ERROR")
    agent = bot.load()
    click.echo(f"{bot.written}, model: {agent.agent.provider.name}. /help shows the commands, Ctrl-D ends.", err=True)
    # The runner is called once for each line. Between lines no code runs, so Ctrl-C at the prompt ends the command.
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        engine = runner.run(stack.enter_async_context(in_memory(agent)))
        try:
            choices: list[_ButtonChoice] = []
            for line in _lines():
                pressed = next((choice for number, choice in enumerate(choices, 1) if line == str(number)), None)
                said = agent.ask_channel(PERSON, line) if pressed is None else pressed.press(agent)
                _show(runner.run(said), engine, files)
                choices = runner.run(_open(engine))
                if choices:
                    click.echo("  ".join(f"{number} {choice.label}" for number, choice in enumerate(choices, 1)) + "\n")
        finally:
            runner.run(stack.aclose())


@dataclass(frozen=True, slots=True)
class _ButtonChoice:
    """A button of an open question."""

    label: str
    intent: Intent
    action_id: str

    async def press(self, agent: ChannelAgent) -> AgentResult:
        return await agent.decide(_WRITTEN, self.intent, action_id=self.action_id)


async def _open(engine: Engine) -> list[_ButtonChoice]:
    """Return the buttons of the open questions, oldest question first. The person presses them by number."""
    conversation = engine.context.conversation(own_place(Person.parse(_WRITTEN)))
    actions = (await engine.context.actions(conversation)).open_for(_WRITTEN)
    return [
        _ButtonChoice(visible(label), intent, action.pending_action_id)
        for action in actions
        for label, intent in labels(action, several=len(actions) > 1)
    ]


def _lines() -> Iterator[str]:
    """Yield the lines that the person writes, until Ctrl-D or Ctrl-C."""
    prompt = "> " if sys.stdin.isatty() else ""
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while True:
            if line := input(prompt).strip():
                yield line


def _show(result: AgentResult, engine: Engine, files: Path) -> None:
    if result.content:
        click.echo(from_markdown(result.content) + "\n")
    for artifact in result.artifacts:
        click.echo(f"[file: {_saved(artifact, engine, files)}]\n")


def _saved(artifact: Artifact, engine: Engine, files: Path) -> Path:
    """Copy a file into the directory, under a numbered name if its own is taken."""
    media = media_of(artifact)
    files.mkdir(parents=True, exist_ok=True)
    number, path = 1, files / media.filename
    while path.exists():
        number += 1
        path = files / f"{Path(media.filename).stem}-{number}{Path(media.filename).suffix}"
    shutil.copyfile(engine.context.artifacts.open(media).path, path)
    return path
