"""A small client of the real Ollama, for the command line: synchronous, few calls (contract 1)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from ollama_spec.errors import NotFoundError, OllamaSpecError

_CONNECT_SECONDS = 5.0
_BLOCK = 1 << 20


class OllamaError(OllamaSpecError):
    """The real Ollama refused, or is not there."""


class OllamaUnreachable(OllamaError):
    pass


class OllamaApi:
    """`base` is Ollama's address, e.g. "http://127.0.0.1:11434"."""

    def __init__(self, base: str) -> None:
        self.base = (base if "://" in base else f"http://{base}").rstrip("/")
        # Loading and creating take minutes without a byte; proxies must not see local calls.
        timeout = httpx.Timeout(None, connect=_CONNECT_SECONDS)
        self._client = httpx.Client(base_url=self.base, timeout=timeout, trust_env=False)

    def __enter__(self) -> OllamaApi:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def reachable(self) -> bool:
        try:
            self.version()
        except OllamaError:
            return False
        return True

    def version(self) -> str:
        return str(self._json("GET", "/api/version").get("version", ""))

    def tags(self) -> list[dict[str, Any]]:
        return list(self._json("GET", "/api/tags").get("models") or [])

    def ps(self) -> list[dict[str, Any]]:
        return list(self._json("GET", "/api/ps").get("models") or [])

    def show(self, name: str) -> dict[str, Any]:
        """Details of a model; raises NotFoundError."""
        return self._json("POST", "/api/show", {"model": name})

    def rendered(self, chat: dict[str, Any]) -> str:
        """The prompt of an `/api/chat` request, which is not answered."""
        reply = self._json("POST", "/api/chat", {**chat, "_debug_render_only": True})
        return str((reply.get("_debug_info") or {}).get("rendered_template", ""))

    def delete(self, name: str) -> None:
        self._json("DELETE", "/api/delete", {"model": name})

    def has_blob(self, digest: str) -> bool:
        """Whether Ollama holds `sha256:<hex>`."""
        response = self._send("HEAD", f"/api/blobs/{digest}")
        return response.status_code == 200

    def upload(self, path: Path, digest: str, told: Callable[[int], None]) -> None:
        """Send a file as a blob unless it is there; `told` hears the size of every block."""
        if self.has_blob(digest):
            return

        def blocks() -> Iterator[bytes]:
            with path.open("rb") as file:
                while block := file.read(_BLOCK):
                    yield block
                    told(len(block))

        response = self._send("POST", f"/api/blobs/{digest}", content=blocks())
        if response.status_code >= 400:
            raise self._refusal(response, f"uploading {path.name}")

    def create(self, request: dict[str, Any], told: Callable[[dict[str, Any]], None]) -> None:
        """Create a model; `told` hears each status object. Raises OllamaError with its words."""
        try:
            with self._client.stream("POST", "/api/create", json=request) as response:
                if response.status_code >= 400:
                    response.read()
                    raise self._refusal(response, f"creating {request['model']}")
                for line in response.iter_lines():
                    if not line.strip():
                        continue
                    status = json.loads(line)
                    if "error" in status:
                        raise OllamaError(
                            f"Ollama could not create {request['model']}: {status['error']}",
                            hint="its own log says more: `journalctl -u ollama` or where it runs",
                        )
                    told(status)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    def _json(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        response = self._send(method, path, json=body) if body else self._send(method, path)
        if response.status_code >= 400:
            raise self._refusal(response, path)
        try:
            value = response.json() if response.content else {}
        except ValueError as error:
            raise OllamaError(
                f"{self.base} is not Ollama: {path} answered something else",
                hint="set the right address with OLLAMA_SPEC_UPSTREAM",
            ) from error
        return value if isinstance(value, dict) else {}

    def _send(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            return self._client.request(method, path, **arguments)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> OllamaUnreachable:
        return OllamaUnreachable(
            f"no Ollama at {self.base}: {error}",
            hint="start it with `ollama serve`, or name its address in OLLAMA_SPEC_UPSTREAM",
        )

    def _refusal(self, response: httpx.Response, what: str) -> OllamaSpecError:
        try:
            text = str(response.json()["error"])
        except (ValueError, KeyError, TypeError):
            text = f"status {response.status_code}"
        if response.status_code == 404:
            return NotFoundError(f"Ollama: {text}", hint="`ollama list` shows its models")
        return OllamaError(f"Ollama refused {what}: {text}")
