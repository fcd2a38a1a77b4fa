"""A store on a network file system causes a warning, by the opening server and by the doctor."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli import main
from gateway.store.sqlite import SqliteStore, files
from gateway.store.sqlite.files import file_system
from tests.cli.conftest import here

__all__ = ["here"]

MOUNTS = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
31 27 0:27 / /srv rw,relatime shared:7 - nfs4 files.example.com:/srv rw,vers=4.2,hard,proto=tcp
32 27 8:1 / /srv rw,relatime - xfs /dev/sda1 rw
33 27 0:30 /bot /home/ana\040b rw,relatime shared:8 master:9 - cifs //files.example.com/ana rw,vers=3.1.1
34 27 0:31 / /mnt/\134-\040\134 rw,nosuid,nodev - fuse.sshfs ana@files.example.com:/home rw,user_id=1000
"""


@pytest.mark.parametrize(
    ("mount", "kind"),
    [(27, "ext4"), (31, "nfs4"), (32, "xfs"), (33, "cifs"), (34, "fuse.sshfs"), (3, None), (2, None)],
)
def test_the_mount_of_an_open_file_says_its_file_system(mount: int, kind: str | None) -> None:
    """Also for a mount over another, and with any name of the place."""
    assert file_system(f"pos:\t0\nflags:\t0100000\nmnt_id:\t{mount}\nino:\t2\n", MOUNTS) == kind


@pytest.mark.parametrize(("details", "mounted"), [("pos:\t0\nflags:\t02\n", MOUNTS), ("mnt_id:\t27\n", ""), ("", "")])
def test_unreadable_mountinfo_names_no_file_system(details: str, mounted: str) -> None:
    assert file_system(details, mounted) is None


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's description of this process, written by the test; the open files are real."""
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "fdinfo").symlink_to("/proc/self/fdinfo")
    monkeypatch.setattr(files, "_PROC", proc)
    return proc


def every_mount_is(kind: str) -> str:
    return re.sub(r" - \S+ ", f" - {kind} ", Path("/proc/self/mountinfo").read_text())


async def said_at_the_start(path: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    store = SqliteStore(path)
    await store.open()
    await store.ping()
    await store.close()
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "fuse.glusterfs"])
async def test_file_on_a_network_file_system_is_warned_of(
    proc: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    (proc / "mountinfo").write_text(every_mount_is(kind))
    file = tmp_path / "deep" / "askfirst.db"
    (warning,) = await said_at_the_start(file, caplog)
    assert warning.startswith(f"{file} is on a network file system ({kind}): ")
    assert "memory that one machine's processes share" in warning
    assert warning.endswith("Name a file on a local disk, or a Redis, in ASKFIRST_STORE.")


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "overlay", "tmpfs", "fuse.ntfs-3g", "fuse"])
async def test_file_on_a_local_disk_is_not_warned_of(
    proc: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    (proc / "mountinfo").write_text(every_mount_is(kind))
    assert await said_at_the_start(tmp_path / "askfirst.db", caplog) == []


async def test_file_without_mountinfo_is_not_warned_of(
    proc: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert await said_at_the_start(tmp_path / "askfirst.db", caplog) == []


async def test_doctor_warns_of_a_network_mount_before_and_after(
    here: Path, proc: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (proc / "mountinfo").write_text(every_mount_is("nfs4"))

    async def warnings() -> list[str]:
        env = {"ASKFIRST_ALLOW": "telegram:*"}
        result = await asyncio.to_thread(CliRunner().invoke, main, ["doctor", "bot.py"], env=env)
        return [line.partition(" is on ")[0] for line in result.output.splitlines() if line.startswith("warn  store")]

    file = here / ".askfirst" / "askfirst.db"
    told = [f"warn  store: {file}"]
    assert await warnings() == told
    assert not file.parent.exists()
    await said_at_the_start(file, caplog)
    assert await warnings() == told
