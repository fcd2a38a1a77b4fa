"""A server of ``/audio/transcriptions``: https://platform.openai.com/docs/api-reference/audio/createTranscription."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

from tests.fakes.waiting import listen

_FORMATS = {"flac", "m4a", "mp3", "mp4", "mpeg", "mpga", "oga", "ogg", "wav", "webm"}
_LARGEST = 25 * 1024**2


@dataclass
class Heard:
    model: str
    filename: str
    content: bytes
    language: str | None


@dataclass
class FakeTranscription:
    """Answers `text`, or first each of `fails`: an HTTP status, or a body in another shape."""

    text: Any = "delete invoice seven"
    fails: list[int | Any] = field(default_factory=list)
    heard: list[Heard] = field(default_factory=list)
    key: str = "sk-voice-0123456789"
    url: str = ""

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/audio/transcriptions", self._answer)
        self._runner, self.url = await listen(app)
        self.url += "/v1"
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._runner.cleanup()

    @property
    def connections(self) -> int:
        assert self._runner.server is not None
        return len(self._runner.server.connections)

    async def _answer(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": {"message": "Incorrect API key provided"}}, status=401)
        form = await request.post()
        file = form.get("file")
        if not isinstance(file, web.FileField) or not form.get("model"):
            return web.json_response({"error": {"message": "you must provide a file and a model"}}, status=400)
        content, language = file.file.read(), form.get("language")
        if file.filename.rpartition(".")[2] not in _FORMATS:
            return web.json_response({"error": {"message": "Unrecognized file format."}}, status=400)
        if len(content) > _LARGEST:
            return web.json_response({"error": {"message": "Maximum content size limit exceeded"}}, status=413)
        if language is not None and len(str(language)) != 2:
            return web.json_response({"error": {"message": "Invalid language"}}, status=400)
        if self.fails:
            fault = self.fails.pop(0)
            if isinstance(fault, int):
                return web.json_response({"error": {"message": "no"}}, status=fault, headers={"Retry-After": "0"})
            return web.json_response(fault)
        self.heard.append(
            Heard(str(form["model"]), file.filename, content, None if language is None else str(language))
        )
        return web.json_response({"text": self.text})
