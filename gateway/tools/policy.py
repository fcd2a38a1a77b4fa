"""Tool policies: lists of the tools to run at once, to ask a person about, or to deny."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from channels import Json
from gateway.tools.confirm import as_text

Decision: TypeAlias = Literal["allow", "review", "deny"]


class ToolPolicy:
    """A policy of globs on the tool's name, tested in this order: deny_when, deny, review, allow, else review.

    `deny_when` is a list of ``{"tool": glob, "arg": name, "pattern": glob}``. The call is denied if a plain value in
    the argument, at any depth, matches the pattern. Patterns ignore case.
    """

    def __init__(
        self,
        *,
        allow: Sequence[str] = (),
        review: Sequence[str] = (),
        deny: Sequence[str] = (),
        deny_when: Sequence[Mapping[str, str]] = (),
    ) -> None:
        """Raises ValueError for lists of another shape, because the rules could never match."""
        for name, globs in (("allow", allow), ("review", review), ("deny", deny)):
            if isinstance(globs, str) or not all(isinstance(glob, str) and glob for glob in globs):
                raise ValueError(f"ToolPolicy({name}=...) is a list of tool names or globs, not {globs!r}")
        for rule in deny_when:
            if not isinstance(rule, Mapping) or set(rule) != {"tool", "arg", "pattern"}:
                raise ValueError(f"a rule of deny_when has exactly 'tool', 'arg' and 'pattern', not {rule!r}")
        self.allow, self.review, self.deny = tuple(allow), tuple(review), tuple(deny)
        self.deny_when = tuple(dict(rule) for rule in deny_when)

    def rules_for(self, tool_name: str) -> list[dict[str, str]]:
        """Return the rules of `deny_when` for this tool."""
        return [rule for rule in self.deny_when if fnmatchcase(tool_name, rule["tool"])]

    def decide(self, tool_name: str, args: Mapping[str, Json]) -> tuple[Decision, str]:
        """Return the decision for this call, and the deciding rule."""
        if not tool_name.strip():
            return "deny", "a tool needs a name"
        for rule in self.rules_for(tool_name):
            if rule["arg"] in args:
                pattern = rule["pattern"].casefold()
                if any(fnmatchcase(as_text(value).casefold(), pattern) for value in _leaves(args[rule["arg"]])):
                    return "deny", f"{rule['arg']} matches {rule['pattern']!r}"
        lists: tuple[tuple[Decision, tuple[str, ...]], ...] = (
            ("deny", self.deny),
            ("review", self.review),
            ("allow", self.allow),
        )
        for decision, globs in lists:
            for glob in globs:
                if fnmatchcase(tool_name, glob):
                    return decision, f"{decision} list: {glob!r}"
        return "review", "not on any list"


def _leaves(value: Json) -> Iterator[Json]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield value
