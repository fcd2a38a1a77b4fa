"""Checks the rules of the house not covered by any other linter: words, names and sizes.

``python -m scripts.house`` prints each violation with the place, and exits with 1 after any violation:

- a docstring opens with a word hiding the subject (see `_OPENING`);
- a package has more than 5 indefinite pronouns per 1,000 words of docstrings;
- a file has more than 40 relative pronouns (see `_RELATIVE`) per 1,000 words, or three in a sentence;
- two classes of `gateway` and `channels` have the same name;
- a file is longer than 600 lines, or a function longer than 60;
- the rooms of the platforms do not have the same file names;
- the name of a test function in `tests` or `gateway/testing` has more than 60 characters, or an indefinite pronoun.

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
"""The packages with docstrings under the rules of words."""

FILE_LINES: Final = 600
FUNCTION_LINES: Final = 60
PRONOUNS_PER_1000: Final = 5.0
RELATIVES_PER_1000: Final = 40.0
RELATIVES_IN_A_SENTENCE: Final = 2
TEST_NAME_CHARACTERS: Final = 60

_PRONOUN: Final = re.compile(
    r"\b(who|whoever|whom|whose|what|whatever|nobody|nothing|somebody|those|such)\b", re.IGNORECASE
)
_RELATIVE: Final = re.compile(r"\b(that|which|its?|one|they|them|their)\b", re.IGNORECASE)
_SENTENCE: Final = re.compile(r"(?<=[.:;!?])\s+")
_FEWEST_WORDS: Final = 100
"""A shorter file has no rate: a few words decide it."""
_SHOWN: Final = frozenset({"command", "group", "tool", "result_callback"})
"""Decorators of functions with a docstring for the operator or the model."""
_OPENING: Final = re.compile(
    r"(who|whoever|whom|whose|what|whatever|of|nobody|nothing|so many|so long|where|those)\b", re.IGNORECASE
)

_TEST: Final = re.compile(r"\s*(?:async )?def (test_\w+)")
_VAGUE_NAME: Final = re.compile(r"_(who|whoever|whom|whose|what|whatever|nobody|nothing|somebody|those|such)(_|$)")

_SIBLINGS: Final = ("slack", "telegram", "twilio", "webchat")
_OWN_FILES: Final[Mapping[str, frozenset[str]]] = {
    "slack": frozenset({"socket.py", "text.py"}),
    "twilio": frozenset({"shapes.py"}),
}
"""The files unique to a platform's room."""


class Place(NamedTuple):
    """A violation of a rule."""

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
    """Yield the docstrings opening with a word that hides the subject."""
    for path, tree in _trees(root, WORDED):
        for line, text in docstrings(tree):
            if opening := _OPENING.match(text.strip()):
                yield Place(str(path), line, f'a docstring opens with "{opening[0]}": begin with its subject or verb')


def pronouns(root: Path) -> Iterator[Place]:
    """Yield the packages with too many indefinite pronouns."""
    for package, rate in rates(root).items():
        if rate > PRONOUNS_PER_1000:
            yield Place(package, 1, f"{rate:.1f} indefinite pronouns per 1,000 words of docstrings: name the things")


def relatives(root: Path) -> Iterator[Place]:
    """Yield the files with too many relatives, and the sentences with too many."""
    for path, tree in _trees(root, WORDED):
        words = count = 0
        for line, text in docstrings(_without_shown(tree)):
            words, count = words + len(text.split()), count + len(_RELATIVE.findall(text))
            for sentence in _SENTENCE.split(text):
                if len(_RELATIVE.findall(sentence)) > RELATIVES_IN_A_SENTENCE:
                    yield Place(
                        str(path), line, f"too many of that, which, it, one, they: {' '.join(sentence.split())}"
                    )
        if words >= _FEWEST_WORDS and (rate := 1000 * count / words) > RELATIVES_PER_1000:
            yield Place(str(path), 1, f"{rate:.0f} of that, which, it, one, they per 1,000 words: name the things")


def _without_shown(tree: ast.AST) -> ast.AST:
    """Return the tree without the functions with a docstring for the operator or the model."""
    kept = [node for node in getattr(tree, "body", ()) if not _SHOWN & _decorators(node)]
    return ast.Module(body=kept, type_ignores=[])


def _decorators(node: ast.AST) -> set[str]:
    named = (ast.unparse(each).partition("(")[0] for each in getattr(node, "decorator_list", ()))
    return {name.rpartition(".")[2] for name in named}


def twins(root: Path) -> Iterator[Place]:
    """Yield the classes with the name of another class; the payload models of the platforms may share names."""
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
"""Unchangeable names in two modules of the public surface: the first two of `channels` and `gateway`, the last of
`gateway.providers` and `gateway.testing`."""


def sizes(root: Path) -> Iterator[Place]:
    """Yield the files and the functions above the limits of length."""
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
    """Yield the files of a platform's room without a counterpart in any other platform's room."""
    rooms = {name: {path.name for path in (root / "channels" / name).glob("*.py")} for name in _SIBLINGS}
    for name, files in rooms.items():
        others = set().union(*(rooms[other] for other in rooms if other != name))
        for file in sorted(files - others - _OWN_FILES.get(name, frozenset())):
            yield Place(f"channels/{name}/{file}", 1, "no other platform has a file of this name: use theirs")


def test_names(root: Path) -> Iterator[Place]:
    """Yield the test functions with a name above the limit, the prefix included, or with an indefinite pronoun."""
    for package in ("tests", "gateway/testing"):
        for path in sorted((root / package).rglob("*.py")):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if (found := _TEST.match(line)) and (length := len(found[1])) > TEST_NAME_CHARACTERS:
                    says = f"{found[1]} has {length} characters: at most {TEST_NAME_CHARACTERS}"
                    yield Place(str(path.relative_to(root)), number, says)
                if found and _VAGUE_NAME.search(found[1]):
                    yield Place(str(path.relative_to(root)), number, f"{found[1]} does not name what is checked")


RULES: Final = {
    "openings": openings,
    "pronouns": pronouns,
    "relatives": relatives,
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
