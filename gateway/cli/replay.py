"""Command ``askfirst replay``: show the bot's answers to recorded requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from pathlib import Path

import click
from pydantic import ValidationError

from channels import AskfirstError, Channel
from channels.direct import DirectChannel
from gateway.assembly import in_memory
from gateway.channel_agent import ChannelAgent
from gateway.cli.bots import BotRef, bot_argument, load_settings
from gateway.cli.process import log_to_stderr
from gateway.cli.replay_channels import named, offline
from gateway.cli.replay_records import Line, RecordedRequest
from gateway.cli.replay_session import Replay
from gateway.cli.replay_transcript import Transcript
from gateway.settings import Settings

_NOTICE = (
    "Nothing is sent, what is confirmed is not run, and no signature is checked: this replay is offline. "
    "The model is called, and tools that do not ask do run."
)


@click.command()
@bot_argument
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
def replay(bot: BotRef, files: Sequence[Path]) -> None:
    """Show the replies and prompts of BOT to the recorded requests in each FILE.

    A FILE has webhook requests, one JSON object in all or one a line: {"channel": "telegram", "body": {...}}, and where
    they matter "headers", "at" (when it came) and "bot_name" (in Telegram groups). "body" is the JSON that the platform
    sent, or its text. In a .txt file each line is a message of one person.

    The store is in memory, and no messages are sent. A confirmed action is not run, but named. The bot's model is
    called, and its tools that run without asking do run.
    """
    settings = load_settings(bot.directory)
    log_to_stderr(settings, settings.log_level if "log_level" in settings.model_fields_set else "ERROR")
    recorded = [one for file in files for one in _read(file)]
    if not recorded:
        raise AskfirstError(f"nothing is recorded in {', '.join(map(str, files))}: write a request or a message a line")
    agent = bot.load()
    click.echo(_NOTICE, err=True)
    asyncio.run(_replayed(agent, settings, recorded))


async def _replayed(bot: ChannelAgent, settings: Settings, recorded: Sequence[RecordedRequest | Line]) -> None:
    transcript = Transcript(click.echo)
    channels: dict[str, Channel] = {DirectChannel.name: offline(DirectChannel.name, settings, transcript)}
    for one in recorded:
        if isinstance(one, RecordedRequest):
            for name in named(one):
                channels.setdefault(name, offline(name, settings, transcript))
    async with in_memory(bot, channels) as engine:
        engine.rehearse(transcript.would_run)
        engine.start()
        replaying = Replay(engine, channels, transcript)
        async with aclosing(replaying):
            for one in recorded:
                await replaying.take(one)


def _read(file: Path) -> Iterator[RecordedRequest | Line]:
    """Yield the records of a file. Raises AskfirstError, which names the faulty line."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise AskfirstError(f"{file} is not in UTF-8 ({error.reason} at byte {error.start}): save it so") from None
    except OSError as error:
        raise AskfirstError(f"{file} cannot be read: {error.strerror}") from error
    if file.suffix == ".txt":
        lines = enumerate(text.splitlines(), 1)
        yield from (Line(source=f"{file}:{number}", text=line.strip()) for number, line in lines if line.strip())
        return
    try:
        whole = json.loads(text)
    except ValueError:
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                yield _record(line, f"{file}:{number}")
    else:
        yield _record(json.dumps(whole), str(file))


def _record(text: str, source: str) -> RecordedRequest:
    try:
        record = RecordedRequest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise AskfirstError(
            f"{source} is no recorded request ({f'{where}: ' if where else ''}{first['msg']}): "
            'write {"channel": "telegram", "body": {...}}, the whole file or one a line'
        ) from None
    record.source = source
    return record
