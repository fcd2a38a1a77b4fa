"""A store in a container: what is kept is told from what goes with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.cli.container import goes_with_container

ROOT = "590 480 0:52 / / ro,relatime master:1 - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/A\n"
VOLUME = "612 590 254:1 /var/lib/docker/volumes/{}/_data /data rw,relatime - ext4 /dev/vda1 rw\n"
BOUND = "613 590 254:1 /srv/askfirst /data rw,relatime - ext4 /dev/vda1 rw\n"


@pytest.mark.parametrize(
    ("mounts", "directory", "goes"),
    [
        (ROOT, "/data", True),
        (ROOT + VOLUME.format("9f" * 32), "/data", True),
        (ROOT + VOLUME.format("askfirst_data"), "/data", False),
        (ROOT + VOLUME.format("askfirst_data"), "/data/deep/er", False),
        (ROOT + VOLUME.format("askfirst_data"), "/database", True),
        (ROOT + BOUND, "/data", False),
        (ROOT + BOUND + VOLUME.format("9f" * 32), "/bot/.askfirst", True),
    ],
)
def test_what_is_mounted_by_name_or_path_stays(mounts: str, directory: str, goes: bool) -> None:
    assert goes_with_container(Path(directory), mounts) is goes
