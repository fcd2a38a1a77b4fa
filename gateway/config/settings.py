"""The settings from the environment, typed and checked. Errors name the variables and describe valid values."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from channels import MissingSetting, Way
from channels.catalogue import BUILT_IN, Setting, names, polls, settings_of
from gateway.config.clear import Clears, clear_mend, in_clear
from gateway.config.environment import SECRETS, load_env_file, read_secret
from gateway.config.limits import Budget, Limits, Retention, parse_budgets
from gateway.config.values import (
    ALLOW_CHOICES,
    MAKE_ONE,
    AdminToken,
    ApiUrl,
    ChatColour,
    ChatLogo,
    ChatTitle,
    CollectorUrl,
    Listed,
    LogLevel,
    ModelUrl,
    Origins,
    Persons,
    PublicUrl,
    Secrets,
    StoreUrl,
    TelegramSecret,
)

Role: TypeAlias = Literal["all", "web", "worker"]
ServeWay: TypeAlias = Literal["auto", "webhook", "polling"]
"""The way the platforms' messages come in: by each channel's settings, or the same way for all channels."""
LogPeople: TypeAlias = Literal["plain", "pseudonym"]


def _read_limits(value: object) -> object:
    return Limits.parse(value) if isinstance(value, str) else value


def _read_retention(value: object) -> object:
    return Retention.parse(value) if isinstance(value, str) else value


def _read_budgets(value: object) -> object:
    return parse_budgets(value) if isinstance(value, str) else value


class _Secrets(PydanticBaseSettingsSource):
    """Settings source of the secrets in files and of the secrets removed from the environment."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[str | None, str, bool]:
        variable = str(field.validation_alias or f"ASKFIRST_{field_name.upper()}")
        return read_secret(variable) if variable in SECRETS else None, str(field.validation_alias or field_name), False

    def __call__(self) -> dict[str, Any]:
        """Return the present secrets, by field. Raises MissingSetting."""
        found = (self.get_field_value(field, name) for name, field in self.settings_cls.model_fields.items())
        return {key: value for value, key, _ in found if value is not None}


class EngineRules(BaseModel):
    """The settings of the engine. A bot without a gateway has the defaults."""

    model_config = ConfigDict(frozen=True)

    limits: Annotated[Limits, NoDecode, BeforeValidator(_read_limits)] = Limits()
    """Limits per person, per place and in all."""
    budgets: Annotated[tuple[Budget, ...], NoDecode, BeforeValidator(_read_budgets)] = ()
    """The budgets of people and of the bot for the model, by day or month."""
    traces_ttl_seconds: float = Field(default=604_800.0, ge=0, allow_inf_nan=False)
    """Life of the stored trace of a turn; 0: no trace is stored."""
    retention: Annotated[Retention, NoDecode, BeforeValidator(_read_retention)] = Retention()
    """Retention of logs and dead letters in days."""


class Settings(EngineRules, BaseSettings):
    """Every setting of Askfirst.

    Values come from the process's environment, and secrets also from the files named by ``NAME_FILE`` variables.
    Keyword arguments override both. A wrong value raises MissingSetting with the variable and the mend, without the
    value. The representation does not show secrets.
    """

    model_config = SettingsConfigDict(
        env_prefix="ASKFIRST_",
        env_ignore_empty=True,
        populate_by_name=True,
        str_strip_whitespace=True,
        frozen=True,
    )

    public_url: PublicUrl | None = None
    """URL of this gateway for the platforms, without a trailing slash."""
    store: StoreUrl = Field(default="sqlite:///.askfirst/askfirst.db", repr=False)
    clear: Annotated[Clears, NoDecode] = ()
    """Kinds of servers on other hosts the bot may speak to without TLS."""
    artifacts: Path | None = None
    """Directory of the files made by tools."""
    secret: Annotated[Secrets, NoDecode, Listed] = ()
    """Secrets for seals and signatures. The first signs, all verify."""
    allow: Annotated[Persons | None, NoDecode, Listed] = None
    """People and channels allowed to talk to the bot. None: not set."""
    limits: Annotated[Limits, NoDecode, BeforeValidator(_read_limits)] = Limits.usual()
    provider: str | None = None
    chat_origins: Annotated[Origins, NoDecode, Listed] = ()
    """Origins of the sites that may show the chat page in a frame."""
    chat_title: ChatTitle | None = None
    """Title of the chat page. None: the bot's name."""
    chat_logo: ChatLogo | None = None
    """Path or https URL of the logo of the chat page."""
    chat_color: ChatColour | None = None
    """Colour of the chat page's buttons and links, ``#rrggbb``."""
    admin_token: AdminToken | None = None
    """Bearer token required by `/metrics`."""
    metrics_port: Annotated[int, Field(ge=1, le=65_535)] | None = None
    """Port for `/metrics` alone. None: `/metrics` is on the port of the webhooks."""
    log_level: LogLevel = "INFO"
    log_people: LogPeople = "plain"
    """Whether the log shows the ids of people and conversations, or keyed pseudonyms."""
    log_content: bool = False
    """Whether the log shows the model's texts and the arguments and results of tools."""
    otel_endpoint: CollectorUrl | None = Field(default=None, validation_alias="OTEL_EXPORTER_OTLP_ENDPOINT")
    """URL of the OpenTelemetry collector. No spans are sent if this and `otel_traces_endpoint` are None."""
    otel_traces_endpoint: CollectorUrl | None = Field(
        default=None, validation_alias="OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
    )
    """URL of the collector for spans, if different from `otel_endpoint` with ``/v1/traces``."""
    otel_headers: SecretStr | None = Field(default=None, validation_alias="OTEL_EXPORTER_OTLP_HEADERS")
    """Headers of each call to the collector."""

    transcribe_url: ModelUrl | None = None
    """URL of a server with ``/audio/transcriptions``. None: voice messages are not transcribed."""
    transcribe_model: str | None = None
    transcribe_api_key: SecretStr | None = None

    telegram_bot_token: SecretStr | None = Field(default=None, validation_alias="TELEGRAM_BOT_TOKEN")
    telegram_webhook_secret: TelegramSecret | None = Field(default=None, validation_alias="TELEGRAM_WEBHOOK_SECRET")
    telegram_api_url: ApiUrl = Field(default="https://api.telegram.org", validation_alias="TELEGRAM_API_URL")

    slack_bot_token: SecretStr | None = Field(default=None, validation_alias="SLACK_BOT_TOKEN")
    slack_signing_secret: SecretStr | None = Field(default=None, validation_alias="SLACK_SIGNING_SECRET")
    slack_app_token: SecretStr | None = Field(default=None, validation_alias="SLACK_APP_TOKEN")
    slack_api_url: ApiUrl = Field(default="https://slack.com/api/", validation_alias="SLACK_API_URL")

    twilio_account_sid: str | None = Field(default=None, validation_alias="TWILIO_ACCOUNT_SID")
    twilio_auth_token: SecretStr | None = Field(default=None, validation_alias="TWILIO_AUTH_TOKEN")
    twilio_shared_key: SecretStr | None = Field(default=None, validation_alias="TWILIO_SHARED_KEY")
    twilio_api_key: str | None = Field(default=None, validation_alias="TWILIO_API_KEY")
    twilio_api_secret: SecretStr | None = Field(default=None, validation_alias="TWILIO_API_SECRET")
    twilio_messaging_service_sid: str | None = Field(default=None, validation_alias="TWILIO_MESSAGING_SERVICE_SID")
    twilio_sms_from: str | None = Field(default=None, validation_alias="TWILIO_SMS_FROM")
    twilio_whatsapp_from: str | None = Field(default=None, validation_alias="TWILIO_WHATSAPP_FROM")
    twilio_api_url: ApiUrl = Field(default="https://api.twilio.com", validation_alias="TWILIO_API_URL")

    openai_api_key: SecretStr | None = Field(default=None, validation_alias="OPENAI_API_KEY")
    openai_base_url: ModelUrl | None = Field(default=None, validation_alias="OPENAI_BASE_URL")
    openai_compat: str | None = Field(default=None, validation_alias="OPENAI_COMPAT")
    anthropic_api_key: SecretStr | None = Field(default=None, validation_alias="ANTHROPIC_API_KEY")
    anthropic_base_url: ModelUrl | None = Field(default=None, validation_alias="ANTHROPIC_BASE_URL")

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            wrong = [(_variable(str(one["loc"][0])), _mend(one)) for one in error.errors(include_input=False)]
        else:
            wrong = list(self._told_in_clear())
        _refuse(wrong)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, _Secrets(settings_cls)

    @classmethod
    def load(cls, bot_dir: Path | None = None) -> Self:
        """Return the settings, after loading the ``.env`` of the bot's directory into the process's environment.

        The bot's own tools read variables there too. Existing variables are not overridden. Raises MissingSetting, also
        for a malformed line in the file.
        """
        if bot_dir is not None:
            load_env_file(bot_dir / ".env")
        return cls()

    def check_transcription(self) -> None:
        """Raise MissingSetting if the settings of the transcription are incomplete."""
        if self.transcribe_url is None and (self.transcribe_model or self.transcribe_api_key):
            _refuse([("ASKFIRST_TRANSCRIBE_URL", "set it to the server that transcribes voice messages, with its /v1")])
        if self.transcribe_url is not None and not self.transcribe_model:
            _refuse([("ASKFIRST_TRANSCRIBE_MODEL", "set it to the model that transcribes, such as whisper-1")])

    def channels_on(self, way: ServeWay = "auto") -> dict[str, Way]:
        """Return the channels with settings, and the way messages come in.

        With ``auto`` a channel is polled if polling is possible and the webhook-only settings are missing. Otherwise
        the channel takes webhooks. A channel without settings of its own, like the web chat, is not included. Raises
        MissingSetting for incomplete settings.
        """
        ways = self._ways(way)
        _refuse(self._half_there(ways))
        return ways

    @property
    def spans_url(self) -> str | None:
        """The URL of the collector for spans; None: no spans are sent."""
        if self.otel_traces_endpoint is not None or self.otel_endpoint is None:
            return self.otel_traces_endpoint
        return f"{self.otel_endpoint}/v1/traces"

    @property
    def keys(self) -> list[bytes]:
        """The secrets as bytes, for sealing and signing."""
        return [secret.get_secret_value().encode() for secret in self.secret]

    def channel_settings(self, name: str) -> Mapping[str, str]:
        """Return the present variables of a channel."""
        return {setting.name: value for setting in settings_of(name) if (value := self._value(setting)) is not None}

    def check_serve(self, role: Role = "all", way: ServeWay = "auto") -> None:
        """Check the settings for ``askfirst serve``. Raises MissingSetting with all faults."""
        ways = self._ways(way)
        _refuse([*self._half_there(ways), *_deaf(ways), *self._unsafe_to_serve(role)])

    def _told_in_clear(self) -> Iterator[tuple[str, str]]:
        """Yield a fault for each URL without TLS not allowed by ASKFIRST_CLEAR."""
        if "redis" not in self.clear and in_clear(self.store):
            yield "ASKFIRST_STORE", clear_mend("redis")
        models = {
            "OPENAI_BASE_URL": self.openai_base_url,
            "ANTHROPIC_BASE_URL": self.anthropic_base_url,
            "ASKFIRST_TRANSCRIBE_URL": self.transcribe_url,
        }
        for variable, url in models.items():
            if "models" not in self.clear and url is not None and in_clear(url):
                yield variable, clear_mend("models")

    def _ways(self, way: ServeWay) -> dict[str, Way]:
        return {name: self._way_of(name) if way == "auto" else way for name in names() if self._meant(name)}

    def _way_of(self, name: str) -> Way:
        for_webhooks = [setting for setting in settings_of(name) if setting.needed_for == {"webhook"}]
        ready = for_webhooks and all(self._value(setting) is not None for setting in for_webhooks)
        return "polling" if polls(name) and not ready else "webhook"

    def _half_there(self, ways: Mapping[str, Way]) -> Iterator[tuple[str, str]]:
        for name, way in ways.items():
            for setting in settings_of(name):
                if way in setting.needed_for and self._value(setting) is None:
                    either = "".join(
                        f", or {other.name} for webhooks"
                        for other in settings_of(name)
                        if way == "polling" and setting.needed_for == {way} and other.needed_for == {"webhook"}
                    )
                    yield setting.name, f"{setting.mend}{either} ({name} is set up by half)"
        yield from self._unused()

    def _unused(self) -> Iterator[tuple[str, str]]:
        """Yield a fault for each shared secret without a configured channel."""
        readers: dict[str, list[str]] = {}
        for name in names():
            for setting in settings_of(name):
                if setting.shared and setting.secret and self._value(setting) is not None:
                    readers.setdefault(setting.name, []).append(name)
        for variable, channels in readers.items():
            if not any(self._meant(name) for name in channels):
                own = (s.name for name in channels for s in settings_of(name) if s.needed_for and not s.shared)
                yield variable, f"it is for {' and '.join(channels)}, none of which is set up: set {' or '.join(own)}"

    def _unsafe_to_serve(self, role: Role) -> Iterator[tuple[str, str]]:
        if self.allow is None:
            yield "ASKFIRST_ALLOW", f"say who may talk to the bot: {ALLOW_CHOICES}"
        known = {*names(), "app"}
        if unknown := sorted({entry.partition(":")[0] for entry in self.allow or ()} - known - {"*", "pairing"}):
            yield "ASKFIRST_ALLOW", f"there is no channel {', '.join(unknown)}, only {', '.join(sorted(known))}"
        for entry in self.allow or ():
            channel, _, rest = entry.partition(":")
            ours = BUILT_IN.get(channel)
            if ours is not None and ours.person and rest != "*" and not re.fullmatch(ours.person, rest, re.ASCII):
                yield "ASKFIRST_ALLOW", f"{entry} is nobody's: write ids and no names, as in {channel}:{ours.example}"
        if self.store.startswith("redis"):
            if not self.secret:
                yield "ASKFIRST_SECRET", f"set it to the same random value for every instance. {MAKE_ONE}"
            if self.artifacts is None:
                yield "ASKFIRST_ARTIFACTS", "set it to a directory that every instance shares"
        elif role != "all":
            yield "ASKFIRST_STORE", f"--role {role} needs redis://host:6379: one process alone owns an SQLite file"

    def _meant(self, channel: str) -> bool:
        """Return True if a required setting of only this channel is set."""
        return any(
            setting.needed_for and not setting.shared and self._value(setting) is not None
            for setting in settings_of(channel)
        )

    def _value(self, setting: Setting) -> str | None:
        """Return the value of a channel's setting, or None. Channels of other distributions have no fields here."""
        field, read = _FIELDS.get(setting.name), read_secret if setting.secret else os.environ.get
        value = read(setting.name) if field is None else getattr(self, field)
        return (value.get_secret_value() if isinstance(value, SecretStr) else value) or None


_FIELDS = {
    str(field.validation_alias or f"ASKFIRST_{name.upper()}"): name for name, field in Settings.model_fields.items()
}


VARIABLES = tuple(_FIELDS)
"""Names of all variables with a field."""


def _deaf(ways: Mapping[str, Way]) -> Iterator[tuple[str, str]]:
    """Yield a fault for each channel set to polling without support for polling."""
    for name, way in ways.items():
        if way == "polling" and not polls(name):
            own = next(setting.name for setting in settings_of(name) if setting.needed_for and not setting.shared)
            yield own, f"{name} cannot be polled, its platform calls a webhook: unset it, or serve with --way auto"


def _refuse(wrong: Iterable[tuple[str, str]]) -> None:
    """Raise one MissingSetting for all faults, if any."""
    match list(wrong):
        case []:
            return
        case [(variable, mend)]:
            raise MissingSetting(variable, mend)
        case several:
            lines = [f"\n- {variable}: {mend}" for variable, mend in several]
            raise MissingSetting(", ".join(dict(several)), "".join(lines))


def _variable(place: str) -> str:
    """Return the variable of a pydantic error location: a field's alias or name."""
    return next((variable for variable, field in _FIELDS.items() if field == place), place)


def _mend(error: ErrorDetails) -> str:
    return str(error.get("ctx", {}).get("error", error["msg"]))
