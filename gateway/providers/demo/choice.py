"""The choice of the tool for a clear request in a sentence, if any."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import date

from channels import Json
from gateway.providers.base import ToolSpec
from gateway.providers.demo.arguments import Sentence, all_ids, read_arguments
from gateway.providers.demo.schema import ID, Parameter, parameters
from gateway.providers.demo.words import FILLERS, PRONOUNS, STOP_WORDS, Verb, fold, names, stem, stems, verb_of

_PARTS = re.compile(r"(?:(?: ?[,;.!?][ \n]|\n)(?:and |then )?|[ \n](?:and then|and|then|y|e|luego|depois)[ \n])(?=\w)")
"""The place between two parts of a text with single spaces and line ends as the only blanks."""
_DOUBT = re.compile(
    r"\b(not|don'?t|never|except|but|or|if|unless|instead|no|nunca|nao|excepto|exceto|pero|mas|si|salvo|caso|ou)\b"
)
"""Words of doubt in the rest of a folded sentence: the sentence is no clear order."""

_HARMFUL = frozenset({"remove", "send", "pay", "refund"})
_READS_AT_MOST = 1000
"""The number of characters read of a text."""


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a sentence: the day, the ids of earlier messages, and the id meant by "it"."""

    today: date
    known: Sequence[str] = ()
    it: str | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """A clear order for this tool, with the arguments of each call."""

    tool: ToolSpec
    arguments: Sequence[dict[str, Json]]


@dataclass(frozen=True, slots=True)
class IncompleteOrder:
    """A clear order for this tool, with missing parameters."""

    tool: ToolSpec
    arguments: dict[str, Json]
    missing: Sequence[Parameter]


def choose(text: str, tools: Sequence[ToolSpec], context: Context) -> list[Order] | IncompleteOrder | None:
    """Return the calls requested by the text, a tool with missing parameters, or None for an unclear text.

    A tool for reading is chosen by its words alone. Any other tool needs an order: the verb of the tool at the start of
    the sentence, with the object of the action. "How do I delete it?" and "don't delete it" are not orders.
    """
    text = text[:_READS_AT_MOST]
    lines = (" ".join(line.split()) for line in text.split("\n"))
    parts = _PARTS.split("\n".join(filter(None, lines)))
    if len(parts) > 1 and all(_is_verb(*_head(part), tools) for part in parts):
        clear = [one for part in parts if (one := _choose_one(part, tools, context))]
        calls = [one for one in clear if isinstance(one, Order)]
        if len(calls) == len(parts):
            return calls
        if len(clear) > 1:
            return next((one for one in clear if isinstance(one, IncompleteOrder)), None)
    whole = _choose_one(text, tools, context)
    return [whole] if isinstance(whole, Order) else whole


def completed(asked: IncompleteOrder, answer: str, context: Context) -> Order | IncompleteOrder | None:
    """Return the call, or the next question, after the person's answer to a question.

    None: the answer has none of the missing parameters.
    """
    found = read_arguments(
        asked.missing, Sentence(answer[:_READS_AT_MOST]), today=context.today, known=context.known, bare=True
    )
    if not found:
        return None
    arguments = {**asked.arguments, **found}
    missing = [parameter for parameter in asked.missing if parameter.name not in found]
    return IncompleteOrder(asked.tool, arguments, missing) if missing else Order(asked.tool, [arguments])


@dataclass(frozen=True, slots=True)
class _Match:
    """A tool with a clear order or question in the text, and the arguments read for the tool."""

    tool: ToolSpec
    score: float
    arguments: Sequence[dict[str, Json]]
    missing: Sequence[Parameter]


def _choose_one(text: str, tools: Sequence[ToolSpec], context: Context) -> Order | IncompleteOrder | None:
    matches = [match for tool in tools if (match := _match(text, tool, tools, context))]
    matches.sort(key=lambda match: -match.score)
    if not matches or (len(matches) > 1 and matches[0].score == matches[1].score):
        return None
    best = matches[0]
    if best.missing:
        return IncompleteOrder(best.tool, best.arguments[0], best.missing)
    return Order(best.tool, best.arguments)


@dataclass(frozen=True, slots=True)
class _Doing:
    """The action of a tool: the verbs, the kinds of the verbs, and the stems of the objects."""

    verbs: set[str]
    kinds: frozenset[str]
    things: set[str]
    reads: bool


def _doing(tool: ToolSpec) -> _Doing:
    words, described = names(tool.name) or [tool.name], names(tool.description)[:1]
    verb = next((word for word in (*words, *described) if verb_of(word)), words[0])
    known = verb_of(verb)
    kinds = known.kinds if known else frozenset[str]()
    others = [other.kinds for word in words if (other := verb_of(word))]
    if "create" in kinds:  # to record a payment counts as paying
        done = [verb_of(word.removesuffix("ment")) for word in words if word.endswith("ment")]
        kinds = kinds.union(*(each.kinds for each in done if each))
    return _Doing(
        verbs={stem(word) for word in (verb, *described)},
        kinds=kinds,
        things={stem(word) for word in words if word != verb and fold(word) not in STOP_WORDS},
        reads="read" in kinds and not any(other & _HARMFUL and "read" not in other for other in others),
    )


def _head(text: str) -> tuple[str, Verb | None]:
    """Return the first word of the sentence, after "please" and "could you", and its verb."""
    folded = fold(text)
    rest = folded[filler.end() :] if (filler := FILLERS.match(folded)) else folded
    word = re.match(r"[^\W\d_]+", rest)
    return (word[0], verb_of(word[0])) if word else ("", None)


def _is_verb(word: str, verb: Verb | None, tools: Sequence[ToolSpec]) -> bool:
    return bool(verb) or any(stem(word) in _doing(tool).verbs for tool in tools)


def _match(text: str, tool: ToolSpec, tools: Sequence[ToolSpec], context: Context) -> _Match | None:
    doing, said = _doing(tool), stems(text)
    head, verb = _head(text)
    same_verb = stem(head) in doing.verbs
    is_order = same_verb or bool(verb and doing.kinds & verb.kinds)
    sentence, arguments, missing = _read(text, tool, head if is_order else "", doing.things, context)
    found = {parameter.kind for parameter in parameters(tool) if parameter.name in arguments[0]}
    named = [thing for thing in doing.things if _named(thing, said)]
    strange = bool(ID.search(sentence.left))
    # The objects have English names: in another language, the arguments have to be enough.
    foreign = bool(verb and not verb.english)
    fits = bool(found - {"text"}) and (foreign or not (missing or _loose(sentence, head, tool)))
    if doing.reads:
        orders = any((other := verb_of(word)) and "read" not in other.kinds for word in said - doing.things)
        clear = (is_order and (bool(named) or fits or foreign)) or (bool(named) and not orders and not strange)
    else:
        past = head.endswith(("ed", "ing")) and len(stem(head)) <= len(head) - 2
        others = {thing for other in tools for thing in _doing(other).things} - doing.things
        about = (
            not doing.things or bool(named) or (fits and not any(_named(one, said - {stem(head)}) for one in others))
        )
        clear = is_order and not past and about and not _DOUBT.search(sentence.left)
    if not clear:
        return None
    score = (3.0 if same_verb else 2.5 if is_order else 0.0) + 2.0 * len(named)
    score += min(0.3 * len(stems(tool.description) & said), 1.2)
    score += len(arguments[0]) - 0.5 * len(missing) - 1.5 * strange
    return _Match(tool, score, arguments, missing)


def _named(thing: str, said: Set[str]) -> bool:
    """Return True for the word itself, or a word with the same start in another language: product, producto."""
    return thing in said or any(
        len(thing) >= 5 and thing[:5] == word[:5] and abs(len(thing) - len(word)) <= 4 for word in said
    )


def _loose(sentence: Sentence, head: str, tool: ToolSpec) -> bool:
    """Return True if words unrelated to the tool are left."""
    left = {word for word in re.findall(r"[^\W\d_]+", sentence.left) if word not in STOP_WORDS and not verb_of(word)}
    return bool({stem(word) for word in left - {head}} - stems(tool.description))


def _read(
    text: str, tool: ToolSpec, verb: str, things: Set[str], context: Context
) -> tuple[Sentence, Sequence[dict[str, Json]], Sequence[Parameter]]:
    """Return the rest of the text, the arguments of each call, and the missing parameters."""
    sentence, wanted = Sentence(text), parameters(tool)
    if verb:
        _cross_out_order(sentence, verb, things)
    ids = [parameter for parameter in wanted if parameter.kind == "id"]
    several: list[str] = []
    if len(ids) == 1:
        several = all_ids(ids[0], sentence, context.known)
        if not several and context.it and ids[0].required and PRONOUNS.search(fold(text)):
            several = [context.it]
    rest = [parameter for parameter in wanted if len(ids) != 1 or parameter is not ids[0]]
    shared = read_arguments(rest, sentence, today=context.today, known=context.known)
    # The default of a past date (paid_on, sent_on) is today.
    past = [each.name for each in rest if each.kind == "day" and re.fullmatch(r"(paid|sent|\w+ed)_on", each.name)]
    shared |= {name: context.today.isoformat() for name in past if verb and name not in shared}
    arguments = [{ids[0].name: one, **shared} for one in several] if several else [shared]
    missing = [parameter for parameter in wanted if parameter.required and parameter.name not in arguments[0]]
    return sentence, arguments, missing


def _cross_out_order(sentence: Sentence, verb: str, things: Set[str]) -> None:
    """Cross out the text before the verb, the verb, and the names of the objects right after it."""
    if filler := FILLERS.match(sentence.left):
        sentence.take(filler.span())
    for match in re.finditer(r"[^\W\d_]+", sentence.left):
        if match[0] == verb or stem(match[0]) in things:
            sentence.take(match.span())
        elif len(match[0]) > 3:
            break
