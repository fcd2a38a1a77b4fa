"""A batch: many runs of one agent, some of them at a time."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from gateway.logs import describe_error
from gateway.observe.events import BatchEnd, BatchStart, milliseconds_since
from gateway.observe.results import AgentResult
from gateway.observe.runs import new_run_id
from gateway.observe.teller import Teller

__all__ = ["OnProgress", "run_batch"]

T = TypeVar("T")
OnProgress: TypeAlias = Callable[[int, int], Any]
"""(ended runs, all runs): called after each run."""

log = logging.getLogger(__name__)


async def run_batch(
    run: Callable[[T], Awaitable[AgentResult]],
    messages: Sequence[T],
    teller: Teller,
    *,
    max_concurrency: int,
    on_progress: OnProgress | None,
) -> list[AgentResult]:
    """Run each message, at most `max_concurrency` at once. Return the results in order; see `Agent.batch`."""
    slots, batch_id, ended = asyncio.Semaphore(max_concurrency), new_run_id(), 0

    async def one(message: T) -> AgentResult:
        nonlocal ended
        async with slots:
            try:
                result = await run(message)
            except Exception as error:  # noqa: BLE001 - one failure is one failed result
                result = AgentResult(content="", stop_reason="error", error=f"{type(error).__name__}: {error}")
        ended += 1
        if on_progress is not None:
            await _tell_progress(on_progress, ended, len(messages))
        return result

    await teller.tell(BatchStart, batch_id=batch_id, prompts_count=len(messages))
    began = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(message)) for message in messages]
    results = [task.result() for task in tasks]
    await teller.tell(
        BatchEnd,
        batch_id=batch_id,
        results_count=len(results),
        errors_count=sum(result.stop_reason in ("provider_error", "error") for result in results),
        total_duration_ms=milliseconds_since(began),
    )
    return results


async def _tell_progress(on_progress: OnProgress, ended: int, total: int) -> None:
    try:
        if inspect.isawaitable(told := on_progress(ended, total)):
            await told
    except Exception as error:  # noqa: BLE001 - it must not change the batch
        log.warning("on_progress raised %s", describe_error(error))
