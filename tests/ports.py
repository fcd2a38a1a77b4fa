"""A port known before the server runs, and reserved during the server's absence."""

from __future__ import annotations

import atexit
import socket

__all__ = ["free_port"]


def free_port() -> int:
    """Return a port of 127.0.0.1, reserved as long as this process lives.

    The port is bound without listening: the kernel gives the port to no other socket, but admits a server with
    SO_REUSEADDR, like aiohttp and Redis.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    atexit.register(holder.close)
    port: int = holder.getsockname()[1]
    return port
