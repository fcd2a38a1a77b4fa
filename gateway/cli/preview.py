"""Command ``askfirst preview``: show the prompt of a call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from channels import Address, AskfirstError, Json, Person, Reply
from gateway.assembly import in_memory
from gateway.channel_agent import ChannelAgent
from gateway.cli.bots import BotRef, bot_argument, load_settings
from gateway.cli.terminal import from_markdown, lines
from gateway.cli.tools import list_sources
from gateway.pending.actions import codes_of
from gateway.pending.ballots import ballot_record
from gateway.pending.prompt import full_text
from gateway.pending.prompting import show_prompt
from gateway.pending.propose import ProposalRefused, asked_elsewhere, propose_action
from gateway.pending.tokens import make_code
from gateway.tools import Preview, Tool, ToolContext, ToolError
from gateway.tools.approver_places import place_of
from gateway.tools.confirm import LAUNCH_PREVIEW_SECONDS, changed
from gateway.tools.pending_action import Ballot

_PERSON = "app:-:preview"


@click.command()
@bot_argument
@click.argument("tool_name", metavar="TOOL")
@click.argument("arguments", metavar="JSON", default="{}")
@click.option("--person", "written", default=_PERSON, help="Who asks, like telegram:123:456; ctx.person of a preview.")
@click.option("--markdown", is_flag=True, help="As it is written, before a platform's own formatting.")
def preview(bot: BotRef, tool_name: str, arguments: str, *, written: str, markdown: bool) -> None:
    """Show the exact prompt before TOOL of BOT runs with these arguments, or why it would not be asked.

    With approvers in other chats, the question to each of them follows.

    JSON is an object like '{"invoice_id": "INV-42"}'. The tool's own preview function runs, twice, and a warning says
    when the two previews differ: a confirmed call would then not run. The tool itself does not run.
    """
    try:
        given = json.loads(arguments)
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint="JSON") from None
    if not isinstance(given, dict):
        raise click.BadParameter('write an object, such as \'{"invoice_id": "INV-42"}\'', param_hint="JSON")
    try:
        person = Person.parse(written)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--person") from None
    load_settings(bot.directory)
    agent = bot.load()
    list_sources(agent)
    tool = agent.tool(tool_name)
    if tool is None:
        raise click.BadParameter(f"there is none of that name, only {', '.join(agent.agent.reach)}", param_hint="TOOL")
    prompts, file, warning = asyncio.run(_prompts(agent, tool, given, person))
    if file:
        click.echo(f"{file}\n")
    for number, shown in enumerate(prompts):
        if number:
            click.echo("\nEach approver reads:\n")
        click.echo(shown.text if markdown else from_markdown(shown.text))
        click.echo("\n" + "  ".join(f"[ {button.label} ]" for button in shown.buttons))
    if warning:
        click.echo(f"\nwarning: {warning}", err=True)


async def _prompts(
    bot: ChannelAgent, tool: Tool, given: Mapping[str, Any], person: Person
) -> tuple[list[Reply], str, str]:
    """Return the prompts, the text of the file, and a warning when the preview differs from call to call.

    The prompts are the requester's, and an approver's if approvers are asked elsewhere. Raises AskfirstError for a
    call without a prompt.
    """
    args, language = tool.validate(given), bot.language or "en"
    _check_policy(bot, tool, args)
    address = Address(channel=person.channel, account=person.account, place=person.user_id)
    async with in_memory(bot) as engine:
        context = ToolContext(
            person=str(person), language=language, deps=bot.deps, now=engine.context.wall_clock, address=address
        )
        try:
            seen, warning = await previewed_twice(tool, args, context)
        except ValueError as error:
            raise AskfirstError(f"nobody is asked, the model is told: {error}") from error
        except ToolError as error:
            raise AskfirstError(f"nobody is asked, the preview failed: {error}") from error
        actions = await engine.context.actions(engine.context.conversation(address))
        rule = await tool.named_approvers()
        elsewhere = asked_elsewhere(rule, str(person), address)
        proposed = propose_action(
            actions,
            tool,
            args,
            seen,
            person=person,
            address=address,
            language=language,
            turn_started=actions.now,
            answer_window_seconds=bot.answer_window_seconds,
            ballots={
                each: Ballot(person=each, conversation=f"preview/{each}", address=place_of(each)) for each in elsewhere
            },
            approvers=rule,
        )
        if isinstance(proposed, ProposalRefused):
            raise AskfirstError(proposed.why)
        show_prompt(actions, [actions.ask(proposed)])
        file = full_text(proposed) if actions.filed else ""
        if asked := [ballot for ballot in proposed.ballots if ballot.state == "asked"]:
            question = replace(ballot_record(proposed, asked[0], actions.now), code=make_code(codes_of([proposed])))
            actions.put(question, "ballot_asked", proposed.requester, actions.now)
            show_prompt(actions, [question])
        return [said.reply for said in actions.says], lines(file).rstrip("\n"), warning


def _check_policy(bot: ChannelAgent, tool: Tool, args: Mapping[str, Json]) -> None:
    policy = bot.policy(tool.name)
    decision, rule = policy.decide(tool.name, args) if policy is not None else ("allow", "")
    if decision == "deny":
        raise AskfirstError(f"{tool.name} never runs: the policy denies it ({rule})")
    if decision == "allow" and tool.confirm is None:
        raise AskfirstError(f"{tool.name} does not ask: it has no confirm=, and no policy wants it reviewed")


async def previewed_twice(tool: Tool, args: Mapping[str, Json], context: ToolContext) -> tuple[Preview, str]:
    """Return the preview of a call, and a warning when a second preview differs. No warning for a volatile tool.

    Raises the errors of `Tool.preview`.
    """
    preview = await tool.preview(args, context, timeout_seconds=LAUNCH_PREVIEW_SECONDS)
    if tool.volatile:
        return preview, ""
    differs = changed(preview, await tool.preview(args, context, timeout_seconds=LAUNCH_PREVIEW_SECONDS))
    if not differs:
        return preview, ""
    mend = (
        "leave out of precondition= what changes by itself"
        if differs == ["precondition"]
        else "return a Preview with precondition=, which alone is then compared"
    )
    return preview, (
        f"two previews of {tool.name} differ in their {' and '.join(differs)}, so a confirmed call would not run: "
        f"{mend}, or write Confirm(..., volatile=True)"
    )
