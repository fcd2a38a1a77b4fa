"""Every request is answered, no part breaks, and a new person is answered afterwards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import reached_out
from tests.fuzz.requests import Request, made
from tests.fuzz.rig import Rig, opened
from tests.nasty import held_seconds

ROOT = Path(__file__).parents[2]
CORPUS = Path(__file__).with_name("corpus")
STATE = ROOT / ".nightly" / "fuzz.json"
SOME, MANY, ALL = 300, 100_000, 1_000_000
IN_ONE = 5_000
"""The number of requests to one server and store."""
CLIENTS, HELD_SECONDS = 64, 0.25
"""The clients of the nightly run, and the longest time to hold the event loop."""


@pytest.fixture(autouse=True)
def files_are_asked_for() -> Iterator[None]:
    """Files of real events would be fetched from Slack's own host. Here the fetch is refused and noted."""
    yield
    reached_out[:] = [each for each in reached_out if "files.slack.com" not in each]


def check(rig: Rig) -> None:
    """Fail if a request went wrong. The corpus keeps each wrong request for every later run."""
    for request, _ in rig.wrong:
        if request.body or request.headers:
            text = request.to_json()
            name = hashlib.sha256(text.encode()).hexdigest()[:12]
            (CORPUS / f"{name}.json").write_text(text, encoding="utf-8")
    assert [f"{request.method} {request.path}: {what}" for request, what in rig.wrong] == []


async def test_every_request_of_the_corpus_is_answered(tmp_path: Path) -> None:
    corpus = [Request.from_json(path.read_text("utf-8")) for path in sorted(CORPUS.glob("*.json"))]
    async with opened(tmp_path) as rig:
        await rig.send(corpus)
        check(rig)
        assert sum(rig.answers.values()) == len(corpus) > 50
        assert await rig.answers_somebody_new()


async def test_generated_requests_are_answered(tmp_path: Path) -> None:
    async with opened(tmp_path) as rig:
        await rig.send(made(number) for number in range(SOME))
        check(rig)
        assert {200, 400, 401, 404} <= {status for _, status in rig.answers}
        taken = sum(count for (_, status), count in rig.answers.items() if status == 200)
        assert taken > SOME / 3, "hardly any of them is let in"
        assert await rig.answers_somebody_new()


def test_a_request_is_made_from_its_number_alone() -> None:
    assert [made(number) for number in range(100)] == [made(number) for number in range(100)]
    assert len({made(number).to_json() for number in range(100)}) == 100


def test_a_request_survives_its_json_form() -> None:
    for number in range(100):
        assert Request.from_json(made(number).to_json()) == made(number)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
async def test_100_000_generated_requests_are_answered(tmp_path: Path) -> None:
    """A run continues where the last ended or broke off; after a million requests with another seed."""
    state = json.loads(STATE.read_text()) if STATE.exists() else {"seed": 1, "next": 0}
    seed, first = state["seed"], state["next"]
    until = min(ALL, first + MANY - first % MANY)
    for begin in range(first, until, IN_ONE):
        end = min(begin + IN_ONE, until)
        directory = tmp_path / f"{begin}"
        directory.mkdir()
        async with opened(directory) as rig:
            held = await held_seconds(rig.send((made(number, seed) for number in range(begin, end)), clients=CLIENTS))
            check(rig)
            assert held < HELD_SECONDS, f"the loop stood still for {held:.2f} s between {begin} and {end}"
            assert await rig.answers_somebody_new()
        reached = {"seed": seed, "next": end} if end < ALL else {"seed": seed + 1, "next": 0}
        STATE.parent.mkdir(exist_ok=True)
        STATE.write_text(json.dumps(reached))
