"""A person on Slack takes what is kept of them and has it removed, and an operator does so beside the server."""

from __future__ import annotations

import json
import re
from pathlib import Path

from gateway.wording import say
from tests.cli.processes import askfirst, forked
from tests.cli.test_forget_command import bytes_in
from tests.e2e.test_serve_slack import SERVE, answered, sent_to, served
from tests.fakes.openai import Call, FakeOpenAI
from tests.fakes.slack import FakeSlack, Sent


def code(asked: Sent, command: str) -> str:
    (found,) = re.findall(rf"/{command} (\S+)", asked.shown)
    return str(found)


async def listed(directory: Path, env: dict[str, str]) -> list[str]:
    exit_code, out, err = await askfirst("conversations", "list", "--json", cwd=directory, env=env)
    assert exit_code == 0, err
    found: list[str] = json.loads(out)
    return found


async def test_person_on_slack_exports_and_forgets_themselves(tmp_path: Path) -> None:
    async with FakeSlack() as slack, FakeOpenAI() as model:
        env, ana = served(slack, model, tmp_path), slack.person("ana")
        home = slack.direct(ana)
        model.script(["You like quokkas.", Call("delete_invoice", {"invoice_id": "INV-42"})])
        async with forked(*SERVE, "0", cwd=tmp_path, env=env) as server:
            slack.webhook = f"{await server.url()}/webhooks/slack"
            await answered(slack, ana, home, "I like quokkas")
            question = await answered(slack, ana, home, "delete invoice INV-42")
            assert list(question.buttons) == ["Confirm", "Cancel", "Change"]
            asked = await answered(slack, ana, home, "/export")
            await slack.says(ana, home, f"/export {code(asked, 'export')}")
            file = await slack.wait_for(lambda: slack.files[0] if slack.files else None)
            assert file.content and b"I like quokkas" in file.content
            asked = await answered(slack, ana, home, "/forget")
            told = await answered(slack, ana, home, f"/forget {code(asked, 'forget')}")
            assert told.shown == say("forget_begun", "en")
            await slack.wait_for(lambda: b"quokkas" not in bytes_in(tmp_path))
            assert await listed(tmp_path, env) == []
            pressed = await slack.press(question, "Confirm", by=ana)
            await slack.wait_for(lambda: pressed.answers)
            model.script(["Hello."])
            assert (await answered(slack, ana, home, "hello")).shown == "Hello."
            assert not any("is deleted" in each.shown for each in sent_to(slack, home))


async def test_operator_forgets_a_person_of_a_running_server(tmp_path: Path) -> None:
    async with FakeSlack() as slack, FakeOpenAI() as model:
        env, ana, ben = served(slack, model, tmp_path), slack.person("ana"), slack.person("ben")
        model.script(["You like quokkas.", "You like wombats."])
        async with forked(*SERVE, "0", cwd=tmp_path, env=env) as server:
            slack.webhook = f"{await server.url()}/webhooks/slack"
            await answered(slack, ana, slack.direct(ana), "I like quokkas")
            await answered(slack, ben, slack.direct(ben), "I like wombats")
            name = next(each for each in await listed(tmp_path, env) if each.endswith(slack.direct(ana)))
            exit_code, out, err = await askfirst("conversations", "forget", name, "--yes", cwd=tmp_path, env=env)
            assert (exit_code, out.partition(":")[0]) == (0, "Gone"), err
            assert len(await listed(tmp_path, env)) == 1
            kept = bytes_in(tmp_path)
            assert (b"quokkas" in kept, b"wombats" in kept) == (False, True)
            model.script(["Hello."])
            assert (await answered(slack, ana, slack.direct(ana), "hello")).shown == "Hello."
