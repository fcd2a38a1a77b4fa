"""The bot of a world: a model that obeys people word by word, and tools that all ask."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from channels import Json, Person
from gateway import Agent, Approvers, ChannelAgent, Confirm, Preview, Standing, ToolContext, tool
from gateway.providers.base import Request, Response, ToolCall
from tests.machine.permissions import PERMITTED_COPIES, PERMITTED_SECONDS, PERMITTED_USES
from tests.machine.things import APPROVERS, SIGNERS, STANDIN, TTL

if TYPE_CHECKING:
    from tests.machine.world import World

__all__ = [
    "CALLED_AGAIN",
    "TOOLS",
    "WORDS",
    "copies_in",
    "invoices_in",
    "make_bot",
    "meaning",
    "person",
    "signers",
    "wish_in",
]

TOOLS = ("pay", "archive", "move", "send", "file", "sign", "share", "copy", "stamp")
_OUTLASTED_SECONDS = 0.2
"""The timeout of the one tool run in a thread."""
_LONG_NOTE = "x" * 2_500
"""One message has room for two of these notes, not for three."""
CALLED_AGAIN = 2
"""The calls of a wish that ends with ``again``."""
_WAITING = re.compile(r"^- (q\d+), .*(INV-\d+)", re.MULTILINE)


class Model:
    """``pay INV-1 INV-2`` and the like call the tools, also behind ``yes, but``; all other text is talk.

    ``copy INV-1 2 3`` ends with a folder, and perhaps a number of copies. ``withdraw INV-1``, perhaps with another wish
    behind it, takes a question back. ``stamp INV-1 again`` calls the tool once more in the turn after the tool's end.
    """

    name = "test"

    def __init__(self, world: World) -> None:
        self._world = world

    async def complete(self, request: Request) -> Response:
        users = [number for number, message in enumerate(request.messages) if message.role == "user"]
        last = users[-1] if users else 0
        said = request.messages[last].content if users else ""
        since = [message.role for message in request.messages[last:]]
        taken = [] if "tool" in since else self._taken_back(request, said)
        verb, *words = wish_in(said).split() or [""]
        again = "again" in words and self._calls_again(words[0])
        calls = []
        if taken:
            calls.append(ToolCall(call_id="w", name="withdraw_question", args={"questions": list[Json](taken)}))
        if verb in TOOLS and (again or ("tool" not in since and "again" not in words)):
            calls += _calls(verb, words, len(request.messages) if again else 0)
        return Response(tool_calls=tuple(calls), finish="tools") if calls else Response(content="I see.")

    def _calls_again(self, invoice: str) -> bool:
        self._world.called[invoice] += 1
        return self._world.called[invoice] <= CALLED_AGAIN

    def _taken_back(self, request: Request, said: str) -> list[str]:
        """Return the names of the questions that the person wants to take back."""
        if not said.startswith("withdraw "):
            return []
        wanted = invoices_in(said)[:1]
        notes = "\n".join(message.content for message in request.messages if message.role == "event")
        taken = {name: invoice for name, invoice in _WAITING.findall(notes) if invoice in wanted}
        self._world.taken_back |= {*taken.values()}
        return list(taken)

    async def stream(self, request: Request) -> Any:
        yield await self.complete(request)

    async def close(self) -> None:
        """Release no resource."""


def _calls(verb: str, words: list[str], turn: int) -> list[ToolCall]:
    invoices, more = invoices_in(" ".join(words)), dict[str, Json]()
    if verb == "copy":
        more = {"folder": words[len(invoices)], "copies": copies_in(" ".join(words))}
    if verb == "archive" and len(invoices) > 1:
        more = {"note": _LONG_NOTE}
    return [
        ToolCall(call_id=f"c{turn}/{number}", name=verb, args={"invoice_id": each, **more})
        for number, each in enumerate(invoices)
    ]


def make_bot(world: World) -> ChannelAgent:
    """Return the bot of the release known to the witness."""
    release = world.witness.release
    version = str(release)

    async def where(invoice_id: str) -> str:
        return f"Move invoice {invoice_id} to folder {world.folder}?"

    async def to_stamp(invoice_id: str) -> Preview:
        return Preview(text=f"Stamp invoice {invoice_id} to folder {world.folder}?", precondition=str(world.folder))

    approvers = Approvers(people=_people(APPROVERS), need=2)
    all_three = Approvers(people=_people(APPROVERS), need=2, requester=True)
    copying = Standing(
        max_seconds=PERMITTED_SECONDS,
        max_uses=PERMITTED_USES,
        same=["folder"],
        free=["invoice_id"],
        most={"copies": PERMITTED_COPIES},
    )
    stamping = Standing(max_seconds=PERMITTED_SECONDS, max_uses=PERMITTED_USES, free=["invoice_id"])

    @tool(confirm="Pay invoice {invoice_id}?", version=version)
    async def pay(invoice_id: str, ctx: ToolContext) -> str:
        """Pay an invoice."""
        return await world.effect("pay", invoice_id, ctx, release)

    @tool(confirm="Archive invoice {invoice_id}?", idempotent=True, version=version)
    async def archive(invoice_id: str, ctx: ToolContext, note: str = "") -> str:
        """Archive an invoice."""
        return await world.effect("archive", invoice_id, ctx, release)

    @tool(confirm=Confirm(where, after="resume"), version=version)
    async def move(invoice_id: str, ctx: ToolContext) -> str:
        """Move an invoice to where it belongs now."""
        return await world.effect("move", invoice_id, ctx, release)

    @tool(confirm=Confirm("Send invoice {invoice_id}?", approvers=approvers, ttl_seconds=TTL), version=version)
    async def send(invoice_id: str, ctx: ToolContext) -> str:
        """Send an invoice."""
        return await world.effect("send", invoice_id, ctx, release)

    @tool(
        confirm="File invoice {invoice_id}?",
        lock="{invoice_id}",
        timeout_seconds=_OUTLASTED_SECONDS,
        version=version,
    )
    def file(invoice_id: str, ctx: ToolContext) -> str:
        """File an invoice."""
        return world.filed(invoice_id, ctx, release)

    @tool(confirm=Confirm("Sign invoice {invoice_id}?", approvers=signers(world), ttl_seconds=TTL), version=version)
    async def sign(invoice_id: str, ctx: ToolContext) -> str:
        """Sign an invoice."""
        return await world.effect("sign", invoice_id, ctx, release)

    @tool(confirm=Confirm("Share invoice {invoice_id}?", approvers=all_three, ttl_seconds=TTL), version=version)
    async def share(invoice_id: str, ctx: ToolContext) -> str:
        """Share an invoice."""
        return await world.effect("share", invoice_id, ctx, release)

    @tool(confirm=Confirm("Copy invoice {invoice_id} to folder {folder}?", standing=copying), version=version)
    async def copy(invoice_id: str, folder: str, ctx: ToolContext, copies: int = 1) -> str:
        """Copy an invoice to a folder."""
        return await world.effect("copy", invoice_id, ctx, release, folder=folder, copies=copies)

    @tool(confirm=Confirm(to_stamp, after="resume", standing=stamping), version=version)
    async def stamp(invoice_id: str, ctx: ToolContext) -> str:
        """Stamp an invoice, and put it where it belongs now."""
        return await world.effect("stamp", invoice_id, ctx, release)

    tools = [pay, archive, move, send, file, sign, share, copy, stamp]
    return ChannelAgent(Agent(tools, provider=Model(world)))


def signers(world: World) -> Approvers:
    """Return the present signers."""
    return Approvers(people=_people(SIGNERS - world.witness.removed), need=2, standin=_people({STANDIN}))


def person(name: str) -> Person:
    return Person(channel="test", account="bot", user_id=name, name=name.capitalize())


def wish_in(text: str) -> str:
    """Return the wish of a person, without the words that withdraw another wish."""
    if text.startswith("withdraw "):
        return " ".join(text.split()[2:])
    return text.rpartition(", but ")[2]


def invoices_in(text: str) -> list[str]:
    return [word for word in text.split() if word.startswith("INV-")]


def copies_in(text: str) -> int:
    """Return the number behind the folder, or 1."""
    numbers = [word for word in text.split() if word.isdecimal()]
    return int(numbers[1]) if len(numbers) > 1 else 1


_MEANINGS: dict[str, Callable[[int], Sequence[int]]] = {
    "1,3": lambda last: (1, 3),
    "3 and 1": lambda last: (1, 3),
    "1": lambda last: (1,),
    "2": lambda last: (2,),
    "only 2": lambda last: (2,),
    "the first two": lambda last: (1, 2),
    "the first": lambda last: (1,),
    "both": lambda last: (1, 2) if last == 2 else (),
    "all": lambda last: range(1, last + 1),
    "all but 2": lambda last: [number for number in range(1, last + 1) if number != 2] if last > 1 else (),
    "4": lambda last: (4,),
    "none": lambda last: (),
    "1?": lambda last: (),
    "2 if it is paid": lambda last: (),
}
WORDS = tuple(_MEANINGS)
"""The answers of people under a list."""


def meaning(words: str, last: int) -> Sequence[int]:
    """Return the numbers that these words confirm in a list up to `last`."""
    return _MEANINGS[words](last)


def _people(names: Iterable[str]) -> list[str]:
    return [str(person(name)) for name in sorted(names)]
