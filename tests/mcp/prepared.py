"""Servers started by a gateway, forked from a process with the `mcp` package imported.

The import takes longer than most of the tests. A gateway starts the servers itself, so the tests give the command of a
relay. The relay hands its streams, environment and directory to the process of the tests, and that process runs the
file on them by a fork. Relay and fork end with each other.
"""

from __future__ import annotations

import json
import os
import runpy
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path

from tests.children import become, children
from tests.mcp.relay import LARGEST

RELAY = Path(__file__).with_name("relay.py")


class Host:
    """Runs the files requested by relays. `command` is the command of a file."""

    def __init__(self, listener: socket.socket, path: Path) -> None:
        self._listener, self._path = listener, path

    def command(self, file: Path) -> list[str]:
        return [sys.executable, "-S", "-E", str(RELAY), str(self._path), str(file)]

    def serve(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                relay, _ = self._listener.accept()
                threading.Thread(target=self._run, args=(relay,), daemon=True).start()

    def _run(self, relay: socket.socket) -> None:
        with relay:
            asked, streams, _, _ = socket.recv_fds(relay, LARGEST, 3)
            pipes = [Connection(stream) for stream in streams]
            child = children.Process(target=run, args=(pipes, *json.loads(asked)), daemon=True)
            child.start()
            for pipe in pipes:
                pipe.close()
            if relay in wait([child.sentinel, relay]):
                child.kill()
            child.join()
            with suppress(OSError):
                relay.sendall(str(child.exitcode).encode())


@contextmanager
def hosted(directory: Path) -> Iterator[Host]:
    """A host with a socket in this directory."""
    path = directory / "host"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        host = Host(listener, path)
        threading.Thread(target=host.serve, daemon=True).start()
        yield host
        listener.shutdown(socket.SHUT_RDWR)


def run(pipes: Sequence[Connection], arguments: Sequence[str], env: Mapping[str, str], directory: str = ".") -> None:
    """Run a file as Python does, on these three streams."""
    become(directory, env, {number: pipe.fileno() for number, pipe in enumerate(pipes)})
    for pipe in pipes:
        pipe.close()
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in enumerate("rww"))
    sys.argv = [*arguments]
    runpy.run_path(arguments[0], run_name="__main__")
