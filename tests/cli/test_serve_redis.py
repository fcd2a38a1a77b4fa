"""``askfirst serve`` on a Redis that ASKFIRST_STORE does not name rightly: it does not start, and says what to mend."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.cli.processes import askfirst
from tests.store.conftest import server
from tests.store.redis_server import RedisServer

__all__ = ["server"]

CANARY = "canary7-mB9tR4wZ8nL5cJ"
MAY_PASS, TO_MEND = 1, 78
"""How a start ends that is refused by the server, and one that no server can mend."""


@pytest.mark.parametrize(
    ("change", "told", "ends_with"),
    [
        (("redis://", f"redis://:{CANARY}@"), "it refuses the user or password", MAY_PASS),
        (("redis://", f"redis://nobody:{CANARY}@"), "it refuses the user or password", MAY_PASS),
        (("127.0.0.1:", f":{CANARY}@127.0.0.1:1"), "ASKFIRST_STORE is no address: write redis://", TO_MEND),
    ],
)
async def test_wrong_redis_password_is_refused(
    here: Path, server: RedisServer, change: tuple[str, str], told: str, ends_with: int
) -> None:
    await server.command("CONFIG", "SET", "requirepass", "right")
    assert told in await refusal(here, server.url.replace(*change), ends_with)


async def test_invalid_or_missing_database_number_is_refused(here: Path, server: RedisServer) -> None:
    url = server.url.replace("redis://", f"redis://:{CANARY}@")
    one, two = await asyncio.gather(refusal(here, f"{url}/sixteen", TO_MEND), refusal(here, f"{url}/16", MAY_PASS))
    assert "ASKFIRST_STORE is no address: write redis://[user:password@]host:6379[/number]" in one
    assert "it has no database of that number" in two


async def test_wrong_tls_options_are_refused(here: Path, server: RedisServer) -> None:
    """The faults that need a server with TLS are those of tests/store/redis/test_address.py."""
    url = server.url.replace("redis://", f"rediss://:{CANARY}@")
    assert "there are ssl_ca_certs" in await refusal(here, f"{url}?ca={CANARY}", TO_MEND)
    assert "a file that ASKFIRST_STORE names for TLS cannot be read" in await refusal(
        here, f"{url}?ssl_ca_certs=no.pem", MAY_PASS
    )


async def refusal(here: Path, store: str, ends_with: int) -> str:
    """What it says, which is a line that names the setting and holds no secret."""
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
