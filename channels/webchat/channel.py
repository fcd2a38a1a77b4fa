"""The channel of the web chat page."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from channels.channel import (
    Capabilities,
    Forged,
    MissingSetting,
    Parsed,
    Undeliverable,
    Way,
    WebhookRequest,
    WebhookResponse,
)
from channels.events import Address, Attachment, Message
from channels.powers import StreamHandle
from channels.replies import Button, Json, Part, Receipt, Reply
from channels.transfer import read_pieces
from channels.webchat.parse import parse_event, split_ref
from channels.webchat.verify import Session, SessionCookies, check_host, check_page, cookie_name, is_secure

if TYPE_CHECKING:
    import aiohttp

BUTTON_LABEL = 60
"""The longest label in characters: a line of a narrow window holds this many."""


class WebChatChannel:
    """The channel of the chat page.

    A delivered part is a line in the conversation's visible log, streamed by the page. The delivery writes the line in
    the commit of the receipt, so `send` itself cannot fail.
    """

    name: ClassVar[str] = "webchat"
    capabilities = Capabilities(
        max_text=100_000,
        buttons=100,
        button_label=BUTTON_LABEL,
        visible=True,
        media=dict.fromkeys(("image", "audio", "video", "document"), 25 * 1024 * 1024),
        edit=True,
        stream=True,
        typing=True,
        bare_yes="ordered",
        local_times=True,
    )

    def __init__(self, *, keys: Sequence[bytes], hosts: Sequence[str], origins: Collection[str] = ()) -> None:
        """`keys`: for the session cookie; the first key signs. `hosts`: the host names of the page. `origins`: the
        other sites with the page in a frame, like ``https://shop.example``."""
        self.cookies = SessionCookies(keys)
        self.hosts = tuple(host.lower() for host in hosts)
        self.origins = frozenset(origins)
        self.on_typing: set[Callable[[Address], None]] = set()
        """Callbacks, called with the chat in which the bot begins to write. A callback must not raise."""
        self.on_draft: set[Callable[[Address, str], None]] = set()
        """Callbacks, called with a chat and the Markdown so far of the answer there. A callback must not raise."""
        self.uploaded: Callable[[str, str], Path | None] = lambda holder, token: None
        """(holder, token) -> the file uploaded by the holder under this token, or None. Set by the gateway."""

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], *, way: Way) -> Self:
        """Read WEBCHAT_KEY (`new,old`, each at least 32 characters) and WEBCHAT_HOSTS (`name,name`, without ports).

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
        """No-op: the page calls the gateway."""

    async def close(self) -> None:
        """No-op: no resource is open."""

    def verify(self, request: WebhookRequest, now: datetime) -> None:
        """Check that the request is a POST of the chat page with a valid session. Raises Forged or Stale."""
        self._verified(request, now, "application/json")

    def verify_upload(self, request: WebhookRequest, now: datetime) -> Session:
        """Check a request with a piece of a file, and return the session. Raises Forged or Stale."""
        return self._verified(request, now, "application/octet-stream")

    def session(self, request: WebhookRequest, now: datetime) -> Session:
        """Return the session proved by a request's cookie. Raises Forged or Stale."""
        return self.cookies.check(request.headers, now, cookie_name=self.cookie_name(request))

    def cookie_name(self, request: WebhookRequest) -> str:
        """Return the name of the session cookie of a request."""
        return cookie_name(request.headers, secure=is_secure(request), embeds=bool(self.origins))

    def _verified(self, request: WebhookRequest, now: datetime, content_type: str) -> Session:
        if request.method != "POST":
            raise Forged("only a POST says anything")
        check_host(request.headers, self.hosts)
        check_page(request.headers, secure=is_secure(request), content_type=content_type, origins=self.origins)
        return self.session(request, now)

    def parse(self, request: WebhookRequest) -> Parsed:
        """Return the event of a request. Raises Malformed."""
        event = parse_event(request, embeds=bool(self.origins))
        return Parsed(
            events=(event,),
            response=WebhookResponse(headers={"Content-Type": "application/json"}, body=b'{"status": "accepted"}'),
        )

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        return render_reply(reply)

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        return Receipt(message_id=key)

    def follows(self, message: Message, receipt: Receipt) -> bool:
        """Return True for the receipt of the bot's newest message on the page when the person sent `message`."""
        return message.after is not None and message.after == receipt.message_id

    async def stream(self, address: Address, *, message_ids: Sequence[str] = ()) -> StreamHandle:
        """Return a stream to the pages of this chat in this process. No line of the log shows the stream."""
        return PageStream(self.on_draft, address)

    async def fetch(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of an uploaded file of the attachment's holder. Raises Undeliverable."""
        path = self.uploaded(*split_ref(attachment.ref))
        if path is None:
            raise Undeliverable("not_a_file")
        async for piece in read_pieces(path):
            yield piece

    async def typing(self, address: Address) -> None:
        for tell in tuple(self.on_typing):
            tell(address)


class PageStream:
    """A StreamHandle to the pages of a chat. The pages show the draft until a message of the bot comes."""

    interval_seconds = 0.25
    message_ids: Sequence[str] = ()

    def __init__(self, pages: Iterable[Callable[[Address, str], None]], address: Address) -> None:
        self._pages, self._address = pages, address

    async def update(self, text: str) -> None:
        """Show the text so far."""
        for tell in tuple(self._pages):
            tell(self._address, text)

    async def finish(self, parts: Sequence[Part]) -> Sequence[Receipt]:
        """Raise Undeliverable for any part, since no message shows the text."""
        if parts:
            raise Undeliverable("no_message")
        return ()


def render_reply(reply: Reply) -> tuple[Part, ...]:
    """Return the parts of a reply. The Markdown stays unchanged: the server of the page renders the text safely.

    A question comes after its files, so the last receipt belongs to the question.
    """
    text = reply.text.encode("utf-8", "replace").decode()  # a lone surrogate cannot be sent anywhere
    buttons = tuple(map(_cut, reply.buttons))
    arguments: dict[str, Json] = {"text": text, "edits": reply.edits}
    if reply.exact:
        arguments["exact"] = True
    if reply.settled:
        arguments["settled"] = [each.state for each in reply.settled]
    if reply.small:
        arguments["small"] = reply.small
    words = Part(call="show", arguments=arguments, buttons=buttons)
    files = tuple(Part(call="show", arguments={"text": "", "edits": None}, media=media) for media in reply.media)
    if buttons:
        return (*files, words)
    # An edit with an empty text is sent too, because it empties the message.
    return (words, *files) if reply.text or reply.edits else files


def _cut(button: Button) -> Button:
    if len(button.label) <= BUTTON_LABEL:
        return button
    return replace(button, label=button.label[: BUTTON_LABEL - 1] + "…")
