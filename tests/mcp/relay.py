"""The command of a prepared server: see `tests.mcp.prepared`. Imports the standard library alone."""

from __future__ import annotations

import json
import os
import socket
import sys

LARGEST = 65536
"""The bytes of a request: arguments, environment and directory."""


def relay(path: str, arguments: list[str]) -> int:
    """Have a file run on the streams and in the environment and directory of this process; return its exit code."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as host:
        host.connect(path)
        asked = json.dumps([arguments, dict(os.environ), os.getcwd()]).encode()  # noqa: PTH109 - pathlib takes long to import
        socket.send_fds(host, [asked], [0, 1, 2])
        for stream in (0, 1):
            os.close(stream)  # the fork alone has them now, so its end is seen
        return int(host.recv(LARGEST) or b"1")


if __name__ == "__main__":
    os._exit(relay(sys.argv[1], sys.argv[2:]))
