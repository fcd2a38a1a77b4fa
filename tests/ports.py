"""A port that is known before its server runs, and stays its own while the server is away."""

from __future__ import annotations

import atexit
import socket

__all__ = ["free_port"]


def free_port() -> int:
    """Of 127.0.0.1, and given to nobody else as long as this process lives.

    It is bound and not listened on: the kernel hands it to no other socket, but lets in a server that sets
    SO_REUSEADDR, as aiohttp and Redis do.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    atexit.register(holder.close)
    port: int = holder.getsockname()[1]
    return port
