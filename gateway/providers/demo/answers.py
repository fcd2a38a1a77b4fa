"""The texts of the demo: results in words and tables, questions, and abilities."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.providers.base import ToolSpec
from gateway.providers.demo.schema import ID, Parameter
from gateway.providers.demo.words import fold, label

_COLUMNS = 8
_ROWS = 50

_PHRASES: dict[str, dict[str, str]] = {
    "en": {
        "hello": "Hello!",
        "welcome": "You are welcome.",
        "unclear": "I did not understand that.",
        "can": "I can:",
        "nothing": "I have no tools, so there is nothing I can do yet.",
        "missing": "To {tool} I still need: {needs}.",
        "such as": "such as {example}",
        "one of": "one of {choices}",
        "empty": "Nothing found.",
        "done": "Done.",
        "failed": "That did not work: {error}",
        "pending": "This waits for your confirmation: {preview}",
        "not_found": "I found no {entity} for “{query}”.",
        "ambiguous": "There are several of {entity} for “{query}”. Which one?",
        "dropped": "All right, I leave it.",
    },
    "es": {
        "hello": "¡Hola!",
        "welcome": "De nada.",
        "unclear": "No lo he entendido.",
        "can": "Puedo hacer esto:",
        "nothing": "No tengo herramientas, así que todavía no puedo hacer nada.",
        "missing": "Para {tool} me falta: {needs}.",
        "such as": "por ejemplo {example}",
        "one of": "una de {choices}",
        "empty": "No hay nada.",
        "done": "Hecho.",
        "failed": "No ha funcionado: {error}",
        "pending": "Esto espera tu confirmación: {preview}",
        "not_found": "No encuentro {entity} para «{query}».",
        "ambiguous": "Hay varios de {entity} para «{query}». ¿Cuál?",
        "dropped": "De acuerdo, lo dejo.",
    },
    "pt": {
        "hello": "Olá!",
        "welcome": "De nada.",
        "unclear": "Não entendi.",
        "can": "Posso fazer isto:",
        "nothing": "Não tenho ferramentas, por isso ainda não posso fazer nada.",
        "missing": "Para {tool} ainda falta: {needs}.",
        "such as": "por exemplo {example}",
        "one of": "uma de {choices}",
        "empty": "Não há nada.",
        "done": "Feito.",
        "failed": "Não funcionou: {error}",
        "pending": "Isto espera a sua confirmação: {preview}",
        "not_found": "Não encontrei {entity} para “{query}”.",
        "ambiguous": "Há vários de {entity} para “{query}”. Qual?",
        "dropped": "Tudo bem, deixo como está.",
    },
}

_GREETING = re.compile(
    r"\W*(hi|hello|hey|good (morning|afternoon|evening)|hola|buen[oa]s( dias| tardes)?|ola|oi|bom dia|boa tarde)\b"
)
_THANKS = re.compile(r"\W*(thanks?|thank you|thx|cheers|gracias|muchas gracias|obrigad[oa])\b")


def say(language: str, phrase: str, **values: object) -> str:
    """Return a phrase in the language of a BCP 47 tag, or in English for other languages."""
    phrases = _PHRASES.get(language.partition("-")[0].lower(), _PHRASES["en"])
    return phrases[phrase].format(**values)


def small_talk(text: str, tools: Sequence[ToolSpec], language: str) -> str:
    """Return the answer to a greeting, to thanks, to a request for help, or to an unclear message."""
    folded = fold(text)
    if _THANKS.match(folded):
        return say(language, "welcome")
    if _GREETING.match(folded):
        return f"{say(language, 'hello')} {help_text(tools, language)}"
    if re.search(r"\b(help|what can you|ayuda|que puedes|ajuda|que pode)\b|^\W*/?start\W*$", folded):
        return help_text(tools, language)
    return f"{say(language, 'unclear')} {help_text(tools, language)}"


def help_text(tools: Sequence[ToolSpec], language: str) -> str:
    """Return the abilities of the bot, from the tools' descriptions."""
    if not tools:
        return say(language, "nothing")
    return "\n".join([say(language, "can"), *(f"- {_summary(tool)}" for tool in tools)])


def ask_for(tool: ToolSpec, missing: Sequence[Parameter], language: str) -> str:
    """Return a question for the missing parameters."""
    needs = "; ".join(_need(parameter, language) for parameter in missing)
    return say(language, "missing", tool=f"**{label(tool.name)}**", needs=needs)


def _need(parameter: Parameter, language: str) -> str:
    more = [parameter.description.rstrip(".")] if parameter.description else []
    if parameter.choices:
        more.append(say(language, "one of", choices=", ".join(map(str, parameter.choices))))
    elif parameter.example and parameter.example not in parameter.description:
        more.append(say(language, "such as", example=parameter.example))
    return label(parameter.name) + (f" ({', '.join(more)})" if more else "")


def _summary(tool: ToolSpec) -> str:
    first = re.split(r"(?<=[.!?])\s|\n", tool.description.strip(), maxsplit=1)[0].rstrip(".")
    return first or label(tool.name)


_ERROR = re.compile(
    r"\s*(?:error\b(?: executing tool '[^']*')?:?"
    r"|tool '[^']*'(?::| was not run and nobody was asked:| (?=timed out)))\s*",
    re.IGNORECASE,
)
"""The start of the loop's text about a failed call. The rest of the text is the reason."""


def tell(result: str, language: str) -> str:
    """Return a tool's result in words: JSON as a Markdown table or list, an error plainly, any other text unchanged."""
    try:
        value: Any = json.loads(result)
    except (ValueError, RecursionError):
        value = result
    match value:
        case str():
            return _tell_text(value, language)
        case {"kind": "pending_confirmation"}:
            return str(value.get("user_prompt") or say(language, "pending", preview=value.get("preview", "")))
        case {"kind": "not_found"}:
            return say(language, "not_found", entity=_field(value, "entity"), query=_field(value, "query"))
        case {"kind": "ambiguous", "matches": list() as found}:
            asked = say(language, "ambiguous", entity=_field(value, "entity"), query=_field(value, "query"))
            return f"{asked}\n\n{_listed(found, language)}"
        case {"error": error}:
            text = error.get("message") if isinstance(error, Mapping) else error
            return say(language, "failed", error=text or json.dumps(error))
        case list():
            return _listed(value, language)
        case dict():
            return "\n".join(f"- **{_heading(key)}**: {_cell(item)}" for key, item in value.items() if key != "kind")
        case None:
            return say(language, "done")
        case _:
            return str(result)


def _tell_text(text: str, language: str) -> str:
    if error := _ERROR.match(text):
        return say(language, "failed", error=text[error.end() :] or text)
    return text if text.strip() else say(language, "done")


def _field(value: Mapping[str, Any], key: str) -> str:
    return _cell(value.get(key) or "")


def _listed(items: Sequence[Any], language: str) -> str:
    if not items:
        return say(language, "empty")
    shown = items[:_ROWS]
    more = f"\n\n… + {len(items) - _ROWS}" if len(items) > _ROWS else ""
    if all(isinstance(item, dict) and item for item in shown):
        columns = list(dict.fromkeys(key for item in shown for key in item))
        if len(columns) <= _COLUMNS:
            rows = [[_cell(item.get(column, "")) for column in columns] for item in shown]
            lines = [[_heading(column) for column in columns], ["---"] * len(columns), *rows]
            return "\n".join(f"| {' | '.join(line)} |" for line in lines) + more
    return "\n".join(f"- {_cell(item)}" for item in shown) + more


def _heading(key: str) -> str:
    """Return a key in words. An id as a key stays unchanged."""
    is_number = ID.fullmatch(key) and (key.isupper() or not key.isidentifier())
    return _cell(key if is_number else label(key))


def _cell(value: object) -> str:
    """Return a value on one line, with escaped separators of table cells."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.split()).replace("|", "\\|")
