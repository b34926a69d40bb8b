"""Everything that is not ours goes to the real Ollama and back, byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from ollama_spec.runner.apierror import ApiError

log = logging.getLogger(__name__)

# RFC 9110 7.6.1; X-Conversation-Id makes newer llama-servers go on after a disconnect.
_HOP_BY_HOP = frozenset(
    (
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
        "te", "trailer", "transfer-encoding", "upgrade",
    )
)  # fmt: skip
_REQUEST_ONLY = frozenset(("host", "origin", "x-conversation-id", "x-spec-mode", "content-length"))
_AUTOMATIC = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")
_UNLOAD_SECONDS = 30
_QUICK = aiohttp.ClientTimeout(total=3, sock_connect=1)


Line = Callable[[bytes], bytes]


class Unreachable(Exception):
    """Nobody listens at the upstream's address."""


class Upstream:
    """The real Ollama at `base` (empty: there is none)."""

    def __init__(self, base: str) -> None:
        self.base = base.rstrip("/")
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            auto_decompress=False,
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        await self._session.close()

    async def get_json(self, path: str) -> dict[str, Any] | None:
        """A small GET; None when there is no upstream or it does not answer well."""
        if not self.base:
            return None
        try:
            async with self._session.get(self.base + path, timeout=_QUICK) as response:
                value = json.loads(await response.read())
                return value if response.status == 200 and isinstance(value, dict) else None
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return None

    async def has_model(self, text: str) -> bool:
        if not self.base:
            return False
        try:
            async with self._session.post(
                f"{self.base}/api/show", json={"model": text}, timeout=_QUICK
            ) as response:
                return response.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    async def unload_all(self) -> None:
        """Ask for keep_alive 0 of every loaded model; returns when none is left, or after 30 s."""
        try:
            async with asyncio.timeout(_UNLOAD_SECONDS):
                while loaded := (await self.get_json("/api/ps") or {}).get("models"):
                    for item in loaded:
                        await self.post("/api/generate", {"model": item["name"], "keep_alive": 0})
                    await asyncio.sleep(0.2)
        except (TimeoutError, Unreachable, ApiError) as error:
            log.warning("Ollama did not unload: %s", error or "it took too long")

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """One JSON answer; ApiError with Ollama's words, Unreachable when there is none."""
        try:
            async with self._session.post(self.base + path, json=body) as response:
                value = json.loads(await response.read())
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unreachable from error
        if response.status >= 400 or not isinstance(value, dict):
            raise ApiError(response.status, str(value))
        return value

    async def stream(self, path: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """The objects of an NDJSON answer; ApiError for an error among them."""
        try:
            async with self._session.post(self.base + path, json=body) as response:
                async for line in _lines(response.content.iter_any(), bytes.strip):
                    item = json.loads(line)
                    if "error" in item:
                        raise ApiError(500, str(item["error"]))
                    yield item
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unreachable from error

    async def forward(
        self, request: web.Request, body: bytes | None = None, line: Line | None = None
    ) -> web.StreamResponse:
        """Pass one request on; raises Unreachable before anything was sent to the client.

        `body`: what was already read of it; else it is streamed. `line`: changes each line of the
        answer on its way back. The client's disconnect cancels
        this coroutine, which closes the upstream connection.
        """
        if not self.base:
            raise Unreachable
        data: Any = body
        if body is None and request.body_exists:
            data = request.content.iter_any()
        headers = _request_headers(request)
        if data is not None and "Content-Length" in request.headers:
            headers["Content-Length"] = request.headers["Content-Length"]
        try:
            upstream = await self._session.request(
                request.method,
                URL(self.base + request.raw_path, encoded=True),
                headers=headers,
                data=data,
                allow_redirects=False,
                skip_auto_headers=_AUTOMATIC,
            )
        except aiohttp.ClientConnectorError as error:
            raise Unreachable from error
        except (aiohttp.ClientError, ConnectionError) as error:
            log.warning("upstream broke off: %s", error)
            raise Unreachable from error
        async with upstream:
            return await _relay(request, upstream, line)


def _request_headers(request: web.Request) -> CIMultiDict[str]:
    named = {part.strip().lower() for part in request.headers.get("Connection", "").split(",")}
    dropped = _HOP_BY_HOP | _REQUEST_ONLY | named
    headers: CIMultiDict[str] = CIMultiDict()
    for key, value in request.headers.items():
        if key.lower() not in dropped:
            headers.add(key, value)
    return headers


async def _lines(chunks: AsyncIterator[bytes], line: Line) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for item in whole:
            yield line(item + b"\n")
    if rest:
        yield line(rest)


async def _relay(
    request: web.Request, upstream: aiohttp.ClientResponse, line: Line | None
) -> web.StreamResponse:
    response = web.StreamResponse(status=upstream.status, reason=upstream.reason)
    named = {part.strip().lower() for part in upstream.headers.get("Connection", "").split(",")}
    for key, value in upstream.headers.items():
        if key.lower() not in _HOP_BY_HOP | named and not (line and key == "Content-Length"):
            response.headers.add(key, value)
    if "Content-Type" not in response.headers:
        response.headers["Content-Type"] = ""  # dropped again by guard.on_prepare
    await response.prepare(request)
    if request.method == "HEAD" or upstream.status in (204, 304):
        return response
    chunks: AsyncIterator[bytes] = upstream.content.iter_any()
    if line:
        chunks = _lines(chunks, line)
    try:
        async for chunk in chunks:
            await response.write(chunk)
    except (aiohttp.ClientPayloadError, ConnectionError):
        # Cut here as there, so the client can tell it from a normal end.
        if request.transport is not None:
            request.transport.abort()
        raise asyncio.CancelledError from None
    with contextlib.suppress(ConnectionError):
        await response.write_eof()
    return response
