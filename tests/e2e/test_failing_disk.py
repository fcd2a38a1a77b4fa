"""A real ``askfirst serve`` on a full disk acknowledges no unstored event, and recovers alone."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import shutil
import sqlite3
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.cli.processes import Process, forked
from tests.e2e.test_several_processes import loud, post, pressed, ready, taken, written
from tests.fakes.openai import Call, Say
from tests.fakes.telegram import Message, User
from tests.kill.stage import BOT, Stage, on_stage

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with on_stage(tmp_path, f"sqlite:///{tmp_path / 'askfirst.db'}") as stage:
        yield stage


@contextlib.contextmanager
def failing_disk(process: Process) -> Iterator[None]:
    """Let each write of the process to a file fail (EFBIG), like a broken or read-only disk."""
    soft, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, hard))
    yield
    with contextlib.suppress(ProcessLookupError):  # it was killed meanwhile
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (soft, hard))


async def prompt(stage: Stage, invoice: str, *, by: User) -> Message:
    """A person asks for the payment of an invoice. Returns the prompt."""
    stage.model.script([Call("pay_invoice", {"invoice_id": invoice})])
    await stage.telegram.person_says(by, by, f"pay {invoice}")
    shown = await stage.until(lambda: stage.telegram.last(by, button="Confirm"))
    assert shown is not None
    return shown


async def test_failing_disk_acknowledges_no_event_and_catches_up_later(stage: Stage) -> None:
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


async def test_kill_on_a_failing_disk_leaves_unknown_and_keeps_acks(stage: Stage) -> None:
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


# ── a disk that is nearly full, then full to the last byte (ENOSPC) ──


SIZE = 72 * 1024**2
"""A little more than the reserve for the end of begun work (64 MiB)."""
REFUSED = "a request was not stored"
MEND = {True: "(SQLITE_FULL); the disk is full: make room", False: "the disk does not take or give it"}
"""Real disk or not -> the words of the log."""
MOUNTED = 'mount -t tmpfs -o "size=$2" tmpfs "$1" && echo mounted && exec cat'


class Disk:
    """A file system for the store. `holder`: the process with the mount namespace; None: mounting was not possible."""

    def __init__(self, path: Path, holder: int | None) -> None:
        self.path, self._holder = path, holder
        self._seen = path if holder is None else Path(f"/proc/{holder}/root{path}")
        self._reserve = self.free - SIZE // 8

    @property
    def is_real(self) -> bool:
        return self._holder is not None

    @property
    def free(self) -> int:
        return shutil.disk_usage(self._seen).free

    @contextlib.contextmanager
    def filled(self, process: Process, *, leaving: int = 0) -> Iterator[None]:
        """Leave so many bytes free. Without a real disk: use up so many bytes, or for 0 let every write fail."""
        ballast = self._seen / "ballast"
        if self.is_real:
            with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):  # no space left on device
                while (more := self.free - leaving if leaving else SIZE) > 0:
                    file.write(bytes(more))
            assert self.free <= leaving
            yield
            ballast.unlink()
        elif leaving:
            ballast.write_bytes(bytes(leaving))
            yield
            ballast.unlink()
        else:
            with failing_disk(process):
                yield

    def served(self, on_full: Stage) -> AbstractAsyncContextManager[Process]:
        return forked(
            *("serve", BOT, "--host=127.0.0.1", "--port=0"),
            cwd=on_full.directory,
            env=on_full.env,
            constants={} if self.is_real else {"gateway.store.sqlite.files._RESERVE_BYTES": self._reserve},
            inside=self._holder,
        )

    def database(self) -> sqlite3.Connection:
        """Copy the files in the present state, as a restart would find them."""
        copy = self.path.with_name("copy")
        copy.mkdir()
        for file in self._seen.glob("askfirst.db*"):
            if file.is_file():
                shutil.copy(file, copy)
        return sqlite3.connect(copy / "askfirst.db")


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[Disk]:
    path = tmp_path / "disk"
    path.mkdir()
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", MOUNTED, "sh", str(path), str(SIZE)]
    try:
        holder = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
    except FileNotFoundError:
        yield Disk(path, None)
        return
    assert holder.stdout is not None
    assert holder.stdin is not None
    mounted = await holder.stdout.readline() == b"mounted\n"
    yield Disk(path, holder.pid if mounted else None)
    holder.stdin.close()
    await holder.wait()


@pytest.fixture
async def on_full(tmp_path: Path, disk: Disk) -> AsyncIterator[Stage]:
    async with on_stage(tmp_path, f"sqlite:///{disk.path / 'askfirst.db'}") as on_full:
        yield on_full


async def test_nearly_full_disk_puts_off_messages_and_keeps_decisions(on_full: Stage, disk: Disk) -> None:
    ana = on_full.telegram.person("Ana")
    async with disk.served(on_full) as process:
        await on_full.webhook_to(process)
        message = await prompt(on_full, "INV-1", by=ana)
        on_full.model.script([Say("Hello!"), Say("Hello again!")])
        old, new = [await written(on_full, text, ana) for text in ("hi", "hi again")]
        press, pressing = await pressed(on_full, message, ana)
        assert await taken(process, old) == 200
        await on_full.until(lambda: "Hello!" in on_full.texts(ana))
        with disk.filled(process, leaving=SIZE // 2):
            async with asyncio.timeout(30):
                while (await post(process, old))[0] == 200:  # a twin; the disk is looked at now and then
                    pass
            assert (await post(process, new))[0] == 503
            assert await ready(process) == 200
            assert (await post(process, pressing))[0] == 200
            await on_full.until(lambda: press.answered)
            assert (press.text, on_full.business.done) == ("Confirmed.", [])
        await on_full.until(lambda: "pay INV-1 ok" in on_full.texts(ana))
        assert await taken(process, new) == 200
        await on_full.until(lambda: "Hello again!" in on_full.texts(ana))
        assert len(on_full.business.done) == 1
        none, again = [line for line in loud(process) if line.startswith("askfirst.store: ")]
    assert none.endswith("MiB left: new messages and launches wait; make room")
    assert again.endswith(": goes on")


async def test_full_disk_writes_no_half_records_and_resumes_with_room(on_full: Stage, disk: Disk) -> None:
    """Also for a restart on the full disk: the process is killed and started again there."""
    ana, ben = on_full.telegram.person("Ana"), on_full.telegram.person("Ben")
    async with disk.served(on_full) as process:
        await on_full.webhook_to(process)
        message, other = await prompt(on_full, "INV-1", by=ana), await prompt(on_full, "INV-2", by=ben)
        update = await written(on_full, "hello", ana)
        presses = [await pressed(on_full, message, ana) for _ in range(20)]
        with disk.filled(process):
            assert await ready(process) == 503
            for each in [pressing for _, pressing in presses] + [update] * 20:
                assert (await post(process, each))[0] == 503
            assert (on_full.business.done, on_full.texts(ana)[1:]) == ([], [])
            assert not any(press.answered for press, _ in presses)
            said = [line for line in loud(process) if REFUSED not in line]
            assert said
            assert len(said) == len(set(said)), "each says once that it waits"
            # On a machine that has no time a lease is not renewed either, which says so in a line of its own.
            others = [line for line in said if "could not renew" not in line and "make room" not in line]
            assert [line for line in others if MEND[disk.is_real] not in line] == []
            with contextlib.closing(disk.database()) as found:
                assert found.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
                assert found.execute("SELECT count(*) FROM event").fetchone() == (0,)
            await process.end()
            async with disk.served(on_full) if disk.is_real else contextlib.nullcontext() as another:
                if another is not None:  # one that is begun anew may take some: its log is written from the start again
                    await another.url()
                    for _, pressing in presses:
                        assert (await post(another, pressing))[0] in (200, 503)
                    assert "Traceback" not in another.said
            assert on_full.business.done == [], "what was decided waits for room"
    async with disk.served(on_full) as process:
        await on_full.webhook_to(process)
        on_full.model.script([Say("Hello!")])
        for _, pressing in presses:
            assert await taken(process, pressing) == 200
        await on_full.until(lambda: not message.buttons and "pay INV-1 ok" in on_full.texts(ana))
        assert await taken(process, update) == 200
        await on_full.until(lambda: "Hello!" in on_full.texts(ana))
        await on_full.telegram.press(other, "Confirm", ben)
        await on_full.until(lambda: "pay INV-2 ok" in on_full.texts(ben))
        assert await ready(process) == 200
    assert len(on_full.business.done) == 2
