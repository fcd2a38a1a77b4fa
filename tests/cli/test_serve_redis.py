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


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("redis://", f"redis://:{CANARY}@"), "it refuses the user or password"),
        (("redis://", f"redis://nobody:{CANARY}@"), "it refuses the user or password"),
        (("127.0.0.1:", f":{CANARY}@127.0.0.1:1"), "ASKFIRST_STORE is no address: write redis://"),
    ],
)
async def test_a_password_that_is_wrong(here: Path, server: RedisServer, change: tuple[str, str], told: str) -> None:
    await server.command("CONFIG", "SET", "requirepass", "right")
    assert told in await refusal(here, server.url.replace(*change))


async def test_a_database_that_is_none_or_not_there(here: Path, server: RedisServer) -> None:
    url = server.url.replace("redis://", f"redis://:{CANARY}@")
    one, two = await asyncio.gather(refusal(here, f"{url}/sixteen"), refusal(here, f"{url}/16"))
    assert "ASKFIRST_STORE is no address: write redis://[user:password@]host:6379[/number]" in one
    assert "it has no database of that number" in two


async def test_tls_that_is_meant_otherwise(here: Path, server: RedisServer) -> None:
    """The faults that need a server with TLS are those of tests/store/test_redis_address.py."""
    url = server.url.replace("redis://", f"rediss://:{CANARY}@")
    assert "there are ssl_ca_certs" in await refusal(here, f"{url}?ca={CANARY}")
    assert "a file that ASKFIRST_STORE names for TLS cannot be read" in await refusal(
        here, f"{url}?ssl_ca_certs=no.pem"
    )


async def refusal(here: Path, store: str) -> str:
    """What it says, which is a line that names the setting and holds no secret."""
    env = {
        "ASKFIRST_ALLOW": "*",
        "ASKFIRST_STORE": store,
        "ASKFIRST_SECRET": "uB3nT8kQ5rW1xZ6vC9mL2pD7sF4gH0jK",
        "ASKFIRST_ARTIFACTS": str(here / "artifacts"),
    }
    code, out, err = await askfirst("serve", "bot.py", "--host", "127.0.0.1", "--port", "0", cwd=here, env=env)
    said = err.strip()
    assert (code, out) == (1, "")
    assert said.startswith("Error: ")
    assert "ASKFIRST_STORE" in said
    assert "\n" not in said
    assert CANARY not in said
    return said
