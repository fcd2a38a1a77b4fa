"""The documents are true: all examples run, all commands and links exist, and no public name is left out.

A Python block with a first line ``# name.py`` begins a file: a block without a name continues the file before. The
files of a page lie in one directory and can import each other.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import gateway
import gateway.testing
import scripts.commands
import scripts.cookbook
from gateway.cli import main
from gateway.config.environment import SECRETS
from gateway.config.settings import Settings
from scripts import platforms, sentences
from tests.children import children, run_file

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXT = {page.name: page.read_text(encoding="utf-8") for page in PAGES}

BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# (?P<name>\w+\.py)\n")
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#+ (?P<title>.+)$", re.MULTILINE)
VARIABLE = re.compile(r"\b(?:ASKFIRST|TELEGRAM|SLACK|TWILIO|OPENAI|ANTHROPIC)_[A-Z_]*[A-Z]\b")
VARIABLES = {
    str(field.validation_alias or f"ASKFIRST_{name.upper()}"): field for name, field in Settings.model_fields.items()
}
LARGEST_IMAGE = 200_000
LONGEST_EXAMPLE = 120


def blocks(page: str, *languages: str) -> Iterator[re.Match[str]]:
    return (block for block in BLOCK.finditer(TEXT[page]) if block["language"] in languages)


def python_files(page: str) -> dict[str, str]:
    """Return the files, with each line at the line number of the page: a traceback then names a line of the page."""
    found: dict[str, list[str]] = {}
    name = ""
    for block in blocks(page, "python"):
        if named := FILE_NAME.match(block["body"]):
            name = named["name"]
            assert name not in found, f"{page} has two files {name}"
            found[name] = []
        assert name, f"{page}: the first Python block names no file"
        lines = found[name]
        lines += [""] * (TEXT[page].count("\n", 0, block.start("body")) - len(lines))
        lines += block["body"].splitlines()
    return {name: "\n".join([*lines, ""]) for name, lines in found.items()}


COOKBOOK = {page.name for page in scripts.cookbook.PAGES.values()}
"""Their files are written by ``askfirst init``, and run in tests/cli/test_suggestions.py."""
EXAMPLES = [(page, name) for page in TEXT if page not in COOKBOOK for name in python_files(page)]


@pytest.mark.timeout(300)  # an example may be a whole suite
@pytest.mark.parametrize(("page", "name"), EXAMPLES, ids=[f"{page}:{name}" for page, name in EXAMPLES])
def test_an_example_runs(page: str, name: str, tmp_path: Path) -> None:
    for each, body in python_files(page).items():
        (tmp_path / each).write_text(body, encoding="utf-8")
    said = tmp_path / "said.txt"
    child = children.Process(target=run_file, args=(name, tmp_path, said, dict(os.environ)))
    child.start()
    child.join()
    assert child.exitcode == 0, said.read_text(encoding="utf-8")


def commands(page: str) -> Iterator[list[str]]:
    """Yield each command line of a page's shell blocks, as words."""
    for block in blocks(page, "sh"):
        for line in block["body"].replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words and "=" in words[0]:
                words.pop(0)
            if words:
                yield [words[0].rpartition("/")[2], *words[1:]]


def find_command(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command of ours in these words, and the arguments. Raises KeyError for an unknown command."""
    command: click.Command = main
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words[0])
        if found is None:
            raise KeyError(words[0])
        command, words = found, words[1:]
    return command, words


@pytest.mark.parametrize("page", TEXT)
def test_every_command_line_can_be_typed_as_it_stands(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bot.py", "report.jsonl"):  # the commands look for them
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for program, *words in commands(page):
        if program == "make":
            assert set(words) <= set(targets), f"make {words}"
        elif program == "askfirst":
            command, arguments = find_command(words)
            command.make_context("askfirst", arguments)  # exits with its usage when they do not fit


@pytest.mark.parametrize("page", TEXT)
def test_every_command_in_the_text_exists(page: str) -> None:
    for found in re.findall(r"`askfirst ([^`]+)`", TEXT[page]):
        command, rest = find_command(shlex.split(found))
        assert not isinstance(command, click.Group) or not rest or rest == ["--help"], found


def test_the_list_of_commands_is_that_of_the_parser() -> None:
    page = TEXT[scripts.commands.PAGE.name]
    assert scripts.commands.written(page) == page, "write it anew: make commands"
    assert set(scripts.commands.EXAMPLES) == {name for name, _ in scripts.commands.leaves()}


def anchor(title: str) -> str:
    """Return the anchor of a heading: https://docs.github.com/en/get-started/writing-on-github, "Section links"."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(BLOCK.sub("", TEXT[page.name])):
        if target.startswith("https://"):
            continue
        path, _, fragment = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        if fragment:
            titles = HEADING.findall(BLOCK.sub("", found.read_text(encoding="utf-8")))
            assert fragment in map(anchor, titles), target


def test_every_file_that_is_named_exists_and_every_room_is_drawn() -> None:
    for text in TEXT.values():
        for path in re.findall(r"(?<![\w./])[a-z_]+(?:/[a-z_]+)+\.(?:py|toml)\b", text):
            assert any((above / path).is_file() for above in (ROOT, ROOT / "gateway")), path
    for package in ("channels", "gateway"):
        for room in (ROOT / package).glob("*/__init__.py"):
            assert re.search(rf"^  .*\b{room.parent.name}/", TEXT["architecture.md"], re.MULTILINE), room


def test_every_page_and_every_image_is_reached() -> None:
    linked = {target.partition("#")[0].rpartition("/")[2] for text in TEXT.values() for target in LINK.findall(text)}
    assert {page.name for page in PAGES} - {"README.md"} <= linked
    images = list((ROOT / "docs" / "images").iterdir())
    assert {image.name for image in images} <= linked
    assert [image.name for image in images if image.stat().st_size > LARGEST_IMAGE] == []


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_every_example_is_short_tested_and_linked(example: Path) -> None:
    text = example.read_text(encoding="utf-8")
    assert len(text.splitlines()) < LONGEST_EXAMPLE
    assert re.search(r"\brun\b", text.split('"""')[1], re.IGNORECASE), "its docstring does not say how to run it"
    assert (ROOT / "tests" / "examples" / f"test_{example.name}").is_file()
    linked = [name for name, text in TEXT.items() if f"examples/{example.name})" in text]
    assert "README.md" in linked and len(linked) > 1, linked


def test_documented_proxies_pass_only_public_paths() -> None:
    (caddy,), (nginx,) = ([block["body"] for block in blocks("deploy.md", name)] for name in ("caddy", "nginx"))
    for proxy in (caddy, nginx):
        assert set(re.findall(r"(?:handle|location) (/\w+/)\*? \{", proxy)) == {"/webhooks/", "/artifacts/"}
        assert set(re.findall(r"(?:reverse_proxy |proxy_pass http://)([\w.:]+)", proxy)) == {"127.0.0.1:8080"}
        assert "404" in proxy


@pytest.mark.parametrize("variable", VARIABLES)
def test_every_setting_is_documented_with_its_default(variable: str) -> None:
    rows = [line for line in TEXT["settings.md"].splitlines() if line.startswith(f"| `{variable}` |")]
    assert len(rows) == 1
    default = VARIABLES[variable].default
    if default not in (None, ()):
        assert f"`{default}`" in rows[0]


@pytest.mark.parametrize("page", TEXT)
def test_no_page_names_a_setting_that_is_none(page: str) -> None:
    assert set(VARIABLE.findall(TEXT[page])) <= {*VARIABLES, *(f"{name}_FILE" for name in SECRETS)}


@pytest.mark.parametrize("name", [*gateway.__all__, *gateway.testing.__all__])
def test_every_public_name_is_in_the_documents(name: str) -> None:
    assert any(re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`", text) for text in TEXT.values())


OPTIONS = [
    ("tools.md", gateway.Tool.__init__),
    ("tools.md", gateway.Confirm.__init__),
    ("tools.md", gateway.Preview.__init__),
    ("tools.md", gateway.ToolPolicy.__init__),
    ("tools.md", gateway.emit_artifact),
    ("confirmation.md", gateway.Approvers.__init__),
    ("bots.md", gateway.Agent.__init__),
    ("bots.md", gateway.ChannelAgent.__init__),
    ("bots.md", gateway.ChannelAgent.ask_channel),
    ("bots.md", gateway.ChannelAgent.decide),
    ("bots.md", gateway.Gateway.__init__),
    ("bots.md", gateway.AgentConfig),
    ("mcp.md", gateway.MCPServer.__init__),
    ("models.md", gateway.FallbackProvider.__init__),
    ("testing.md", gateway.testing.ChatDriver.says),
]


@pytest.mark.parametrize(("page", "function"), OPTIONS, ids=lambda of: getattr(of, "__qualname__", of))
def test_every_option_is_documented(page: str, function: object) -> None:
    names = set(inspect.signature(function).parameters) - {"self"}  # type: ignore[arg-type]
    assert sorted(name for name in names if not re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`", TEXT[page])) == []


def test_all_that_a_person_is_told_stands_there_word_for_word() -> None:
    for path, renewed in ((sentences.PAGE, sentences.written), (sentences.WORDING, sentences.listed)):
        page = TEXT[path.name]
        assert renewed(page) == page, "write it anew: make sentences"


@pytest.mark.parametrize("template", scripts.cookbook.PAGES)
def test_a_cookbook_page_shows_its_bot_and_its_conversation(template: str) -> None:
    assert scripts.cookbook.written(template) == TEXT[scripts.cookbook.PAGES[template].name], "make cookbook"


def test_the_table_of_platforms_is_that_of_the_channels() -> None:
    page = TEXT[platforms.PAGE.name]
    assert platforms.written(page) == page, "write it anew: make platforms"


def test_every_documented_sentence_has_an_occasion() -> None:
    named = [name for section in sentences.OCCASIONS.values() for name in section]
    table = TEXT[sentences.PAGE.name].partition("<!-- sentences")[2].partition("<!-- /sentences")[0]
    assert sorted(named) == sorted(re.findall(r"\| `(\w+)` \|$", table, re.MULTILINE))


SAYS = re.compile(r"\"(?P<quoted>[^\"]{12,})\"|`(?P<code>[^`]* [^`]* [^`]*)`")
FILLED_IN = re.compile(r"\.\.\.|\d{4}|127\.0\.0\.1:\d+|\btelegram\b|\(Address already in use\)|[A-Z]+_[A-Z_]+|NAME|`")


def test_quotes_of_troubleshooting_are_texts_of_the_program() -> None:
    sources = [
        path.read_text(encoding="utf-8") for top in ("gateway", "channels") for path in (ROOT / top).rglob("*.py")
    ]
    said = re.sub(r"\"\s*\n\s*f?\"", "", "\n".join(sources))  # a sentence over several lines
    said += (ROOT / "gateway" / "wording" / "en.toml").read_text(encoding="utf-8")
    rows = [line.split(" | ")[0] for line in TEXT["troubleshooting.md"].splitlines() if line.startswith("| ")]
    quotes = [found["quoted"] or found["code"] for row in rows for found in SAYS.finditer(row)]
    assert len(quotes) > 15
    for quote in quotes:
        if not quote.startswith(("askfirst ", "curl ")):
            pieces = [piece.strip(" .:()") for piece in FILLED_IN.split(quote)]
            assert [piece for piece in pieces if piece not in said] == [], quote


THREATS = [line for line in TEXT["threats.md"].splitlines() if re.match(r"\| T", line)]


def test_threats_are_numbered_and_each_names_a_test_or_an_owner() -> None:
    assert [line.split(" | ")[0] for line in THREATS] == [f"| T{number}" for number in range(1, len(THREATS) + 1)]
    whose = re.compile(r"`tests/|\b(?:operator|author|bot author|people|maintainers)\b")
    assert [line for line in THREATS if not whose.search(line.split(" | ")[3])] == []
    for found in [*(f"D{number}" for number in range(1, 11)), *(f"W{number}" for number in range(1, 20))]:
        assert any(re.search(rf"\([DW\d, ]*\b{found}\b[DW\d, ]*\)", line) for line in THREATS), found


@pytest.mark.parametrize("cited", sorted(set(re.findall(r"`(tests/[^`]+)`", TEXT["threats.md"]))))
def test_a_test_that_a_threat_names_exists(cited: str) -> None:
    path, _, name = cited.partition("::")
    assert (ROOT / path).exists()
    if name:
        assert re.search(rf"^(?:async )?def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), name
