"""A real ``askfirst serve`` on a disk that takes no more pretends nothing, and heals by itself."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.cli.processes import Process
from tests.e2e.test_several_processes import loud, post, pressed, ready, taken, written
from tests.fakes.openai import Call, Say
from tests.fakes.telegram import Message, User
from tests.kill.stage import Stage, on_stage

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with on_stage(tmp_path, f"sqlite:///{tmp_path / 'askfirst.db'}") as stage:
        yield stage


@contextlib.contextmanager
def failing_disk(process: Process) -> Iterator[None]:
    """Each write of the process to a file fails meanwhile (EFBIG), as on a disk that is broken or read-only."""
    soft, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, hard))
    yield
    with contextlib.suppress(ProcessLookupError):  # it was killed meanwhile
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (soft, hard))


async def prompt(stage: Stage, invoice: str, *, by: User) -> Message:
    """Somebody asks for an invoice to be paid; the prompt that this brings."""
    stage.model.script([Call("pay_invoice", {"invoice_id": invoice})])
    await stage.telegram.person_says(by, by, f"pay {invoice}")
    shown = await stage.until(lambda: stage.telegram.last(by, button="Confirm"))
    assert shown is not None
    return shown


async def test_failing_disk_acknowledges_nothing_and_later_does_it_all(stage: Stage) -> None:
    process, ana = await stage.start(), stage.telegram.person("Ana")
    message = await prompt(stage, "INV-1", by=ana)
    update = await written(stage, "hello", ana)
    press, pressing = await pressed(stage, message, ana)
    assert await ready(process) == 200
    with failing_disk(process):
        assert await ready(process) == 503
        for each in (pressing, update) * 20:
            assert (await post(process, each))[0] == 503
        assert (stage.business.done, press.answered, stage.texts(ana)[1:]) == ([], False, [])
        said = [line for line in loud(process) if "a request was not stored" not in line]
        assert len(said) == len(set(said)), "each says once that it waits"
    assert await taken(process, pressing) == 200
    await stage.until(lambda: press.answered and not message.buttons and "pay INV-1 ok" in stage.texts(ana))
    stage.model.script([Say("Hello!")])
    assert await taken(process, update) == 200
    await stage.until(lambda: "Hello!" in stage.texts(ana))
    assert await ready(process) == 200
    assert len(stage.business.done) == 1
    assert "Traceback" not in process.said


async def test_effect_ended_on_a_failing_disk_is_recorded_later(stage: Stage) -> None:
    process, ana = await stage.start(), stage.telegram.person("Ana")
    message = await prompt(stage, "INV-1", by=ana)
    stage.business.hold_after = True
    await stage.telegram.press(message, "Confirm", ana)
    await stage.business.reached.wait()
    with failing_disk(process):
        assert await ready(process) == 503
        stage.business.release.set()
        await process.says("Unavailable|cannot be used")
    await stage.until(lambda: not message.buttons and "pay INV-1 ok" in stage.texts(ana))
    assert len(stage.business.done) == 1


async def test_kill_on_a_failing_disk_leaves_unknown_and_keeps_acks(
    stage: Stage,
) -> None:
    process, ana, ben = await stage.start(), stage.telegram.person("Ana"), stage.telegram.person("Ben")
    message = await prompt(stage, "INV-1", by=ana)
    waiting = await prompt(stage, "INV-2", by=ben)
    stage.business.hold_after = True
    await stage.telegram.press(message, "Confirm", ana)
    await stage.business.reached.wait()
    with failing_disk(process):
        assert await ready(process) == 503
        stage.business.hold_after = False
        stage.business.release.set()
        await process.says("Unavailable|cannot be used")
        await stage.kill()
        await stage.start()
    await stage.until(lambda: any("may or may not have happened" in text for text in stage.texts(ana)))
    await stage.telegram.press(waiting, "Confirm", ben)
    await stage.until(lambda: "pay INV-2 ok" in stage.texts(ben))
    assert stage.business.happened("pay") == ["INV-1", "INV-2"]
    assert len(stage.business.done) == 2
