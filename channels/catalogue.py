"""The list of channels, with the module and the settings of each channel. The list itself imports no channel.

Another distribution adds a channel with an entry point of the group ``askfirst.channels``. The entry point has the
channel's name and points to the channel's class. The class lists the settings in an attribute ``settings``.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec

from channels.channel import Channel, Way
from channels.errors import AskfirstError
from channels.powers import CanPoll


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """An environment variable of a channel."""

    name: str
    needed_for: frozenset[Way] = frozenset()
    """The ways (webhook, polling) that need the variable. Empty: the variable is optional."""
    secret: bool = False
    shared: bool = False
    """True when other channels or the gateway also read the variable: its presence alone switches no channel on."""
    mend: str = "set it"
    """The instruction for the operator when the variable is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """A channel of this distribution."""

    module: str
    class_name: str
    extra: str | None = None
    """The extra of this distribution with the platform's library."""
    settings: tuple[Setting, ...] = ()
    """Empty: the gateway itself switches the channel on."""
    polls: bool = False
    """True when messages can come in by polling."""
    person: str | None = None
    """A regular expression for the part of a person's written form behind the channel's name. None: any text."""
    example: str = ""


EVERY_WAY: frozenset[Way] = frozenset({"webhook", "polling"})

_TWILIO = (
    Setting(
        name="TWILIO_ACCOUNT_SID",
        needed_for=EVERY_WAY,
        shared=True,
        mend="set it to the Account SID of Twilio's console: AC and 32 digits",
    ),
    Setting(
        name="TWILIO_AUTH_TOKEN",
        needed_for=EVERY_WAY,
        secret=True,
        shared=True,
        mend="set it to the Auth Token of Twilio's console",
    ),
    Setting(
        name="ASKFIRST_PUBLIC_URL",
        needed_for=frozenset({"webhook"}),
        shared=True,
        mend="set it to the URL that Twilio calls, without the path: its signature covers it",
    ),
    Setting(name="TWILIO_SHARED_KEY", secret=True, shared=True),
    Setting(name="TWILIO_API_KEY", shared=True),
    Setting(name="TWILIO_API_SECRET", secret=True, shared=True),
    Setting(name="TWILIO_MESSAGING_SERVICE_SID", shared=True),
    Setting(name="TWILIO_API_URL", shared=True),
)


def _twilio(class_name: str, sender: str, example: str) -> CatalogueEntry:
    mend = f"set it to your number at Twilio, such as {example}"
    return CatalogueEntry(
        module="channels.twilio",
        class_name=class_name,
        extra="twilio",
        settings=(*_TWILIO, Setting(name=sender, needed_for=EVERY_WAY, mend=mend)),
        person=r"\+?\d{3,15}:\+?\d{3,15}",
        example="+15551234567:+15557654321",
    )


BUILT_IN = {
    "telegram": CatalogueEntry(
        module="channels.telegram",
        class_name="TelegramChannel",
        extra="telegram",
        polls=True,
        settings=(
            Setting(
                name="TELEGRAM_BOT_TOKEN",
                needed_for=EVERY_WAY,
                secret=True,
                mend="set it to the token that @BotFather gave you",
            ),
            Setting(
                name="TELEGRAM_WEBHOOK_SECRET",
                needed_for=frozenset({"webhook"}),
                secret=True,
                mend="set it to a random value, so that nobody else can speak as Telegram. "
                'Make one: python -c "import secrets; print(secrets.token_urlsafe(32))"',
            ),
            Setting(name="TELEGRAM_API_URL"),
        ),
        person=r"\d+:-?\d+",
        example="123456:789",
    ),
    "sms": _twilio("SmsChannel", "TWILIO_SMS_FROM", "+15551234567"),
    "whatsapp": _twilio("WhatsAppChannel", "TWILIO_WHATSAPP_FROM", "whatsapp:+15551234567"),
    "slack": CatalogueEntry(
        module="channels.slack",
        class_name="SlackChannel",
        extra="slack",
        polls=True,
        settings=(
            Setting(
                name="SLACK_BOT_TOKEN",
                needed_for=EVERY_WAY,
                secret=True,
                mend="set it to the Bot User OAuth Token of the app's page OAuth & Permissions: xoxb-...",
            ),
            Setting(
                name="SLACK_SIGNING_SECRET",
                needed_for=frozenset({"webhook"}),
                secret=True,
                mend="set it to the Signing Secret of the app's page Basic Information",
            ),
            Setting(
                name="SLACK_APP_TOKEN",
                needed_for=frozenset({"polling"}),
                secret=True,
                mend="set it to an App-Level Token with connections:write, of the app's page Basic Information",
            ),
            Setting(name="SLACK_API_URL"),
        ),
        person="[TE][A-Z0-9]+:[UW][A-Z0-9]+",
        example="T0123ABCD:U0456EFGH",
    ),
    "webchat": CatalogueEntry(module="channels.webchat", class_name="WebChatChannel"),
}

THEIRS = {point.name: point for point in entry_points(group="askfirst.channels") if point.name not in BUILT_IN}
"""The channels of other distributions. Read once, at import: the search covers every installed distribution."""


def names() -> tuple[str, ...]:
    """Return the names of all channels, the built-in ones first."""
    return (*BUILT_IN, *sorted(THEIRS))


def settings_of(name: str) -> tuple[Setting, ...]:
    """Return the settings of a channel. Raises AskfirstError when the channel does not exist."""
    return BUILT_IN[name].settings if name in BUILT_IN else tuple(getattr(load(name), "settings", ()))


def polls(name: str) -> bool:
    """Return True if the channel can poll for messages. Raises AskfirstError when the channel does not exist."""
    return BUILT_IN[name].polls if name in BUILT_IN else issubclass(load(name), CanPoll)


def load(name: str) -> type[Channel]:
    """Import a channel's class.

    Raises AskfirstError when the channel does not exist, its platform's library is not installed, or another
    distribution's channel cannot be imported.
    """
    if name in THEIRS:
        return _load_theirs(THEIRS[name])
    if name not in BUILT_IN:
        raise AskfirstError(f"there is no channel {name!r}, only {', '.join(names())}")
    entry = BUILT_IN[name]
    try:
        ours: type[Channel] = getattr(import_module(entry.module), entry.class_name)
    except ImportError as error:
        if entry.extra is None:
            raise
        raise AskfirstError(lacking(name, error, entry.extra)) from None
    return ours


def lacking(what: str, error: ImportError, extra: str) -> str:
    """Return the error text for a failed import: the missing or outdated package, and the pip command that mends it."""
    package = (error.name or "").partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and find_spec(package) is None:
        return f"{what} needs the package {package}, which is not installed: pip install 'askfirst[{extra}]'"
    return (
        f"{what} needs another version of the package {package} than the one that is installed: "
        f"pip install --upgrade 'askfirst[{extra}]'"
    )


def _load_theirs(point: EntryPoint) -> type[Channel]:
    try:
        theirs: type[Channel] = point.load()
    except Exception as error:
        raise AskfirstError(
            f"the channel {point.name} ({point.value}) cannot be loaded, {type(error).__name__}: {error}; "
            "install what it needs, or uninstall the package that offers it"
        ) from error
    return theirs
