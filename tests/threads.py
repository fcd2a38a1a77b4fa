"""A machine that runs out of threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["no_more_threads"]


@contextmanager
def no_more_threads() -> Iterator[None]:
    """Each start of a thread in this process fails meanwhile, by the system's own refusal (RuntimeError): each asks for
    a stack that is larger than all the memory a process can name. What is running goes on."""
    before = threading.stack_size(1 << 47)
    try:
        yield
    finally:
        threading.stack_size(before)
