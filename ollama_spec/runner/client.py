"""Requests to one llama-server, and Ollama's words for what can go wrong (contract 7.5, 7.8)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import aiohttp

from ollama_spec.runner import sse, wire
from ollama_spec.runner.apierror import CONNECTION_LOST, ApiError, RunnerLost
from ollama_spec.runner.child import Child

_BROKEN = (aiohttp.ClientError, ConnectionError)


class RunnerClient:
    def __init__(self, child: Child, idle_timeout: float = 0) -> None:
        self._child = child
        self._idle = idle_timeout or None

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """A reply as JSON; ApiError with llama-server's status and its raw body otherwise."""
        try:
            async with self._child.session.post(self._child.url + path, json=body) as response:
                text = (await response.read()).decode(errors="replace")
                if response.status >= 400:
                    raise ApiError(response.status, text.strip(), late=True)
        except _BROKEN:
            raise await self._lost(CONNECTION_LOST, None) from None
        value = json.loads(text)
        assert isinstance(value, dict)
        return value

    async def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        body = {"content": text, "add_special": special, "parse_special": True}
        return list((await self.post("/tokenize", body))["tokens"])

    async def detokenize(self, tokens: list[int]) -> str:
        return str((await self.post("/detokenize", {"tokens": tokens}))["content"])

    async def apply_template(self, body: dict[str, Any]) -> str:
        return str((await self.post("/apply-template", {**body, "stream": False}))["prompt"])

    async def stream(self, path: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """The events of a streamed answer, parsed.

        Closing this generator closes the connection, which frees the child's slot. ApiError when
        the child refuses (before the first event), reports an error, falls silent for longer than
        the idle limit, or goes away.
        """
        started = False
        try:
            async with self._child.session.post(self._child.url + path, json=body) as response:
                if response.status >= 400:
                    text = (await response.read()).decode(errors="replace")
                    raise ApiError(response.status, text.strip(), late=True)
                async for data in sse.events(self._chunks(response)):
                    if data == b"[DONE]":
                        continue
                    started = True
                    yield _event(data)
        except _BROKEN:
            prefix = "an error was encountered while running the model"
            if started:
                raise await self._lost(prefix, "unexpected EOF") from None
            raise await self._lost(CONNECTION_LOST, None) from None

    async def _chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        while True:
            try:
                if self._idle:
                    async with asyncio.timeout(self._idle):
                        chunk = await response.content.readany()
                else:
                    chunk = await response.content.readany()
            except TimeoutError:
                raise ApiError(
                    500, f"llama-server sent nothing for {self._idle:g} s (stream_idle_timeout)"
                ) from None
            if not chunk:
                return
            yield chunk

    async def _lost(self, prefix: str, otherwise: str | None) -> RunnerLost:
        """The error after a broken connection, with the child's last words if it has any."""
        self._child.stop()
        await self._child.settle()
        captured = self._child.log.errors() or otherwise
        return RunnerLost(500, f"{prefix}: {captured}" if captured else prefix, late=True)

    async def cut(self) -> RunnerLost:
        """The error for a stream that ended without its final event."""
        return await self._lost(
            "an error was encountered while running the model", "unexpected EOF"
        )


def _event(data: bytes) -> dict[str, Any]:
    try:
        value = wire.loads(data)
    except ValueError:
        raise ApiError(
            500, f"llama-server sent an event that is not JSON: {data[:200]!r}"
        ) from None
    if not isinstance(value, dict):
        raise ApiError(500, f"llama-server sent an unexpected event: {data[:200]!r}")
    if value.get("error"):
        error = value["error"]
        message = error.get("message", error) if isinstance(error, dict) else error
        raise ApiError(500, f"llama-server chat error: {message}", late=True)
    return value
