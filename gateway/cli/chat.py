"""Command ``askfirst chat``: talk to the bot in the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import mimetypes
import re
import shlex
import shutil
import sys
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_lowercase
from typing import Final

import click

from channels import Attachment, Person, Undeliverable
from channels.direct import DirectChannel, own_place
from channels.events import kind_of
from channels.transfer import read_pieces
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

PERSON = "you"
_WRITTEN = f"{DirectChannel.name}:-:{PERSON}"
_FILE: Final = re.compile(r"""/file\s+("[^"]*"|'[^']*'|(?:\\.|[^\s\\])+)\s*(.*)""", re.DOTALL)
"""A path, written as for a shell, and the words beside the file. A terminal writes a dropped file's path so."""


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
    """Talk to BOT in the terminal. Answer its questions with a letter, a code, yes or no; Ctrl-D ends.

    Several questions at once have numbers, which confirm: `1, 3`.

    `/file PATH words` sends a file and the words beside it.

    The conversation is kept in memory alone, and is gone when the command ends.
    """
    settings = load_settings(bot.directory)
    log_to_stderr(settings, settings.log_level if "log_level" in settings.model_fields_set else "ERROR")
    agent = bot.load()
    keys = "/help shows the commands, /file PATH sends a file, Ctrl-D ends."
    click.echo(f"{bot.written}, model: {agent.agent.provider.name}. {keys}", err=True)
    # The runner is called once for each line. Between lines no code runs, so Ctrl-C at the prompt ends the command.
    terminal = _TerminalChannel()
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        engine = runner.run(stack.enter_async_context(in_memory(agent, {terminal.name: terminal})))
        try:
            letters = _Letters()
            for line in _lines():
                pressed = letters.given.get(line.lower())
                if pressed is not None:
                    said = pressed.press(agent)
                elif line.partition(" ")[0] != "/file":
                    said = agent.ask_channel(PERSON, line)
                elif (sent := _file(line, terminal)) is not None:
                    said = agent.ask_channel(PERSON, sent.words, attachments=[sent.attachment])
                else:
                    continue
                _show(runner.run(said), engine, files)
                if shown := [f"{letters.name(choice)} {choice.label}" for choice in runner.run(_open(engine))]:
                    click.echo("  ".join(shown) + "\n")
        finally:
            runner.run(stack.aclose())


class _TerminalChannel(DirectChannel):
    """The channel of the bot's own code, with the files sent by the person from the terminal.

    A person at a terminal reads the messages in order, so numbers can answer a list.
    """

    capabilities = replace(DirectChannel.capabilities, numbers=True)

    def __init__(self) -> None:
        self._offered: dict[str, Path] = {}

    def offer(self, path: Path) -> str:
        """Return the `ref` of a file of this machine. The `ref` is no path, so words can open no further file."""
        ref = f"file-{len(self._offered) + 1}"
        self._offered[ref] = path
        return ref

    async def fetch(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file sent here. Raises Undeliverable for other refs."""
        path = self._offered.get(attachment.ref)
        if path is None:
            raise Undeliverable("not_a_file")
        async for piece in read_pieces(path):
            yield piece


@dataclass(frozen=True, slots=True)
class _ButtonChoice:
    """A button of an open question."""

    label: str
    intent: Intent
    action_id: str

    async def press(self, agent: ChannelAgent) -> AgentResult:
        return await agent.decide(_WRITTEN, self.intent, action_id=self.action_id)


@dataclass(frozen=True, slots=True)
class _SentFile:
    """A file sent by the person, with the words beside the file."""

    attachment: Attachment
    words: str


def _file(line: str, terminal: _TerminalChannel) -> _SentFile | None:
    """Return the file of a `/file` line. Without a readable file, print the reason and return None."""
    found = _FILE.fullmatch(line)
    if found is None:
        click.echo("/file needs a path: /file notes.pdf what does it say?\n", err=True)
        return None
    path = Path("".join(shlex.split(found[1]))).expanduser().absolute()
    if not path.is_file():
        click.echo(f"{visible(str(path))} is not a file.\n", err=True)
        return None
    mime_type, _ = mimetypes.guess_type(path.name)
    attachment = Attachment(
        kind=kind_of(mime_type or ""),
        ref=terminal.offer(path),
        mime_type=mime_type,
        filename=path.name,
        size=path.stat().st_size,
    )
    return _SentFile(attachment, found[2])


async def _open(engine: Engine) -> list[_ButtonChoice]:
    """Return the buttons of the open questions, oldest question first. A letter presses a button."""
    conversation = engine.context.conversation(own_place(Person.parse(_WRITTEN)))
    actions = (await engine.context.actions(conversation)).open_for(_WRITTEN)
    return [
        _ButtonChoice(visible(label), intent, action.pending_action_id)
        for action in actions
        for label, intent in labels(action, several=len(actions) > 1)
    ]


class _Letters:
    """The names of buttons: a, b, c ..., then a2, b2 ... A name is given once, so a late line presses no other button.

    A number names a question. The letters y and n are answers, and so are words of two letters.
    """

    def __init__(self) -> None:
        self.given: dict[str, _ButtonChoice] = {}
        """Name -> button, also of closed questions: a late press is answered with the state of the question."""
        letters = sorted({*ascii_lowercase} - {"y", "n"})
        rounds: Iterator[str] = itertools.chain([""], map(str, itertools.count(2)))
        self._names: Iterator[str] = (letter + number for number in rounds for letter in letters)

    def name(self, choice: _ButtonChoice) -> str:
        """Return the name of a button: an already given name, or the next name."""
        for name, named in self.given.items():
            if (named.action_id, named.intent) == (choice.action_id, choice.intent):
                return name
        name = next(self._names)
        self.given[name] = choice
        return name


def _lines() -> Iterator[str]:
    """Yield the lines written by the person, until Ctrl-D or Ctrl-C."""
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
    """Copy a file into the directory, under a numbered name if the file's own name is taken."""
    media = media_of(artifact)
    files.mkdir(parents=True, exist_ok=True)
    number, path = 1, files / media.filename
    while path.exists():
        number += 1
        path = files / f"{Path(media.filename).stem}-{number}{Path(media.filename).suffix}"
    shutil.copyfile(engine.context.artifacts.open(media).path, path)
    return path
