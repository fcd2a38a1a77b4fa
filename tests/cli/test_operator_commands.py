"""An operator's commands: equal answers with the server up and down, and a report to the person."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from channels import Address
from channels import Person as Newcomer
from gateway import Agent, ChannelAgent
from gateway.assembly import open_store
from gateway.engine.intake.inbox import Shapes
from gateway.engine.strangers import Newcomers
from gateway.operations.base import NotDone
from gateway.operations.control_server import control, socket_file
from gateway.operations.dead_letters import LETTERS_A_PAGE
from gateway.operations.operator import Operator
from gateway.pending.seal import Keyring
from gateway.store.sqlite import SqliteStore
from gateway.store.transaction import Transaction
from gateway.store.types import Dead, Incoming, Key
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from gateway.tools import OutcomeUnknown, tool
from tests.cli.processes import Page, askfirst, command, forked, refusal, told
from tests.e2e.house import SIGNING
from tests.fakes.telegram import FakeTelegram, Message, User
from tests.store.redis_server import RedisServer

DEV = ("dev", "bot.py", "--port", "0")


@dataclass
class Person:
    telegram: FakeTelegram
    user: User
    env: Mapping[str, str]

    async def asks_to_delete(self, invoice: str) -> Message:
        await self.telegram.person_says(self.user, self.user, f"delete invoice {invoice}")
        return await self.hears(f"Delete invoice {invoice}")

    async def hears(self, text: str) -> Message:
        def found() -> Message | None:
            return next((message for message in self.telegram.sent if message.text.startswith(text)), None)

        message = await self.telegram.wait_for(found)
        assert message is not None
        return message


@pytest.fixture
async def ana(at: Mapping[str, str]) -> AsyncIterator[Person]:
    async with FakeTelegram() as telegram:
        env = {"TELEGRAM_BOT_TOKEN": telegram.token, "TELEGRAM_API_URL": telegram.url, **at}
        yield Person(telegram, telegram.person("Ana"), env)


async def test_newcomer_is_admitted_and_removed_while_a_server_runs(here: Path, ana: Person) -> None:
    env = {**ana.env, "ASKFIRST_ALLOW": "pairing"}
    who = f"telegram:{ana.telegram.bot.id}:{ana.user.id}"
    async with forked(*DEV, cwd=here, env=env) as process:
        await process.url()
        await ana.telegram.person_says(ana.user, ana.user, "hello")
        told_ana = await ana.hears("Sorry, I talk only to people I know.")
        code = told_ana.text.partition("runs this bot: ")[2][:9]
        shown = (await command("people", "list", env=env)).stdout
        assert [who, "Ana"] == shown.splitlines()[1].split()[:2] and code in shown
        assert f"ASKFIRST_ALLOW=pairing,{who}" in shown.splitlines()
        assert "no newcomer has the code" in await refusal("people", "admit", "ABCD-EFGH", env=env)
        assert (await command("people", "admit", code, env=env)).stdout == f"Let in: {who} Ana\n"
        await ana.hears("You are in")
    (inside,) = (await told("people", "list", env=env))["admitted"]
    assert (inside["person"], inside["by"]) == (who, "operator")
    assert (await command("people", "remove", who, env=env)).stdout == f"No longer let in: {who}\n"
    assert (await told("people", "list", env=env)) == {"turned_away": [], "admitted": []}
    assert "was not let in by a code" in await refusal("people", "remove", who, env=env)


async def test_a_name_steers_no_terminal(here: Path) -> None:
    env = {"ASKFIRST_STORE": f"sqlite:///{here / 'own.db'}", "ASKFIRST_SECRET": SIGNING}
    name = "Zoë\x9b31m\u202e\x1b]0;x\x07"
    async with contextlib.AsyncExitStack() as stack:
        store = open_store(env["ASKFIRST_STORE"])
        await store.open()
        stack.push_async_callback(store.close)
        newcomer = Newcomer(channel="telegram", account="1", user_id="2", name=name)
        where = Address(channel="telegram", account="1", place="2")
        code = await Newcomers(store, Keyring([SIGNING.encode()])).note(newcomer, where, "en", pairing=True)
    shown = await command("people", "list", env=env)
    as_json = await command("people", "list", "--json", env=env)
    admitted = await command("people", "admit", code or "", env=env)
    for result in (shown, as_json, admitted):
        assert result.exit_code == 0 and "Zoë" in result.stdout
        assert result.stdout.replace("\n", "").isprintable()
    assert json.loads(as_json.stdout)["turned_away"][0]["name"] == name


async def test_newcomer_without_a_code_needs_the_allow_list(here: Path) -> None:
    env = {"ASKFIRST_STORE": f"sqlite:///{here / 'own.db'}", "ASKFIRST_SECRET": SIGNING, "ASKFIRST_ALLOW": "slack:*"}
    store = open_store(env["ASKFIRST_STORE"])
    await store.open()
    newcomer, where = Newcomer(channel="telegram", account="1", user_id="2"), Address.parse("telegram:1:2")
    await Newcomers(store, Keyring([SIGNING.encode()])).note(newcomer, where, "en", pairing=False)
    await store.close()
    shown = (await command("people", "list", env=env)).stdout.splitlines()
    assert shown[-2:] == ["To let in who wrote last:", "ASKFIRST_ALLOW=slack:*,telegram:1:2"]


async def test_an_ask_is_withdrawn_while_a_server_runs(here: Path, ana: Person) -> None:
    async with forked(*DEV, cwd=here, env=ana.env) as process:
        await process.url()
        prompt = await ana.asks_to_delete("INV-42")
        [asked] = await told("pending", "list", env=ana.env)
        assert asked["preview"] == "Delete invoice INV-42 for good?"
        assert asked["requester"] == f"telegram:{ana.telegram.bot.id}:{ana.user.id}"
        table = (await command("pending", "list", env=ana.env)).stdout.splitlines()
        assert [line.split()[0] for line in table] == ["ID", asked["id"][:8]]
        assert "WHAT" in table[0] and table[1].endswith("Delete invoice INV-42 for good?")

        code, out, err = await askfirst("pending", "cancel", asked["id"][:10], cwd=here, env=ana.env)
        assert (code, out) == (0, "Withdrawn: Delete invoice INV-42 for good?\n"), err
        await ana.telegram.wait_for(lambda: "Withdrawn" in prompt.text and not prompt.buttons)
        await ana.hears("Not done: Delete invoice INV-42")
        assert (await command("pending", "list", env=ana.env)).stdout == "Nothing is waiting.\n"
        assert "is withdrawn: only what has not run yet" in await refusal("pending", "cancel", asked["id"], env=ana.env)


async def test_ask_withdrawn_while_stopped_is_told_later(here: Path, ana: Person, at: Mapping[str, str]) -> None:
    async with forked(*DEV, cwd=here, env=ana.env) as process:
        await process.url()
        prompt = await ana.asks_to_delete("INV-7")
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0
    [asked] = await told("pending", "list", env=at)
    shown = await told("pending", "show", asked["id"], env=at)
    assert (shown["args"], shown["seal"]) == ({"invoice_id": "INV-7"}, "holds")
    assert "telegram is not on: its settings are needed" in await refusal("pending", "cancel", asked["id"], env=at)
    assert (await told("pending", "cancel", asked["id"], env=ana.env))["reason"] == "withdrawn"
    assert ana.telegram.sent == [prompt]
    async with forked(*DEV, cwd=here, env=ana.env) as process:
        await process.url()
        await ana.telegram.wait_for(lambda: "Withdrawn" in prompt.text and not prompt.buttons)
        await ana.hears("Not done: Delete invoice INV-7")


async def test_a_person_is_written_to(here: Path, at: Mapping[str, str]) -> None:
    async with (
        forked(*DEV, cwd=here, env=at) as process,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http,
    ):
        page = Page(http, await process.url())
        await page.open()
        await page.says("delete invoice INV-42")
        await page.sees("Delete invoice")
        [asked] = await told("pending", "list", env=at)
        sent = await told("send", asked["requester"], "**Back soon**", env=at)
        assert sent == {"conversation": f"Invoices/{asked['requester']}", "parts": 1}
        assert "<strong>Back soon</strong>" in (await page.sees("Back soon"))["html"]
        assert "not an address" in await refusal("send", "nobody", "x", env=at)
        assert "slack is not on" in await refusal("send", "slack:T1:C1", "x", env=at)
        assert "there is nothing to send" in await refusal("send", asked["requester"], " ", env=at)
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0
    assert await told("send", asked["requester"], "while it is down", env=at) == sent
    code, out, _ = await askfirst("send", asked["requester"], "-", cwd=here, env=at, stdin="**read** from a file\n")
    assert (code, out) == (0, f"In the outbox of {sent['conversation']}\n")
    store = open_store(at["ASKFIRST_STORE"])
    await store.open()
    try:
        assert "**read** from a file" in str([part.body for part in await store.outbox(sent["conversation"])])
    finally:
        await store.close()


@pytest.mark.parametrize("deep", [False, True])
async def test_the_socket_is_its_owners_alone_wherever_it_is(here: Path, deep: bool) -> None:
    """The path may be too long for a socket, and a dead server's socket may be in the way."""
    directory = here / ("d" * 100) if deep else here
    name = directory / ".askfirst" / "askfirst.db.sock"
    name.parent.mkdir(parents=True)
    (directory / "bot.py").write_text((here / "bot.py").read_text())
    if deep:
        name.symlink_to("/nowhere/sock")
    else:
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(name))
    async with forked(*DEV, cwd=directory) as process:
        await process.url()
        place = name.resolve()
        assert (place.stat().st_mode & 0o777, place.is_socket()) == (0o600, True)
        assert len(str(place)) < 104
        assert await told("pending", "list", "--bot", directory / "bot.py") == []
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0
    assert not name.is_symlink()
    assert not name.exists()
    assert not place.exists()


async def test_a_socket_that_cannot_be_removed_is_left(here: Path) -> None:
    async with forked(*DEV, cwd=here) as process:
        await process.url()
        socket_file(here / ".askfirst" / "askfirst.db").unlink()
        socket_file(here / ".askfirst" / "askfirst.db").mkdir()
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0
    assert "Traceback" not in process.said


async def test_socket_link_is_followed_only_to_a_private_directory(here: Path) -> None:
    """The server is gone. Another user has made the directory of the link's target again."""
    store = SqliteStore(here / ".askfirst" / "askfirst.db")
    await store.open()
    await store.close()
    elsewhere = here / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    socket_file(here / ".askfirst" / "askfirst.db").symlink_to(elsewhere / "sock")

    async def answers(request: web.Request) -> web.Response:
        return web.json_response({"error": "whatever somebody else says"}, status=409)

    app = web.Application()
    app.router.add_post("/{operation}", answers)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, str(elsewhere / "sock")).start()
    try:
        assert "whatever somebody else says" in await refusal("pending", "list")
        elsewhere.chmod(0o755)
        assert await told("pending", "list") == []
        elsewhere.chmod(0o700)
        if os.getuid() == 0:
            os.chown(elsewhere, 65534, -1)
            assert await told("pending", "list") == []
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("pending", "{"),
        ("pending", "[]"),
        ("pending", '{"more": "x"}'),
        ("action", "{}"),
        ("action", '{"action_id": 7}'),
        ("send", '{"address": "telegram:1:2", "text": null}'),
    ],
)
async def test_unknown_command_is_a_bad_request(here: Path, path: str, body: str) -> None:
    store = SqliteStore(here / "own.db")
    await store.open()
    operator = Operator(store, {}, Keyring([b"x" * 32]), bot="Shop")
    connector = aiohttp.UnixConnector(str(socket_file(here / "own.db")))
    async with control(operator, here / "own.db"), aiohttp.ClientSession(connector=connector) as http:
        async with http.post(f"http://askfirst/{path}", data=body) as answer:
            assert answer.status == 400
            assert await answer.json() == {"error": f"no JSON object of the texts that {path} takes"}
        async with http.post("http://askfirst/_find", data="{}") as answer:
            assert answer.status == 404
    await store.close()


async def test_bot_that_never_ran_has_empty_lists_and_a_missing_fails(here: Path) -> None:
    (here / "bot.py").write_text("")
    assert await told("pending", "list", "--bot", "bot.py") == []
    assert await told("dead", "list", "--bot", "bot.py") == []
    assert "start the bot first" in await refusal("pending", "cancel", "3f2a", "--bot", "bot.py")
    assert "start the bot first" in await refusal("send", "telegram:1:2", "Hello", "--bot", "bot.py")
    assert not (here / ".askfirst").exists()
    assert "there is no file nope.py" in await refusal("pending", "list", "--bot", "nope.py", code=2)


async def test_missing_store_and_owned_silent_store_are_refused(here: Path) -> None:
    assert "there is no store" in await refusal("pending", "list")
    assert not (here / ".askfirst").exists()
    store = SqliteStore(here / ".askfirst" / "askfirst.db")
    await store.open()
    try:
        said = await refusal("pending", "list")
        assert "no server answers for this store" in said
        assert "Stop that one first" in said
    finally:
        await store.close()


async def test_a_redis_that_is_not_there_is_wrong_or_lacks_settings(here: Path) -> None:
    (here / "redis").mkdir()
    server = RedisServer(here / "redis")
    env = {"ASKFIRST_STORE": server.url}
    assert "set ASKFIRST_SECRET and ASKFIRST_ARTIFACTS" in await refusal("pending", "list", env=env)
    env |= {"ASKFIRST_SECRET": SIGNING, "ASKFIRST_ARTIFACTS": str(here / "files")}
    assert "cannot be reached: see whether it runs" in await refusal("pending", "list", env=env)
    async with contextlib.AsyncExitStack() as stack:
        await server.start()
        stack.push_async_callback(server.kill)
        assert "no bot was ever served" in await refusal("send", "telegram:1:2", "x", env=env)
        await server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        said = await refusal("dead", "list", env=env, code=78)
        assert "Set maxmemory-policy to noeviction" in said
        assert "no server answers" not in said
        await server.command("CONFIG", "SET", "requirepass", "the-right-one")
        wrong = env | {"ASKFIRST_STORE": server.url.replace("//", "//:the-wrong-one@")}
        said = await refusal("pending", "list", env=wrong, code=78)
        assert "user or password" in said
        assert "the-wrong-one" not in said


async def test_dead_letters_are_listed_shown_replayed_and_dropped(here: Path, at: Mapping[str, str]) -> None:
    store = open_store(at["ASKFIRST_STORE"])
    await store.open()
    incoming = Incoming(conversation="bot/app:-:ana", event_ids=("replay/1",), body={"kind": "message", "text": "hi"})
    letters = [
        Dead(dead_id="aa01", conversation="bot/app:-:ana", reason="its turn failed", incoming=incoming),
        Dead(dead_id="aa02", conversation="bot/app:-:ana", reason="a payload we do not understand"),
    ]
    await store.commit(Transaction(partition=store.partition("bot/app:-:ana"), dead=letters))
    await store.close()

    assert [letter["id"] for letter in await told("dead", "list", env=at)] == ["aa01", "aa02"]
    assert (await told("dead", "show", "aa01", env=at))["body"] == {"kind": "message", "text": "hi"}
    assert "2 dead letters begin with aa" in await refusal("dead", "replay", "aa", env=at)
    assert "holds nothing that could be replayed" in await refusal("dead", "replay", "aa02", env=at)
    assert "there is no dead letter zz" in await refusal("dead", "drop", "zz", env=at)
    await told("dead", "drop", "aa02", env=at)
    await told("dead", "replay", "aa01", env=at)
    assert (await command("dead", "list", env=at)).stdout == "There are no dead letters.\n"
    store = open_store(at["ASKFIRST_STORE"])
    await store.open()
    assert (await store.stats()).waiting == 1
    await store.close()


async def test_dead_letters_come_in_pages_and_go_by_reason_or_all(here: Path, at: Mapping[str, str]) -> None:
    store = open_store(at["ASKFIRST_STORE"])
    await store.open()
    letters = [
        Dead(dead_id=f"d{number}", conversation="bot/app:-:ana", reason="odd" if number % 2 else "even")
        for number in range(2 * LETTERS_A_PAGE + 10)
    ]
    await store.commit(Transaction(partition=store.partition("bot/app:-:ana"), dead=letters))
    await Shapes(store, "bot").note("telegram", b'{"poll": {"question": "my secret"}}', await store.now())
    await store.close()

    first = await told("dead", "list", env=at)
    assert len(first) == LETTERS_A_PAGE
    said = (await command("dead", "list", env=at)).stdout
    assert f"There may be more: askfirst dead list --after {first[-1]['seq']}" in said
    last = await told("dead", "list", "--after", str(2 * first[-1]["seq"] - first[0]["seq"] + 1), env=at)
    assert [letter["what"] for letter in last].count("shape") == 1
    (shape,) = [letter for letter in last if letter["what"] == "shape"]
    assert (await told("dead", "show", shape["id"], env=at))["body"] == {"poll": {"question": "text"}}
    await told("dead", "drop", shape["id"], env=at)
    assert (await told("dead", "drop", "--reason", "odd", env=at)) == {"dropped": LETTERS_A_PAGE + 5}
    assert (await told("dead", "drop", "--all", env=at)) == {"dropped": LETTERS_A_PAGE + 5}
    assert (await command("dead", "list", env=at)).stdout == "There are no dead letters.\n"
    for wrong in (("dead", "drop"), ("dead", "drop", "x", "--all")):
        assert "name one ID, or --all, or --reason TEXT" in (await command(*wrong, env=at)).stderr


async def test_only_the_web_chat_has_sessions_to_end(here: Path, at: Mapping[str, str]) -> None:
    store = await asyncio.to_thread(open_store, at["ASKFIRST_STORE"])
    await store.open()
    await store.close()
    assert "telegram:1:2 has no session" in await refusal("people", "end-sessions", "telegram:1:2", env=at)
    assert "name one PERSON, or --all" in await refusal("people", "end-sessions", env=at, code=2)
    found = await told("people", "end-sessions", "webchat:local:" + "s" * 22, env=at)
    assert found == {"ended": "webchat:local:" + "s" * 22}


async def test_waiting_messages_are_listed_and_put_aside(here: Path, at: Mapping[str, str]) -> None:
    store = open_store(at["ASKFIRST_STORE"])
    await store.open()
    full, other = "bot/app:-:ana", "bot/app:-:bob"
    body = {"kind": "message", "text": "hi"}
    await store.accept([Incoming(conversation=full, event_ids=(f"e{n}",), body=body) for n in range(130)])
    await store.accept([Incoming(conversation=other, event_ids=("o",), body=body)])
    await store.close()

    found = await told("waiting", env=at)
    assert found["waiting"] == 131
    assert [(each["conversation"], each["waiting"]) for each in found["conversations"]] == [(full, 130), (other, 1)]
    said = (await command("waiting", env=at)).stdout
    assert "131 events wait" in said and "put-aside CONVERSATION" in said
    assert re.search(rf"\n130 +\d+s +{re.escape(full)}\n", said)
    assert (await told("waiting", "put-aside", full, env=at)) == {"conversation": full, "put_aside": 130}
    assert "nothing waits" in await refusal("waiting", "put-aside", full, env=at)
    assert (await told("waiting", env=at))["waiting"] == 1
    letters = await told("dead", "list", env=at)
    assert {letter["reason"] for letter in letters} == {"put aside by the operator"}
    await told("dead", "replay", letters[0]["id"], env=at)
    assert (await told("waiting", env=at))["waiting"] == 2


@pytest.mark.parametrize("state", ["done", "failed"])
async def test_an_unknown_outcome_is_settled_once_and_told(state: Any) -> None:
    @tool(confirm="Pay {amount}?")
    async def pay(amount: int) -> str:
        """Pay."""
        raise OutcomeUnknown("the bank did not answer")

    async with ChatDriver(Agent([pay]), provider=ScriptedProvider([ToolCall("pay", {"amount": 5})])) as chat:
        await chat.says("ana", "pay 5")
        shared = chat.engine.context
        operator = Operator(shared.store, shared.channels, shared.keyring, bot=shared.bot.name)
        [asked] = await operator.pending()
        action_id = str(asked["id"])
        with pytest.raises(NotDone, match="only what is unknown"):
            await operator.settle(action_id, state)
        await chat.presses("ana", "Confirm")
        [unknown] = await operator.pending()
        assert unknown["state"] == "unknown"
        with pytest.raises(NotDone, match="is unknown: only what has not run yet"):
            await operator.cancel(action_id)

        both = await asyncio.gather(*(operator.settle(action_id, state) for _ in range(2)), return_exceptions=True)
        assert sorted(type(one).__name__ for one in both) == ["NotDone", "dict"]
        while not await chat.engine.idle():
            await asyncio.sleep(0.001)
        assert await operator.pending() == []
        assert ("Done: Pay 5" if state == "done" else "It did not work") in chat.last.text
        assert (await operator.action(action_id))["outcome"] == "settled by operator"
        [line] = await shared.store.read(Key(shared.store.partition(""), "audit"), last=1)
        assert isinstance(line.value, dict)
        assert (line.value["what"], line.value["person"]) == ("settled", "operator")


async def test_a_list_shows_how_to_settle_an_unknown_outcome(here: Path) -> None:
    @tool(confirm="Pay {amount}?")
    async def pay(amount: int) -> str:
        """Pay."""
        raise OutcomeUnknown("the bank did not answer")

    agent = Agent([pay], provider=ScriptedProvider([ToolCall("pay", {"amount": 5})]))
    async with ChannelAgent(agent, store=f"sqlite:///{here / '.askfirst' / 'askfirst.db'}") as bot:
        (asked,) = (await bot.ask_channel("ana", "pay 5")).pending
        await bot.decide("app:-:ana", "confirm", action_id=asked.pending_action_id)
    said = (await command("pending", "list")).stdout.splitlines()
    assert said[1].split()[:3] == [asked.pending_action_id[:8], asked.code, "unknown"]
    assert said[-1].startswith("In doubt: 1.")
    assert said[-1].endswith("askfirst pending settle ID done|failed")


async def test_operator_commands_on_missing_entries_are_refused() -> None:
    async with ChatDriver(Agent([])) as chat:
        shared = chat.engine.context
        operator = Operator(shared.store, shared.channels, shared.keyring, bot=None)
        for missing in ("nothing", ""):
            with pytest.raises(NotDone, match="there is no action"):
                await operator.action(missing)
            with pytest.raises(NotDone, match="there is no dead letter"):
                await operator.letter(missing)
        with pytest.raises(NotDone, match="no bot was ever served"):
            await operator.send("test:bot:ana", "hello")
        with pytest.raises(NotDone, match="settled as done or failed"):
            await operator.settle("nothing", "perhaps")  # type: ignore[arg-type]


@pytest.mark.ledger("MEM-08")
async def test_conversations_are_listed_shown_searched_and_exported(here: Path) -> None:
    async with ChatDriver(Agent([]), provider=ScriptedProvider(["Sunny in Porto."])) as chat:
        await chat.says("ana", "How is the weather?")
        shared = chat.engine.context
        operator = Operator(shared.store, shared.channels, shared.keyring, bot=shared.bot.name)
        (name,) = await operator.conversations()
        assert await operator.conversations(person="test:bot:ben") == []
        assert [line["content"] for line in await operator.history(name)] == ["How is the weather?", "Sunny in Porto."]
        [found] = await operator.search("porto")
        assert (found["conversation"], found["message"]) == (name, {"role": "assistant", "content": "Sunny in Porto."})
        assert (await operator.export("test:bot:ana"))["person"] == "test:bot:ana"
        for wrong in (operator.history("agent/test:bot:ben"), operator.export("test:bot:ben")):
            with pytest.raises(NotDone, match="askfirst conversations list"):
                await wrong
        with pytest.raises(NotDone, match="is empty"):
            await operator.search(" ")
        with pytest.raises(NotDone, match="a number from 1 on"):
            await operator.conversations(limit="none")
