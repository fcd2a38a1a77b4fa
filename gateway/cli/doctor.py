"""Command ``askfirst doctor``: check that a bot can be served, with a line for each finding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime

import click

from channels import AskfirstError, MissingSetting
from gateway.channel_agent import ChannelAgent
from gateway.cli import checks
from gateway.cli.bots import BotRef, bot_argument, load_settings
from gateway.cli.checks import Finding, faults, looked
from gateway.cli.terminal import json_text
from gateway.config.suggestions import misspelt


@click.command()
@bot_argument
@click.option("--model", "asks_model", is_flag=True, help="Have the model answer too: one tiny request.")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
def doctor(bot: BotRef, *, asks_model: bool, as_json: bool) -> None:
    """Check whether BOT can be served. The exit code is 1 when a fault would prevent it.

    It checks the settings, the bot file, the tools that run unasked, the model and its key, the previews of calls, the
    approvers that tools name, the platforms, their tokens and the URL they have registered, the store and the directory
    of files. It changes no data, and a running server goes on. Preview functions whose arguments have defaults or
    examples are called twice.
    """
    findings: list[Finding] = []
    for finding in _findings(bot, asks_model=asks_model):
        findings.append(finding)
        if not as_json:
            mark = "FAULT" if not finding.ok else "warn " if finding.warns else "ok   "
            click.echo(f"{mark} {finding.check}: {finding.says}")
    if as_json:
        click.echo(json_text([asdict(finding) for finding in findings]))
    if not all(finding.ok for finding in findings):
        raise click.exceptions.Exit(1)


def _findings(bot: BotRef, *, asks_model: bool) -> Iterator[Finding]:
    try:
        settings = load_settings(bot.directory)
    except MissingSetting as error:
        yield from faults("settings", error)
        return
    yield from looked("settings", lambda: checks.settings(settings))
    yield from (Finding("settings", True, warning, warns=True) for warning in misspelt())
    agent: ChannelAgent | None = None
    try:
        agent = bot.load()
    except AskfirstError as error:
        # The first line names the file. The last line, of the author's traceback, names the error.
        yield Finding("bot", False, " ".join(dict.fromkeys([str(error).splitlines()[0], str(error).splitlines()[-1]])))
    else:
        yield Finding("bot", True, f"{bot.written} is loaded")
        yield from checks.tools(agent)
        yield from looked("model", lambda: checks.model(agent, asks=asks_model))
        if (found := checks.prices(datetime.now(UTC))) is not None:
            yield found
        yield from checks.previews(agent, bot.written)
        yield from checks.approvers(agent, settings)
        yield from checks.wording(agent, settings)
    yield from checks.platforms(settings, bot.written)
    own = agent.store if agent is not None else None
    placed = settings.model_copy(update={"store": own}) if isinstance(own, str) else settings
    yield from looked("store", lambda: checks.store(placed))
    if len(placed.keys) > 1:
        yield from checks.seals(placed)
    yield from looked("artifacts", lambda: checks.artifacts(placed))
