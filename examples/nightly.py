"""A job without a server, for cron: an agent tidies up, and each deletion is decided in the terminal or by a rule.

Run it with: python examples/nightly.py "delete report R-2019"

In a terminal it asks you. Without one, as under cron, it deletes small reports and leaves the rest to a person.
"""

import asyncio
import sys

from askfirst import Agent, AgentConfig, ChannelAgent, PendingAction, Preview, tool

REPORTS = {"R-2019": 4, "R-2020": 900}
"""Number -> megabytes."""
SMALL_MB = 10


@tool(read_only=True)
def list_reports() -> dict[str, int]:
    """List the reports and how many megabytes each takes."""
    return REPORTS


async def about_to_delete(report: str) -> Preview:
    """Return the question. An error goes to the model instead, and the person is not asked."""
    if report not in REPORTS:
        raise ValueError(f"There is no report {report}.")
    return Preview(text=f"Delete report {report} for good?", table=[("Size", f"{REPORTS[report]} MB")])


@tool(confirm=about_to_delete, idempotent=True)
async def delete_report(report: str) -> str:
    """Delete a report for good."""
    REPORTS.pop(report, None)
    return f"Report {report} is deleted."


bot = ChannelAgent(
    Agent([list_reports, delete_report], instructions="You tidy up reports.", config=AgentConfig(name="Nightly"))
)


def agreed(action: PendingAction) -> bool:
    """Decide a question: by a key in the terminal, else by the rule."""
    if sys.stdin.isatty():
        return input(f"{action.preview} {dict(action.args)} [y/N] ").strip().lower() == "y"
    return REPORTS[str(action.args["report"])] <= SMALL_MB


async def main(message: str) -> None:
    async with bot:  # in memory; ChannelAgent(..., store="sqlite:///nightly.db") keeps transcripts and audit
        said = await bot.ask_channel("cron", message)
        if not said.pending:
            print(said.content)
        for action in said.pending:  # No report has been deleted yet.
            person, number = action.requester, action.pending_action_id
            done = await bot.decide(person, "confirm" if agreed(action) else "cancel", action_id=number)
            print(done.content)


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or "list reports"))
