"""Checks the rules of the house that no other linter knows: words, names and sizes.

``python -m scripts.house`` prints each violation with its place, and exits with 1 if there is one:

- a docstring opens with a word that hides its subject (see `_OPENING`);
- a package has more than 5 indefinite pronouns per 1,000 words of its docstrings;
- two classes of `gateway` and `channels` have the same name;
- a file is longer than 600 lines, or a function longer than 60;
- the rooms of the platforms do not have the same file names;
- the name of a test function in `tests` or `gateway/testing` has more than 60 characters.

``python -m scripts.house --rates`` prints the pronoun rate of each package.
"""

from __future__ import annotations

import ast
import gc
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["RULES", "Place", "docstrings", "main", "rates", "violations"]

ROOT: Final = Path(__file__).parent.parent
PACKAGES: Final = ("gateway", "channels")
WORDED: Final = (*PACKAGES, "askfirst", "bench", "scripts")
"""The packages whose docstrings are held to the words."""

FILE_LINES: Final = 600
FUNCTION_LINES: Final = 60
PRONOUNS_PER_1000: Final = 5.0
TEST_NAME_CHARACTERS: Final = 60

_PRONOUN: Final = re.compile(
    r"\b(who|whoever|whom|whose|what|whatever|nobody|nothing|somebody|those|such)\b", re.IGNORECASE
)
_OPENING: Final = re.compile(
    r"(who|whoever|whom|whose|what|whatever|of|nobody|nothing|so many|so long|where|those)\b", re.IGNORECASE
)

_TEST: Final = re.compile(r"\s*(?:async )?def (test_\w+)")

_SIBLINGS: Final = ("slack", "telegram", "twilio", "webchat")
_OWN_FILES: Final[Mapping[str, frozenset[str]]] = {
    "slack": frozenset({"socket.py", "text.py"}),
    "twilio": frozenset({"shapes.py"}),
}
"""The files of a platform's room that no other platform needs."""


class Place(NamedTuple):
    """One violation of a rule."""

    path: str
    line: int
    says: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.says}"


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring, and of each string under an attribute."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for item in body if isinstance(body, list) else ():
            if (
                isinstance(item, ast.Expr)
                and isinstance(item.value, ast.Constant)
                and isinstance(item.value.value, str)
            ):
                yield item.lineno, item.value.value


def rates(root: Path) -> dict[str, float]:
    """Return the indefinite pronouns per 1,000 words of the docstrings, by package."""
    words: defaultdict[str, int] = defaultdict(int)
    pronouns: defaultdict[str, int] = defaultdict(int)
    for path, tree in _trees(root, WORDED):
        package = "/".join(path.parts[:2]) if len(path.parts) > 2 else path.parts[0]
        for _, text in docstrings(tree):
            words[package] += len(text.split())
            pronouns[package] += len(_PRONOUN.findall(text))
    return {package: 1000 * pronouns[package] / count for package, count in words.items() if count}


def openings(root: Path) -> Iterator[Place]:
    """Yield the docstrings that open with a word that hides their subject."""
    for path, tree in _trees(root, WORDED):
        for line, text in docstrings(tree):
            if opening := _OPENING.match(text.strip()):
                yield Place(str(path), line, f'a docstring opens with "{opening[0]}": begin with its subject or verb')


def pronouns(root: Path) -> Iterator[Place]:
    """Yield the packages with too many indefinite pronouns."""
    for package, rate in rates(root).items():
        if rate > PRONOUNS_PER_1000:
            yield Place(package, 1, f"{rate:.1f} indefinite pronouns per 1,000 words of docstrings: name the things")


def twins(root: Path) -> Iterator[Place]:
    """Yield the classes whose name another class has; the payload models of the platforms may share theirs."""
    first: dict[str, Place] = {}
    for path, tree in _trees(root, PACKAGES):
        if path.name in ("payload.py", "models.py"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name not in _FIXED_TWINS:
                place = Place(str(path), node.lineno, f"a second class is named {node.name}")
                if node.name in first:
                    yield place._replace(says=f"{place.says}: the first is in {first[node.name].path}")
                first.setdefault(node.name, place)


_FIXED_TWINS: Final = frozenset({"Ambiguous", "RateLimited", "ToolCall"})
"""Names of two modules of the public surface, which cannot change: the first two of `channels` and `gateway`, the last
of `gateway.providers` and `gateway.testing`."""


def sizes(root: Path) -> Iterator[Place]:
    """Yield the files and the functions that are too long."""
    for path, tree in _trees(root, PACKAGES):
        lines = len((root / path).read_text(encoding="utf-8").splitlines())
        if lines > FILE_LINES:
            yield Place(str(path), 1, f"{lines} lines: a file has at most {FILE_LINES}")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                length = node.end_lineno - node.lineno + 1
                if length > FUNCTION_LINES:
                    yield Place(str(path), node.lineno, f"{node.name} has {length} lines: at most {FUNCTION_LINES}")


def siblings(root: Path) -> Iterator[Place]:
    """Yield the files of a platform's room that no other platform's room has."""
    rooms = {name: {path.name for path in (root / "channels" / name).glob("*.py")} for name in _SIBLINGS}
    for name, files in rooms.items():
        others = set().union(*(rooms[other] for other in rooms if other != name))
        for file in sorted(files - others - _OWN_FILES.get(name, frozenset())):
            yield Place(f"channels/{name}/{file}", 1, "no other platform has a file of this name: use theirs")


def test_names(root: Path) -> Iterator[Place]:
    """Yield the test functions whose name is too long, the prefix included."""
    for package in ("tests", "gateway/testing"):
        for path in sorted((root / package).rglob("*.py")):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if (found := _TEST.match(line)) and (length := len(found[1])) > TEST_NAME_CHARACTERS:
                    says = f"{found[1]} has {length} characters: at most {TEST_NAME_CHARACTERS}"
                    yield Place(str(path.relative_to(root)), number, says)


RULES: Final = {
    "openings": openings,
    "pronouns": pronouns,
    "twins": twins,
    "sizes": sizes,
    "siblings": siblings,
    "test_names": test_names,
}


def violations(root: Path) -> list[Place]:
    """Return all violations in the packages below `root`."""
    return [place for rule in RULES.values() for place in rule(root)]


def main(arguments: list[str]) -> int:
    """Print the violations, or the rates with ``--rates``; return the exit status."""
    if arguments == ["--rates"]:
        for package, rate in sorted(rates(ROOT).items()):
            print(f"{package:24} {rate:5.1f}")
        return 0
    gc.disable()  # it would go through the parsed trees again and again
    found = violations(ROOT)
    for place in found:
        print(place)
    return 1 if found else 0


def _trees(root: Path, packages: tuple[str, ...]) -> Iterator[tuple[Path, ast.Module]]:
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            yield path.relative_to(root), _tree(path)


@cache
def _tree(path: Path) -> ast.Module:
    """Return the parsed file. Several rules read each file, and parsing takes most of the time."""
    return ast.parse(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
