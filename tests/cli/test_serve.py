"""``askfirst serve`` for an operator: refusals with the mend, and an end without loss."""

from __future__ import annotations

import asyncio
import re
import resource
import signal
import socket
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest

from channels import AskfirstError
from gateway import Agent
from gateway.app import Gateway
from gateway.assembly import home_of
from gateway.cli.serve import warnings_of
from gateway.config.settings import Settings
from tests.cli.processes import Process, askfirst, forked, running
from tests.fakes.openai import Call, FakeOpenAI, Say
from tests.fakes.telegram import FakeTelegram
from tests.ports import free_port
from tests.store.redis_server import RedisServer

SECRET = "kQ7vX2mB9tR4wZ8nL5cJ"
SERVE = ("serve", "bot.py", "--host", "127.0.0.1", "--port", "0")


def settings(telegram: FakeTelegram, **more: str) -> dict[str, str]:
    return {
        "ASKFIRST_ALLOW": "telegram:*",
        "TELEGRAM_BOT_TOKEN": telegram.token,
        "TELEGRAM_WEBHOOK_SECRET": SECRET,
        "TELEGRAM_API_URL": telegram.url,
        **more,
    }


async def register(telegram: FakeTelegram, here: Path, server: Process) -> None:
    env = settings(telegram, ASKFIRST_PUBLIC_URL=await server.url())
    code, _, err = await askfirst("webhooks", "set", cwd=here, env=env)
    assert code == 0, err


async def until_not_ready(http: aiohttp.ClientSession, url: str) -> None:
    status = 200
    while status == 200:
        async with http.get(f"{url}/readyz") as answer:
            status = answer.status
    assert status == 503


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({}, ["ASKFIRST_ALLOW: say who may talk to the bot", "telegram:*"]),
        ({"ASKFIRST_ALLOW": "*", "ASKFIRST_SECRET": "short"}, ["ASKFIRST_SECRET: write a random value of at least 32"]),
        (
            {"TELEGRAM_WEBHOOK_SECRET": SECRET},
            ["\n- TELEGRAM_BOT_TOKEN: set it to the token that @BotFather gave you", "\n- ASKFIRST_ALLOW: say who"],
        ),
        ({"ASKFIRST_ALLOW": "*", "ASKFIRST_PROVIDER": "openai:gpt-5-mini"}, ["OPENAI_API_KEY is not set"]),
        ({"ASKFIRST_ALLOW": "*", "ASKFIRST_PROVIDER": "oracle:delphi"}, ["no such provider"]),
    ],
)
async def test_unsafe_settings_are_refused_with_the_mend(here: Path, env: dict[str, str], said: list[str]) -> None:
    code, out, err = await askfirst(*SERVE, cwd=here, env=env)
    assert code == 78
    assert out == ""
    for sentence in said:
        assert sentence in err
    assert "Traceback" not in err
    assert "short" not in err.replace("a short", "")


@pytest.mark.parametrize("left", [b"", b"half a secret"])
def test_a_secret_that_was_cut_short_is_refused(here: Path, left: bytes) -> None:
    secret = here / "askfirst.db.secret"
    secret.write_bytes(left)
    with pytest.raises(AskfirstError, match=f"{secret} is damaged. Restore it from a backup, or delete it"):
        home_of(Settings(store=f"sqlite:///{here / 'askfirst.db'}"))
    assert secret.read_bytes() == left


def test_a_full_disk_leaves_no_half_secret(here: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(AskfirstError, match=r"askfirst\.db\.secret cannot be read or made: File too large"):
            home_of(Settings(store=f"sqlite:///{here / 'new' / 'askfirst.db'}"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((here / "new").iterdir()) == []


@pytest.mark.parametrize("in_the_way", ["state", "state/askfirst.db.secret/x"])
def test_an_obstacle_to_the_secret_is_named(here: Path, in_the_way: str) -> None:
    (here / in_the_way).parent.mkdir(parents=True, exist_ok=True)
    (here / in_the_way).touch()
    with pytest.raises(
        AskfirstError, match=r"askfirst\.db\.secret cannot be read or made: (File exists|Is a directory)"
    ):
        home_of(Settings(store=f"sqlite:///{here / 'state' / 'askfirst.db'}"))


async def test_an_obstacle_to_the_socket_file_is_named(here: Path) -> None:
    (here / ".askfirst" / "askfirst.db.sock").mkdir(parents=True)
    code, _, err = await askfirst(*SERVE, cwd=here, env={"ASKFIRST_ALLOW": "*"})
    assert code == 1
    assert "askfirst.db.sock cannot be made (Is a directory)" in err
    assert "Traceback" not in err


async def test_invalid_host_is_refused_in_clear_words(here: Path) -> None:
    command = ("serve", "bot.py", "--host", "ünï..x", "--port", "0")
    code, _, err = await askfirst(*command, cwd=here, env={"ASKFIRST_ALLOW": "*"})
    assert code == 1
    assert "cannot listen on ünï..x:0 (no such name)" in err
    assert "Traceback" not in err


async def test_a_role_of_its_own_needs_redis(here: Path) -> None:
    code, _, err = await askfirst(*SERVE, "--role", "web", cwd=here, env={"ASKFIRST_ALLOW": "*"})
    assert code == 78
    assert "--role web needs redis" in err


async def test_a_token_that_telegram_does_not_know_is_refused(here: Path, telegram: FakeTelegram) -> None:
    env = settings(telegram) | {"TELEGRAM_BOT_TOKEN": "7000001:AAanother"}
    code, _, err = await askfirst(*SERVE, cwd=here, env=env)
    assert code == 78
    assert "TELEGRAM_BOT_TOKEN: Telegram does not know it" in err
    assert "AAanother" not in err


async def test_a_port_that_is_taken_is_said(here: Path, telegram: FakeTelegram) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        env = settings(telegram)
        code, _, err = await askfirst("serve", "bot.py", "--host", "127.0.0.1", "--port", str(port), cwd=here, env=env)
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in err
    assert "Traceback" not in err


async def test_a_confirmed_action_from_a_webhook_to_an_end_in_peace(here: Path, telegram: FakeTelegram) -> None:
    async with running(*SERVE, cwd=here, env=settings(telegram, ASKFIRST_LOG_PEOPLE="pseudonym")) as server:
        await register(telegram, here, server)
        assert "telegram: " in server.said
        assert "the offline demo model answers" in server.said
        ana = telegram.person("Ana")
        await telegram.person_says(ana, ana, "delete invoice INV-42")
        prompt = await telegram.wait_for(lambda: telegram.last(ana, button="Confirm"))
        assert prompt is not None
        press = await telegram.press(prompt, "Confirm", by=ana)
        await telegram.wait_for(lambda: press.answered)
        await telegram.wait_for(lambda: any("INV-42 of Café Aurora is deleted" in m.text for m in telegram.sent))
        await telegram.wait_for(lambda: not prompt.buttons)
        server.signal(signal.SIGTERM)
        assert await server.ended() == 0
    for secret in (telegram.token, SECRET, "INV-42"):
        assert secret not in server.said
    assert "Traceback" not in server.said
    (who,) = set(re.findall(rf"telegram:{telegram.token.partition(':')[0]}:([^\"/, ]+)", server.said))
    assert re.fullmatch("~[0-9a-f]{12}", who), "the log has a keyed pseudonym, and not Ana's number"


async def test_the_chat_page_is_not_served(here: Path) -> None:
    async with forked(*SERVE, cwd=here, env={"ASKFIRST_ALLOW": "*"}) as server, aiohttp.ClientSession() as http:
        async with http.get(f"{await server.url()}/chat") as page:
            assert page.status == 404
        await server.says("no channel is on")


@pytest.mark.parametrize(
    ("left", "said"),
    [(b"a letter, and no database" * 40, "cannot be used"), (4711, "is a database of another program")],
)
async def test_a_store_that_cannot_be_opened_is_not_tried_again(here: Path, left: bytes | int, said: str) -> None:
    """The exit code is 78. docs/deploy.md tells systemd not to restart after 78."""
    (here / ".askfirst").mkdir()
    file = here / ".askfirst" / "askfirst.db"
    if isinstance(left, int):
        with closing(sqlite3.connect(file)) as db:
            db.executescript(f"CREATE TABLE theirs (a); PRAGMA application_id = {left}")
    else:
        file.write_bytes(left)
    code, _, err = await askfirst(*SERVE, cwd=here, env={"ASKFIRST_ALLOW": "*"})
    assert (code, said in err) == (78, True), err
    assert "Traceback" not in err


async def test_a_redis_that_may_throw_away_is_not_tried_again(here: Path, tmp_path: Path) -> None:
    redis = RedisServer(tmp_path)
    await redis.start("--maxmemory-policy", "allkeys-lru")
    try:
        env = {
            "ASKFIRST_ALLOW": "*",
            "ASKFIRST_STORE": redis.url,
            "ASKFIRST_SECRET": 2 * SECRET,
            "ASKFIRST_ARTIFACTS": str(tmp_path / "files"),
        }
        code, _, err = await askfirst(*SERVE, cwd=here, env=env)
    finally:
        await redis.kill()
    assert (code, "noeviction" in err) == (78, True), err


async def test_notes_on_the_allow_list_are_told_at_the_start(here: Path, telegram: FakeTelegram) -> None:
    env = settings(telegram, ASKFIRST_ALLOW="telegram:8:7,*")
    async with asyncio.timeout(60), forked(*SERVE, cwd=here, env=env) as server:
        await server.says("Note: ASKFIRST_ALLOW: telegram:8:7 admits nobody: our account is ")
        await server.says(r"Note: ASKFIRST_ALLOW has \*: whoever finds the bot may talk to it")


def test_old_prices_are_told_at_the_start(tmp_path: Path) -> None:
    settings = Settings(store=f"sqlite:///{tmp_path}/bot.db", artifacts=tmp_path, allow="*")
    gateway = Gateway(Agent([], provider="demo"), settings)
    notes = [warnings_of(gateway, "demo", datetime(year, 11, 20, tzinfo=UTC)) for year in (2026, 2027)]
    assert [sum("genai-prices" in note for note in each) for each in notes] == [0, 1]


async def test_a_second_signal_ends_it_at_once(here: Path, telegram: FakeTelegram) -> None:
    async with FakeOpenAI() as model:
        model.script([Call("list_invoices", {}), Say("never", hold=asyncio.Event())])
        env = settings(
            telegram, ASKFIRST_PROVIDER="openai:gpt-5-mini", OPENAI_BASE_URL=model.url, OPENAI_API_KEY=model.key
        )
        async with forked(*SERVE, cwd=here, env=env) as server, aiohttp.ClientSession() as http:
            await register(telegram, here, server)
            ana = telegram.person("Ana")
            await telegram.person_says(ana, ana, "list them")
            await model.wait_for(2)
            server.signal(signal.SIGTERM)
            await until_not_ready(http, await server.url())
            server.signal(signal.SIGTERM)
            assert await server.ended() == 128 + signal.SIGTERM


FAILING = """
from contextlib import asynccontextmanager
from gateway import Agent, ChannelAgent

@asynccontextmanager
async def open_books():
    raise OSError("postgres://user:hunter2@db")
    yield

bot = ChannelAgent(Agent([]), lifespan=open_books)
"""


async def test_a_lifespan_that_fails_is_one_line_without_its_words(here: Path) -> None:
    (here / "bot.py").write_text(FAILING)
    code, said, error = await askfirst("serve", "bot.py", "--port", "0", cwd=here, env={"ASKFIRST_ALLOW": "*"})
    assert (code, said) == (1, "")
    assert error == "Error: the bot's lifespan failed: OSError (bot.py:7 open_books)\n"


async def test_lifespan_failing_at_the_end_is_told_without_its_text(here: Path) -> None:
    (here / "bot.py").write_text(FAILING.replace("    raise", "    yield\n    raise", 1))
    async with forked("serve", "bot.py", "--port", "0", cwd=here, env={"ASKFIRST_ALLOW": "*"}) as server:
        await server.says("is served on")
        server.signal(signal.SIGTERM)
        assert await server.ended() == 1
        assert server.said.splitlines()[-1] == "Error: the bot's lifespan failed: OSError (bot.py:8 open_books)"
        assert "hunter2" not in server.said


# ── a Redis that ASKFIRST_STORE does not name rightly ──


CANARY = "canary7-mB9tR4wZ8nL5cJ"
MAY_PASS, TO_MEND = 1, 78
"""The exit codes: for a fault that may pass, and for a fault that an operator must mend."""


@pytest.mark.parametrize(
    ("change", "told", "ends_with"),
    [
        (("redis://", f"redis://:{CANARY}@"), "it refuses the user or password", TO_MEND),
        (("redis://", f"redis://nobody:{CANARY}@"), "it refuses the user or password", TO_MEND),
        (("127.0.0.1:", f":{CANARY}@127.0.0.1:1"), "ASKFIRST_STORE is no address: write redis://", TO_MEND),
    ],
)
async def test_wrong_password(
    here: Path, server: RedisServer, change: tuple[str, str], told: str, ends_with: int
) -> None:
    await server.command("CONFIG", "SET", "requirepass", "right")
    assert told in await refused_store(here, server.url.replace(*change), ends_with)


async def test_invalid_or_missing_database_number_is_refused(here: Path, server: RedisServer) -> None:
    url = server.url.replace("redis://", f"redis://:{CANARY}@")
    one, two = await asyncio.gather(
        refused_store(here, f"{url}/sixteen", TO_MEND), refused_store(here, f"{url}/16", TO_MEND)
    )
    assert "ASKFIRST_STORE is no address: write redis://[user:password@]host:6379[/number]" in one
    assert "it has no database of that number" in two


async def test_redis_that_is_away_may_come_back(here: Path) -> None:
    told = await refused_store(here, f"redis://127.0.0.1:{free_port()}", MAY_PASS)
    assert "cannot be reached: see whether it runs" in told


async def test_sentinel_is_no_store(here: Path, tmp_path: Path) -> None:
    (tmp_path / "sentinel.conf").write_text("")
    sentinel = RedisServer(tmp_path, options=[])
    sentinel._command[1:1] = [str(tmp_path / "sentinel.conf"), "--sentinel"]
    await sentinel.start()
    try:
        assert "names a Sentinel, which holds no data" in await refused_store(here, sentinel.url, TO_MEND)
    finally:
        await sentinel.kill()


async def test_wrong_tls_options_are_refused(here: Path, server: RedisServer) -> None:
    """tests/store/redis/test_address.py has the faults with a TLS server."""
    url = server.url.replace("redis://", f"rediss://:{CANARY}@")
    assert "there are ssl_ca_certs" in await refused_store(here, f"{url}?ca={CANARY}", TO_MEND)
    assert "a file that ASKFIRST_STORE names for TLS cannot be read" in await refused_store(
        here, f"{url}?ssl_ca_certs=no.pem", TO_MEND
    )


async def refused_store(here: Path, store: str, ends_with: int) -> str:
    """Return the error: one line with the setting's name and without a secret."""
    env = {
        "ASKFIRST_ALLOW": "*",
        "ASKFIRST_STORE": store,
        "ASKFIRST_SECRET": "uB3nT8kQ5rW1xZ6vC9mL2pD7sF4gH0jK",
        "ASKFIRST_ARTIFACTS": str(here / "artifacts"),
    }
    code, out, err = await askfirst("serve", "bot.py", "--host", "127.0.0.1", "--port", "0", cwd=here, env=env)
    said = err.strip()
    assert (code, out) == (ends_with, "")
    assert said.startswith("Error: ")
    assert "ASKFIRST_STORE" in said
    assert "\n" not in said
    assert CANARY not in said
    return said
