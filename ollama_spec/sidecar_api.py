"""Ask a running sidecar: what the verbs `ps`, `stop` and `status` need."""

from __future__ import annotations

from typing import Any

import httpx

from ollama_spec.config import Config
from ollama_spec.errors import NotFoundError, RunnerError

_TIMEOUT = 30.0  # seconds


def url(config: Config) -> str:
    """Where a client reaches the sidecar; a wildcard address is reached by loopback."""
    host, _, port = config.host.removeprefix("http://").rpartition(":")
    if host in ("", "0.0.0.0", "[::]"):
        host = "127.0.0.1"
    return f"http://{host}:{port}"


def call(config: Config, method: str, path: str, body: Any = None) -> dict[str, Any]:
    """One request's JSON; RunnerError when no sidecar answers, NotFoundError for a 404."""
    base = url(config)
    try:
        with httpx.Client(timeout=_TIMEOUT, trust_env=False) as client:
            response = client.request(method, base + path, json=body)
    except httpx.HTTPError as error:
        raise RunnerError(
            f"no sidecar answers on {base}: {error}",
            hint="start it with `ollama-spec serve`, or name its address with --host",
        ) from error
    try:
        value = response.json()
    except ValueError as error:
        raise RunnerError(f"{base}{path} did not answer JSON", hint="is that Ollama?") from error
    if response.status_code >= 400:
        text = value.get("error", response.text) if isinstance(value, dict) else response.text
        kind = NotFoundError if response.status_code == 404 else RunnerError
        raise kind(str(text), hint="`ollama-spec list` shows the models there are")
    assert isinstance(value, dict)
    return value


def state(config: Config) -> dict[str, Any]:
    """`running`, and the loaded models or the problem; being down is an answer, not an error."""
    try:
        version = call(config, "GET", "/api/version")["version"]
        models = call(config, "GET", "/api/ps")["models"]
    except (RunnerError, NotFoundError) as error:
        return {"running": False, "problem": error.message, "models": []}
    return {"running": True, "version": version, "models": models}
