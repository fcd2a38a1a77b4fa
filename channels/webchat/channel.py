"""WebChatChannel: the chat page as a channel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Self

from channels.channel import Capabilities, Forged, MissingSetting, Parsed, Way, WebhookRequest, WebhookResponse
from channels.events import Address, Message
from channels.replies import Part, Receipt, Reply
from channels.webchat.parse import parse_event
from channels.webchat.render import BUTTON_LABEL, render_reply
from channels.webchat.verify import SessionCookies, check_host, check_page, is_secure

if TYPE_CHECKING:
    import aiohttp

__all__ = ["WebChatChannel"]


class WebChatChannel:
    """The chat in the browser.

    Delivered means written to the conversation's visible log, which whoever delivers does with the receipt; the page
    streams that log. So sending itself cannot fail.
    """

    name: ClassVar[str] = "webchat"
    capabilities = Capabilities(
        max_text=100_000,
        buttons=10,
        button_label=BUTTON_LABEL,
        visible=True,
        media=dict.fromkeys(("image", "audio", "video", "document"), 25 * 1024 * 1024),
        edit=True,
        typing=True,
        bare_yes="ordered",
    )

    def __init__(self, *, keys: Sequence[bytes], hosts: Sequence[str]) -> None:
        """`keys`: for the session cookie, the first one signs. `hosts`: the names under which the page is served."""
        self.cookies = SessionCookies(keys)
        self.hosts = tuple(host.lower() for host in hosts)
        self.on_typing: set[Callable[[str], None]] = set()
        """Called with the session in which the bot begins to write; they must not raise."""

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], *, way: Way) -> Self:
        """WEBCHAT_KEY: `new,old`, each at least 32 characters. WEBCHAT_HOSTS: host names with commas, without ports.

        Raises MissingSetting.
        """
        keys = [key.strip() for key in settings.get("WEBCHAT_KEY", "").split(",") if key.strip()]
        if not keys or min(map(len, keys)) < 32:
            raise MissingSetting("WEBCHAT_KEY", "needs a random value of 32 characters or more")
        hosts = [host.strip() for host in settings.get("WEBCHAT_HOSTS", "").split(",") if host.strip()]
        if not hosts:
            raise MissingSetting("WEBCHAT_HOSTS", "name the hosts of the chat page, for example localhost,127.0.0.1")
        return cls(keys=[key.encode() for key in keys], hosts=hosts)

    async def start(self, http: aiohttp.ClientSession) -> None:
        """Nothing is needed: the page comes to us."""

    async def close(self) -> None:
        """Nothing is held."""

    def verify(self, request: WebhookRequest, now: datetime) -> None:
        """A POST of our own page, in a session of ours. Raises Forged or Stale."""
        if request.method != "POST":
            raise Forged("only a POST says anything")
        check_host(request.headers, self.hosts)
        secure = is_secure(request)
        check_page(request.headers, secure=secure)
        self.cookies.check(request.headers, now, secure=secure)

    def parse(self, request: WebhookRequest) -> Parsed:
        """Raises Malformed."""
        event = parse_event(request)
        return Parsed(
            events=(event,),
            response=WebhookResponse(headers={"Content-Type": "application/json"}, body=b'{"status": "accepted"}'),
        )

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        return render_reply(reply)

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        return Receipt(message_id=key)

    def follows(self, message: Message, receipt: Receipt) -> bool:
        """Return whether ours was the bot's newest message on the page when the person sent theirs."""
        return message.after is not None and message.after == receipt.message_id

    async def typing(self, address: Address) -> None:
        for tell in tuple(self.on_typing):
            tell(address.place)
