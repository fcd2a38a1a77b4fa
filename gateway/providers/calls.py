"""The assembly of a reply's tool calls from the pieces sent by a server.

The APIs prescribe an index and an id for the pieces of a call. Compatible servers of other vendors leave both out,
repeat them or let them drift. Their pieces are placed wherever only one place is possible. A reply with a piece for two
possible places is doubtful: no call of the reply is used, because a call with the arguments of another call, or without
arguments, is another action. The model is asked to repeat the calls.

Reports of the deviations: https://github.com/agno-agi/agno/issues/8879 (a drifting index),
https://github.com/ai-dynamo/dynamo/pull/4723 (one index for all calls), https://github.com/openclaw/openclaw/pull/47136
(ids left out or repeated), https://github.com/NousResearch/hermes-agent/issues/8259 (a name in each piece) and
https://github.com/ggml-org/llama.cpp/issues/20198 (arguments as an object).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.providers.base import ToolCall

DOUBTFUL: Final = "the server mixed up the calls of this reply, and none of them ran. Call one tool at a time"
_UNENDED: Final = "the arguments are missing, and the reply has no known end. Call the tool again"
_CUT: Final = "the arguments were cut off at the limit of tokens. Call the tool again with less, or in several calls"
WRITTEN: Final = "it stood in the text of the reply. Call the tool with a tool call of the API, not in words"
MOST_CHARACTERS: Final = 262_144
MOST_VALUES: Final = 10_000
DEEPEST: Final = 100
"""The bounds of the arguments of a call, as JSON: the length, the values, and the depth of lists and objects."""
TOO_LONG: Final = f"the arguments have more than {MOST_CHARACTERS} characters. Call the tool with less"
TOO_DEEP: Final = f"the arguments are nested more than {DEEPEST} deep. Call the tool with a flatter value"
TOO_MANY: Final = f"the arguments have more than {MOST_VALUES} values. Call the tool with fewer"
UNUSABLE: Final = (DOUBTFUL, _UNENDED, _CUT, WRITTEN, TOO_LONG, TOO_DEEP, TOO_MANY)
"""The faults with a remedy in the text. The JSON of the call may be valid."""


@dataclass(slots=True)
class _Call:
    """A call so far. `text` is the JSON of the arguments."""

    call_id: str | None
    name: str
    text: str = ""
    index: int | None = None
    """The index of its first piece. None also for a call in one piece."""
    in_one_piece: bool = False
    is_settled: bool = False
    """True if the server has told the end of the call."""

    @property
    def is_whole(self) -> bool:
        """True if the text is one JSON value, so no further piece can follow."""
        if (
            not self.text.endswith(("}", "]", '"', "l", "e")) and not self.text[-1:].isspace()
        ):  # most pieces end otherwise
            return False
        try:
            json.loads(self.text)
        except (ValueError, RecursionError):
            return False
        return True


class CallAssembler:
    """Takes the pieces of a reply's calls in order, and returns the calls.

    A piece with a known id belongs to the call of the id. A new id begins a call, and so does a new name. A piece with
    neither belongs to the latest call of the piece's index or, for an unused index, to the call of the latest piece.
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, list[_Call]] = {}
        self._written: _Call | None = None
        """The call of the latest piece."""
        self._passed_over: list[_Call] = []
        """The last begun call at each time when a piece with neither id nor name was placed on an earlier call."""
        self._is_doubtful = self._lost_piece = False

    def lose_piece(self) -> None:
        """Take note of a piece without content: a call without arguments may lack this piece."""
        self._lost_piece = True

    def doubt(self) -> None:
        """Take note of a part of a call that cannot be read: no call of the reply is used."""
        self._is_doubtful = True

    def add(
        self,
        *,
        index: int | None = None,
        call_id: str | None = None,
        name: str | None = None,
        arguments: str | Mapping[str, Any] | None = None,
        begins: bool = False,
    ) -> None:
        """Add a piece. `arguments` is a part of the JSON text, or all arguments as an object.

        `begins`: the API tells the begin of a call, and this is one.
        """
        text = _written(arguments)
        seen = next((call for call in reversed(self._calls) if call_id and call.call_id == call_id), None)
        if seen is not None:
            call = self._of_known_id(seen, name or "", text)
        elif call_id:
            call = self._of_new_id(index, call_id, name or "")
        elif name:
            call = self._begin(None, name) if begins else self._of_name(index, name, text)
        elif text.strip() or (text and self._calls):  # a blank piece may be a blank of an argument
            call = self._continued(index)
        else:
            return
        if index is not None and call not in (begun := self._by_index.setdefault(index, [])):
            begun.append(call)
            call.index = index if call.index is None else call.index
        self._written = call
        is_again = (call_id or name) and text == call.text and call.is_whole
        call.text += "" if is_again else text

    def __bool__(self) -> bool:
        """Return True once a call has begun."""
        return bool(self._calls)

    def add_whole(self, *, call_id: str | None, name: str | None, arguments: str | Mapping[str, Any] | None) -> None:
        """Add a call of an answer in one piece."""
        call = self._begin(call_id, name or "")
        call.text, call.in_one_piece = _written(arguments), True

    def calls(
        self, answer_id: str, *, ended: bool, cut: bool = False, ends_behind: bool = True
    ) -> tuple[ToolCall, ...]:
        """Return the calls. The unusable calls have a `parse_error`.

        `answer_id` makes ids for calls without an id. `ended`: the reply has a known good end. `cut`: the reply was cut
        off at the limit of tokens. `ends_behind`: the end came behind all pieces of calls, so no piece is missing.
        """
        for call in self._calls:
            call.text = joined(call.text)
        values = [_value(call.text) for call in self._calls]
        doubtful = self._is_doubtful or any(value is _SEVERAL for value in values) or self._lacks_something()
        doubtful |= self._may_be_one(values) or (self._lost_piece and {} in values)
        malformed = any(value is _MALFORMED for value in values)
        doubtful |= malformed and len(values) > 1 and not cut  # a piece of it may stand in another call
        found: list[ToolCall] = []
        for number, (call, value) in enumerate(zip(self._calls, values, strict=True)):
            call_id = call.call_id or f"{answer_id}_{number}"
            if any(call_id == before.call_id for before in found):
                call_id = f"{call_id}_{number}"
            if cut and number == len(values) - 1 and not isinstance(value, dict):
                fault: str | None = _CUT
            elif doubtful:
                fault = DOUBTFUL
            elif value == {} and (malformed or not ended or (not call.text.strip() and not ends_behind)):
                fault = _UNENDED
            else:
                fault = None
            if fault is not None or not isinstance(value, dict):
                fault = fault or tool_call(call_id, call.name, call.text).parse_error
                found.append(ToolCall(call_id=call_id, name=call.name, parse_error=fault))
            else:
                found.append(ToolCall(call_id=call_id, name=call.name, args=value))
        return tuple(found)

    def _lacks_something(self) -> bool:
        """Return True if a call has no name, if only some have an id, or if one without arguments may lack a piece."""
        ids = {call.call_id is not None for call in self._calls}
        return len(ids) > 1 or any(not call.name for call in self._calls) or any(not c.text for c in self._passed_over)

    def _may_be_one(self, values: Sequence[object]) -> bool:
        """Return True if a call without arguments stands beside a call of the same name that may be a part of it.

        Some servers give each piece a new id, or repeat id and name behind an empty object
        (https://github.com/BerriAI/litellm/pull/28223, https://github.com/vllm-project/vllm/pull/23522).
        """
        for call, value in zip(self._calls, values, strict=True):
            if value != {} or call.in_one_piece:
                continue
            for other, its in zip(self._calls, values, strict=True):
                same_place = call.index == other.index or call.call_id == other.call_id
                unsettled = not call.text.strip() and not call.is_settled
                if other.name == call.name and its != {} and (same_place or unsettled):
                    return True
        return False

    def settle(self, index: int | None) -> None:
        """Take note of the end of the call at an index: no piece of it follows."""
        for call in self._by_index.get(index, ()) if index is not None else ():
            call.is_settled = True

    def _begin(self, call_id: str | None, name: str) -> _Call:
        call = _Call(call_id or None, name)
        self._calls.append(call)
        return call

    def _home(self, index: int | None) -> _Call | None:
        """Return the latest call of this index; without an index, the call of the latest piece."""
        if index is None:
            return self._written
        begun = self._by_index.get(index)
        return begun[-1] if begun else None

    def _of_known_id(self, call: _Call, name: str, text: str) -> _Call:
        if name and text.strip() and text != call.text and call.is_whole:  # some servers give two calls the same id
            return self._begin(call.call_id, name)
        call.name = call.name or name
        self._is_doubtful = self._is_doubtful or name not in ("", call.name)
        return call

    def _of_new_id(self, index: int | None, call_id: str, name: str) -> _Call:
        home = self._home(index)
        if home is not None and home.call_id is None and not name:
            home.call_id = call_id
            return home
        return self._begin(call_id, name)

    def _of_name(self, index: int | None, name: str, text: str) -> _Call:
        home = self._home(index)
        if home is not None and not home.name:
            home.name = name
            return home
        if home is not None and home.name == name and home.call_id is not None:
            return self._continued(index) if text.strip() else home  # some servers repeat it in each piece
        if home is not None and home.name == name and home.is_whole and not text.strip():
            self._is_doubtful = True  # an empty rest, or a second call without arguments?
            return home
        if home is None or home.is_whole:
            # an index that drifts, and its name once more?
            self._is_doubtful |= any(call.name == name and not call.is_whole for call in self._calls)
            return self._begin(None, name)
        if home.name == name and home.text:
            return self._continued(index) if text.strip() else home
        self._is_doubtful = True
        return self._begin(None, name)

    def _continued(self, index: int | None) -> _Call:
        """Return the call of a piece with neither id nor name. The reply is doubtful if another call fits, too."""
        fitting = self._by_index.get(index) if index is not None else None
        call = fitting[-1] if fitting else self._written
        if call is None:
            self._is_doubtful = True
            return self._begin(None, "")
        others = [each for each in fitting or self._calls if each is not call]
        self._is_doubtful = self._is_doubtful or any(not each.is_whole for each in others)
        if call is not self._calls[-1]:
            self._passed_over.append(self._calls[-1])
        return call


def _written(arguments: str | Mapping[str, Any] | None) -> str:
    """Return arguments as JSON text."""
    return arguments if isinstance(arguments, str) else json.dumps(dict(arguments)) if arguments is not None else ""


_MALFORMED: Final = object()
_SEVERAL: Final = object()


def _value(text: str) -> object:
    """Return the arguments of this text: _MALFORMED for invalid JSON, _SEVERAL for more than one value."""
    try:
        return json.loads(text if text.strip() else "{}", parse_constant=no_constant, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        return _SEVERAL if error.msg == "Extra data" else _MALFORMED
    except (ValueError, RecursionError):
        return _MALFORMED


def tool_call(call_id: str, name: str, arguments: str) -> ToolCall:
    """Return a call with arguments from JSON text. An empty text means no arguments."""
    try:
        args = json.loads(arguments or "{}", parse_constant=no_constant, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        return ToolCall(call_id=call_id, name=name, parse_error=fault_of(error))
    if isinstance(args, dict):
        return ToolCall(call_id=call_id, name=name, args=args)
    return ToolCall(call_id=call_id, name=name, parse_error="not a JSON object")


def joined(text: str) -> str:
    """Return a text with the halves of a character joined. Some servers cut between the two (UTF-16 surrogates)."""
    if text.isascii() or not _HALF.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


_HALF: Final = re.compile("[\ud800-\udfff]")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. Raises ValueError for a key that stands twice: one of its values would win unseen."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key stands twice in an object")
    return made


def fault_of(error: Exception) -> str:
    """Return the `parse_error` of a call after a JSON decoder refused the text."""
    where = f"line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else error
    return f"not valid JSON: {where}"


def no_constant(name: str) -> None:
    """Refuse NaN and the infinities, as a decoder's `parse_constant`. Raises ValueError."""
    raise ValueError(f"{name} is not a JSON value")
