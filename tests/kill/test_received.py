"""SIGKILL while a person's file is fetched: it is shown to the model, and kept once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.artifacts.test_pictures import png
from tests.fakes.openai import Say
from tests.kill.stage import Stage, a_store, on_stage

pytestmark = pytest.mark.timeout(180)

PNG = png(640, 480) + b"pixels"


@pytest.fixture(params=["sqlite", "redis"])
async def stage(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    async with a_store(request.param, tmp_path) as store, on_stage(tmp_path, store) as stage:
        await stage.start()
        yield stage


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_while_it_fetches_a_photo_is_kept_once(stage: Stage, when: str) -> None:
    """Before its place was named, and after: the next process fetches the bytes."""
    ana = stage.telegram.person("Ana")
    photo = stage.telegram.upload("photo", PNG, "", "image/png")
    held = stage.telegram.hold("getFile", "before" if when == "before" else "after")
    stage.model.script([Say("A cat.")])
    await stage.telegram.person_says(ana, ana, "what is this?", file=photo)
    await held.reached()
    await stage.kill()
    held.release()
    await stage.start()
    await stage.until(lambda: stage.texts(ana) == ["A cat."])
    (request,) = stage.model.requests
    assert "iVBORw0KGgo" in str(request["messages"][-1]["content"])
    kept = [path for path in _artifacts(stage).iterdir() if path.is_file() and not path.name.startswith(".")]
    assert [path.read_bytes() for path in kept] == [PNG]


def _artifacts(stage: Stage) -> Path:
    named = stage.env.get("ASKFIRST_ARTIFACTS")
    return Path(named) if named else stage.directory / "artifacts"
