"""Words in the demo's form for comparison: folded, stemmed, and grouped by the named action."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass


def fold(text: str) -> str:
    """Return the text in lower case without accents. The index of each letter stays."""
    return "".join(unicodedata.normalize("NFD", char)[0].lower()[:1] or char for char in text)


def stem(word: str) -> str:
    """Return a light English stem: "invoices" and "invoice", "booking" and "book" become equal."""
    word = fold(word)
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    for ending in ("ing", "ed"):
        rest = word.removesuffix(ending)
        if rest != word and len(rest) >= 3 and re.search("[aeiouy]", rest):
            word = rest
            break
    if len(word) > 3 and word.endswith("e"):
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word


def names(text: str) -> list[str]:
    """Return the words of an identifier or a text. snake_case and camelCase are split."""
    return re.findall(r"[^\W\d_]+|\d+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text))


def label(identifier: str) -> str:
    """Return an identifier in words: ``dueDate`` -> ``due date``."""
    return " ".join(names(identifier)).lower()


def stems(text: str) -> set[str]:
    """Return the stems of all words except stop words."""
    return {stem(word) for word in names(text) if fold(word) not in STOP_WORDS}


@dataclass(frozen=True, slots=True)
class Verb:
    """The meaning of a verb. `english` is False for a word known only in another language."""

    kinds: frozenset[str]
    english: bool


STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        a an the of to for in on at as by with from and or is are was be been it its this that these those there here
        i me my mine you your we us our he she they them his her their do does did have has had what which who when
        where how please all any some one ones so if not no yes every everything everyone
        el la los las lo un una unos unas de del al en con por para y o que cual es son mi mis tu tus su sus se me te le
        hay todo todos toda todas
        os as um uma uns umas do da dos das no na nos nas em com e ou qual quais sao meu minha meus minhas seu sua ao
        tudo
        """,
    )
)

PRONOUNS = re.compile(
    r"\b(it|this|that|this one|that one|the same|lo|la|eso|esa|ese|este|esta|isso|isto|esse|essa|ele|ela)\b"
    r"|[a-z](?:[mt]e)?l[oa]\b|-[oa]\b"
)
"""Pronouns in folded text. The last two patterns are Spanish and Portuguese pronouns attached to a verb."""

FILLERS = re.compile(
    r"(?:(?:please|hi|hello|hey|okay|ok|so|and|then|now|also|well|just|kindly|could you|can you|would you|will you"
    r"|i want to|i need to|i would like to|i'?d like to|i want you to|let'?s|let us|go ahead and|help me|to"
    r"|por favor|hola|oye|puedes|podrias|puede|quiero|quisiera|necesito|me gustaria|vamos a|ahora|luego|tambien"
    r"|ola|oi|voce pode|pode|poderia|podes|quero|queria|preciso|gostaria de|agora|depois|tambem|me|y|e|de)\b|\W+)+"
)
"""Words before the verb of a request, in folded text."""

NOTHING = re.compile(
    r"\W*(no|nothing|never ?mind|forget (it|that)|stop|cancel|nada|olvidalo|dejalo|deja|cancelar?|esquece"
    r"|deixa( pra la)?)\W*"
)
"""Texts of a person giving up a request, in folded text."""

_KINDS: dict[str, tuple[str, str]] = {  # kind: English, Spanish and Portuguese
    "read": (
        "show list display view see get give find search look lookup check read tell fetch browse return "
        "describe count",
        "mostrar muestra muestre mostra mostre listar lista liste ver ve veja dame da buscar busca busque encontrar "
        "encuentra encontra consultar consulta ensena dime diga dizer leer lee ler leia quais cuales",
    ),
    "remove": (
        "delete remove erase cancel discard drop destroy purge void revoke clear trash",
        "borrar borra borre eliminar elimina elimine quitar quita quite suprimir suprime cancelar cancela cancele "
        "anular anula anule apagar apaga apague excluir exclui exclua remover remova deletar",
    ),
    "send": (
        "send mail email forward share deliver get give submit post",
        "enviar envia envie mandar manda mande compartir comparte compartilhar compartilha remitir entregar",
    ),
    "create": (
        "create add make new open register write draft start record log insert",
        "crear crea cree anadir anade agregar agrega agregue nuevo nueva abrir abre criar cria crie adicionar adiciona "
        "adicione novo nova registrar registra",
    ),
    "reserve": (
        "book reserve schedule arrange plan",
        "reservar reserva reserve agendar agenda agende programar programa marcar marca marque",
    ),
    "change": (
        "update change edit modify set rename move adjust switch reschedule",
        "cambiar cambia cambie modificar modifica modifique actualizar actualiza editar edita edite mover mueve mudar "
        "muda mude alterar altera altere atualizar atualiza atualize",
    ),
    "pay": ("pay settle charge", "pagar paga pague abonar abona cobrar cobra cobre"),
    "refund": ("refund reimburse", "reembolsar reembolsa reembolse devolver devuelve devolve devolva"),
    "assign": ("assign delegate", "asignar asigna asigne atribuir atribui atribua"),
}


def _verbs() -> dict[str, Verb]:
    kinds: dict[str, set[str]] = {}
    english: set[str] = set()
    for kind, (ours, theirs) in _KINDS.items():
        for word in ours.split():
            kinds.setdefault(stem(word), set()).add(kind)
            english.add(stem(word))
        for word in theirs.split():
            kinds.setdefault(stem(word), set()).add(kind)
    return {word: Verb(frozenset(found), word in english) for word, found in kinds.items()}


_VERBS = _verbs()


def verb_of(word: str) -> Verb | None:
    """Return the verb of a word. "mandame" and "borralo" are looked up without the attached pronouns."""
    known = _VERBS.get(stem(word))
    if known:
        return known
    bare = re.sub(r"(?:[mt]e)?(?:l[oa]s?|nos|[mt]e)$", "", fold(word))
    return _VERBS.get(stem(bare))
