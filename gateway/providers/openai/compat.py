"""The parameters and orders not accepted by a compatible server: set, known by the host, or learnt.

Many servers have the API without some optional parameters, or with a rule of their own for the order of messages. After
a refusal of a parameter or an order, the same call is repeated without the named part. A successful omission is
remembered for the model. These projects report the forms of the refusals:
https://github.com/openai/openai-agents-python/issues/442 and https://github.com/vercel/ai/pull/1578 (stream_options),
https://github.com/zed-industries/zed/issues/37021 (a person's message behind a result of a tool),
https://github.com/anomalyco/opencode/issues/1680 (ids of calls).

``reasoning_content`` is a field of a message and no parameter: the thoughts of an earlier reply.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from gateway.providers.base import ProviderConfigurationError
from gateway.providers.refusals import fields_in, texts_in

Compat: TypeAlias = frozenset[str]
"""Some of `NAMES`."""

VARIABLE: Final = "OPENAI_COMPAT"
LIMITS: Final = ("max_tokens", "max_completion_tokens")
"""The two names of the bound of a reply. After a refusal the other name is sent. The bound is never left out."""
PARAMETERS: Final = ("stream_options", "temperature", *LIMITS, "strict", "response_format", "reasoning_content")
NAMES: Final = (*PARAMETERS, "user_after_tool", "call_ids", "no_reasoning")
"""``user_after_tool``: a person's message right behind the result of a tool. ``call_ids``: ids of another form than
nine letters and digits. ``no_reasoning``: a reply with calls but without thoughts."""

_SENTENCE_END: Final = re.compile(r"[.;!]\s|\n")
_KNOWN: Final = {"api.mistral.ai": frozenset({"user_after_tool", "call_ids"})}
"""The hosts with widely reported rules, as above."""
_RULES: Final = {
    "user_after_tool": re.compile(r"role .?user.? after role .?tool|roles must alternate|message_order", re.IGNORECASE),
    "call_ids": re.compile(r"tool call id was .* but must be", re.IGNORECASE | re.DOTALL),
    "no_reasoning": re.compile(r"reasoning_content.{0,80}(missing|must be passed back|required)", re.IGNORECASE),
}
_REFUSES: Final = re.compile(
    r"unsupported|unrecogni[sz]ed|unknown|unexpected|extra[ _]|no longer|deprecated|disallowed|incompatible|removed"
    r"|not (a valid|implemented)|invalid (argument|parameter)"
    r"|only (the default|\S+ is allowed)|only be set|cannot be used"
    r"|not (be )?(supported|permitted|allowed|recogni[sz]ed|accepted|available)|n[o']t (support|accept|recogni[sz]e)"
    r"|不支持|无效",
    re.IGNORECASE,
)
_OF_THE_VALUE: Final = re.compile(
    r"above|below|at most|at least|exceed|less|greater|too (large|high|small|low)|between|range|must be"
)
"""The words of a refusal of the number. The other name of a bound would hide the refusal."""


def compat_of(environ: Mapping[str, str]) -> Compat:
    """Return the names in ``OPENAI_COMPAT``. Raises ProviderConfigurationError for an unknown name."""
    given = [name.strip() for name in environ.get(VARIABLE, "").split(",") if name.strip()]
    wrong = sorted({*given} - {*NAMES})
    if wrong:
        raise ProviderConfigurationError(
            "openai", f"{VARIABLE} has {wrong[0]!r}, which is none of {', '.join(NAMES)}", env_var=VARIABLE
        )
    return frozenset(given)


def known_of(url: str) -> Compat:
    """Return the names known not to be accepted by the server of this URL."""
    return _KNOWN.get(urlsplit(url).hostname or "", frozenset())


def refused_in(body: object, sent: Collection[str]) -> str | None:
    """Return the refused name, if among the `sent` names, or the name of a broken rule.

    `body` is the server's answer. Quotes of the request in the answer do not count. Refusal and name stand in one
    sentence.
    """
    sentences = [sentence for text in texts_in(body) for sentence in _SENTENCE_END.split(text)]
    for name, rule in _RULES.items():
        if any(rule.search(sentence) for sentence in sentences):
            return name
    places = [re.findall(r"\w+", place) for place in fields_in(body)]
    fields = {place[-1] for place in places if place and "tools" not in place}
    refuses = [sentence for sentence in sentences if _REFUSES.search(sentence)]
    for name in PARAMETERS:
        if name not in sent:
            continue
        named = [sentence for sentence in refuses if re.search(rf"(?<!\w)(?<!\w\.){name}(?!\w)", sentence)]
        if name in fields:
            named += refuses
        if name in LIMITS and any(map(_OF_THE_VALUE.search, sentences)):
            continue
        if named or (name in fields and name not in LIMITS):
            return name
    return None
