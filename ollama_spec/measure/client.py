"""One timed answer from llama-server, Ollama or any OpenAI-compatible endpoint.

Times are taken here, at the client, so that all endpoints are measured alike; what the server says
about itself (`timings`, receipts) is kept beside them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx

from ollama_spec.errors import RunnerError

Dialect = Literal["llama", "ollama", "openai"]
_PATHS: dict[Dialect, str] = {
    "llama": "/completion",
    "ollama": "/api/chat",
    "openai": "/v1/chat/completions",
}
_TIMEOUT = httpx.Timeout(600, connect=10)


@dataclass(frozen=True)
class Answer:
    """Times in seconds. `timings`: llama-server's; `spec`: our receipt where one came."""

    text: str
    n_tokens: int
    ttft: float
    total: float
    timings: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    stop: str = ""

    @property
    def tpot(self) -> float | None:
        """Seconds per output token after the first."""
        return (self.total - self.ttft) / (self.n_tokens - 1) if self.n_tokens > 1 else None

    @property
    def speed(self) -> float | None:
        """Output tokens per second after the first."""
        return 1 / self.tpot if self.tpot else None


class Client:
    """Requests to one endpoint. Errors of the server are RunnerError with its own words."""

    def __init__(self, url: str, dialect: Dialect = "llama", model: str = "") -> None:
        self.dialect, self.model = dialect, model
        # A connection per request: llama-server drops idle ones, at times just as one is reused.
        self._http = httpx.Client(
            base_url=url.rstrip("/"),
            trust_env=False,
            timeout=_TIMEOUT,
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        reply = self._request(path, body)
        value = reply.json()
        assert isinstance(value, dict)
        return value

    def reply(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """The reply as it is, whatever its status."""
        return self._http.post(path, json=body)

    def render(self, text: str) -> str:
        """What `ask` takes for `text` as the first user turn: servers other than llama-server put
        it into the model's template themselves."""
        if self.dialect != "llama":
            return text
        body = {"messages": [{"role": "user", "content": text}]}
        return str(self.post("/apply-template", body)["prompt"])

    def tokenize(self, text: str, *, start: bool = True) -> list[int]:
        body = {"content": text, "add_special": start, "parse_special": True}
        return list(self.post("/tokenize", body)["tokens"])

    def detokenize(self, tokens: list[int]) -> str:
        return str(self.post("/detokenize", {"tokens": tokens})["content"])

    def _request(self, path: str, body: dict[str, Any]) -> httpx.Response:
        try:
            reply = self._http.post(path, json=body)
        except httpx.TransportError as error:
            raise RunnerError(
                f"{self._http.base_url} broke off: {error!r}", hint="is the server still running?"
            ) from error
        if reply.status_code >= 400:
            raise _refused(reply.status_code, reply.text)
        return reply

    def ask(self, prompt: str, n_predict: int, **options: Any) -> Answer:
        """Stream an answer of at most `n_predict` tokens. Options carry llama-server's names;
        for other dialects those that exist there are translated, the rest is left out."""
        body = _body(self.dialect, self.model, prompt, n_predict, options)
        return self.stream(_PATHS[self.dialect], body)

    def stream(self, path: str, body: dict[str, Any]) -> Answer:
        start = time.perf_counter()
        first: float | None = None
        pieces: list[str] = []
        last: dict[str, Any] = {}
        try:
            with self._http.stream("POST", path, json={**body, "stream": True}) as reply:
                if reply.status_code >= 400:
                    raise _refused(reply.status_code, reply.read().decode(errors="replace"))
                for event in _events(reply):
                    piece = _piece(event)
                    if piece and first is None:
                        first = time.perf_counter()
                    pieces.append(piece)
                    last |= {key: value for key, value in event.items() if value is not None}
        except httpx.TransportError as error:
            raise RunnerError(
                f"{self._http.base_url} broke off: {error!r}", hint="is the server still running?"
            ) from error
        end = time.perf_counter()
        timings = last.get("timings") or _ollamas_timings(last)
        return Answer(
            text="".join(pieces),
            n_tokens=_count(last, timings, pieces),
            ttft=(first or end) - start,
            total=end - start,
            timings=timings,
            spec=last.get("spec") or {},
            stop=str(last.get("stop_type") or last.get("done_reason") or ""),
        )


def _refused(status: int, text: str) -> RunnerError:
    return RunnerError(f"HTTP {status}: {text.strip()[:500]}", hint="see the server's log")


def _body(
    dialect: Dialect, model: str, prompt: str, n_predict: int, options: dict[str, Any]
) -> dict[str, Any]:
    if dialect == "llama":
        return {"prompt": prompt, "n_predict": n_predict, "cache_prompt": False, **options}
    messages = [{"role": "user", "content": prompt}]
    common = ("temperature", "top_k", "top_p", "min_p", "seed", "num_ctx")
    if dialect == "ollama":
        kept = {key: options[key] for key in common if key in options}
        kept |= {key: value for key, value in options.items() if key.startswith("spec_")}
        asked = {"messages": messages, "options": {**kept, "num_predict": n_predict}}
        return {"model": model, "think": False, **asked}
    kept = {key: options[key] for key in ("temperature", "top_p", "seed") if key in options}
    usage = {"stream_options": {"include_usage": True}}
    return {"model": model, "messages": messages, "max_tokens": n_predict, **usage, **kept}


def _events(reply: httpx.Response) -> Iterator[dict[str, Any]]:
    """Both NDJSON lines and server-sent `data:` lines."""
    for line in reply.iter_lines():
        text = line.removeprefix("data:").strip()
        if not text.startswith("{"):
            continue
        event = json.loads(text)
        if event.get("error"):
            raise RunnerError(f"the server reports: {event['error']}", hint="see its log")
        yield event


def _piece(event: dict[str, Any]) -> str:
    if "content" in event:  # llama-server
        return str(event["content"])
    if isinstance(event.get("message"), dict):  # Ollama
        message = event["message"]
        return str(message.get("content") or message.get("thinking") or "")
    for choice in event.get("choices") or []:
        delta = choice.get("delta") or {}
        return str(delta.get("content") or delta.get("reasoning_content") or "")
    return ""


def _ollamas_timings(last: dict[str, Any]) -> dict[str, Any]:
    """Ollama's counts and nanoseconds, or an OpenAI server's counts, under llama-server's names."""
    usage = last.get("usage") or {}
    known = {
        "prompt_n": last.get("prompt_eval_count", usage.get("prompt_tokens")),
        "prompt_ms": last.get("prompt_eval_duration", 0) / 1e6,
        "predicted_ms": last.get("eval_duration", 0) / 1e6,
    }
    return {key: value for key, value in known.items() if value}


def _count(last: dict[str, Any], timings: dict[str, Any], pieces: list[str]) -> int:
    """Tokens as the server counts them; pieces may hold several."""
    usage = last.get("usage") or {}
    for count in (
        timings.get("predicted_n"),
        last.get("eval_count"),
        usage.get("completion_tokens"),
    ):
        if count is not None:
            return int(count)
    return sum(1 for piece in pieces if piece)
