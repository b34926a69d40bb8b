"""The routes of the sidecar: ours where a model of ours is meant, the real Ollama otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from datetime import datetime
from typing import Any

import zstandard
from aiohttp import web

from ollama_spec import names
from ollama_spec.errors import OllamaSpecError
from ollama_spec.runner import decode, guard, inventory, manage, replies, resolve, wire
from ollama_spec.runner.apierror import ApiError, NotStarted
from ollama_spec.runner.call import Call
from ollama_spec.runner.handlers import MODEL_ROUTES
from ollama_spec.runner.passthrough import Unreachable, Upstream
from ollama_spec.runner.rates import Rates
from ollama_spec.runner.request import Services
from ollama_spec.store import ModelRecord

log = logging.getLogger(__name__)

API_VERSION = "0.32.15"  # the Ollama whose API we speak where no Ollama answers
_ZSTD_LIMIT = 20 * 1024 * 1024
_numbers = itertools.count(1)
_model: ContextVar[str] = ContextVar("model", default="-")  # for the log line
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Front:
    """HTTP handlers; holds what they share."""

    def __init__(self, services: Services, attached: Upstream) -> None:
        self.services = services
        self.upstream = services.upstream
        self.attached = attached

    def app(self, *, loopback: bool) -> web.Application:
        config = self.services.config
        checks = guard.Guard(config.origins, loopback=loopback)
        app = web.Application(
            client_max_size=config.max_request_bytes,
            middlewares=[_log_requests, checks.middleware()],
        )
        app.on_response_prepare.append(checks.on_prepare)
        app.router.add_get("/", self.root)
        app.router.add_get("/api/version", self.version)
        app.router.add_get("/api/tags", self.tags)
        app.router.add_get("/api/ps", self.ps, allow_head=False)
        app.router.add_get("/v1/models", self.models, allow_head=False)
        app.router.add_get("/v1/models/{model}", self.model, allow_head=False)
        for path in MODEL_ROUTES:
            app.router.add_post(path, self.model_route)
        app.router.add_post("/api/copy", self.copy)
        app.router.add_delete("/api/delete", self.delete)
        app.router.add_route("*", "/{path:.*}", self.other)
        return app

    async def root(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text="Ollama is running")

    async def version(self, request: web.Request) -> web.StreamResponse:
        theirs = await self.upstream.get_json("/api/version")
        return replies.json_reply(theirs or {"version": API_VERSION})

    async def tags(self, request: web.Request) -> web.StreamResponse:
        mine = await asyncio.to_thread(
            lambda: [inventory.tag(item) for item in self.services.store.list()]
        )
        theirs = await self.upstream.get_json("/api/tags")
        return replies.json_reply({"models": _union(mine, theirs, "modified_at")})

    async def ps(self, request: web.Request) -> web.StreamResponse:
        mine = [inventory.running(item) for item in self.services.pool.loaded()]
        theirs = await self.upstream.get_json("/api/ps")
        models = _union(mine, theirs, "expires_at")
        for item in models:
            problem = self.services.rates.problem(item["name"])
            if problem:
                item["spec"] = {"type": None, **item.get("spec", {}), "problem": problem}
        return replies.json_reply({"models": models})

    async def models(self, request: web.Request) -> web.StreamResponse:
        mine = [
            _openai_model(item.name, item.created_at.timestamp())
            for item in self.services.store.list()
        ]
        theirs = await self.upstream.get_json("/v1/models")
        known = {item["id"].lower() for item in mine}
        other = [
            item for item in (theirs or {}).get("data") or [] if item["id"].lower() not in known
        ]
        data = sorted(mine + other, key=lambda item: -item["created"])
        return replies.json_reply(
            {"object": "list", "data": data or None}, content_type="application/json", end=b"\n"
        )

    async def model(self, request: web.Request) -> web.StreamResponse:
        text = request.match_info["model"]
        record = resolve.ours(self.services.store, text)
        if record is None:
            return await self._pass_on(request, b"", resolve.not_found(text))
        entry = _openai_model(text, record.created_at.timestamp(), shown=text)
        return replies.json_reply(entry, content_type="application/json", end=b"\n")

    async def model_route(self, request: web.Request) -> web.StreamResponse:
        """A POST that names a model: ours is served here, any other is passed on unread."""
        data = await request.read()
        try:
            raw = decode.parse(_plain(request, data))
        except ApiError as error:
            return await self._pass_on(request, data, error)
        text = _model_text(raw, request.path)
        try:
            # What a pair in Ollama's store is, Ollama itself says best.
            record = resolve.ours(
                self.services.store, text, ollama_pairs=request.path != "/api/show"
            )
            if record is None:
                return await self._pass_on(request, data, _missing(request.path, text))
            _model.set(record.name)
            elsewhere = await self._elsewhere(request, data, record, text)
            if elsewhere is not None:
                return elsewhere
            raw = {key: value for key, value in raw.items() if key.lower() != "model"}
            call = Call(request, self.services, record, {**raw, "model": text})
            return await MODEL_ROUTES[request.path](call)
        except NotStarted as failure:
            return await self._fall_back(request, data, text, failure.error)
        except ApiError as error:
            return _error(request, error)
        except OllamaSpecError as error:
            return _error(request, ApiError(500, error.message))

    async def _elsewhere(
        self, request: web.Request, data: bytes, record: ModelRecord, text: Any
    ) -> web.StreamResponse | None:
        """The answer of `attach` for models that Ollama renders itself, or of the real Ollama
        when it is that one's turn; None: we answer."""
        if request.path == "/api/show":
            return None
        if record.renderer and self.attached.base:
            with contextlib.suppress(Unreachable):
                return await self.attached.forward(request, data)
        rates = self.services.rates
        if rates.next_side(record.name) == "here" or not await self.upstream.has_model(text):
            return None
        with contextlib.suppress(Unreachable):
            return await self.upstream.forward(request, data, _timed(rates, record.name))
        return None

    async def _fall_back(
        self, request: web.Request, data: bytes, text: Any, failure: ApiError
    ) -> web.StreamResponse:
        """Our runner did not start: the real Ollama answers if it has the model."""
        if not await self.upstream.has_model(text):
            return _error(request, failure)
        log.warning("%s falls back to Ollama: %s", text, failure.message)
        return await self._pass_on(request, data, failure)

    async def copy(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        try:
            raw = decode.parse(data)
            record = resolve.ours(self.services.store, raw.get("source"))
            if record is None:
                return await self._pass_on(request, data, _needs_ollama(self.upstream, request))
            return await manage.copy(record, raw.get("destination"))
        except ApiError as error:
            return await self._pass_on(request, data, error)

    async def delete(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        try:
            text = _model_text(decode.parse(data), request.path)
        except ApiError as error:
            return await self._pass_on(request, data, error)
        record = resolve.ours(self.services.store, text)
        if record is None:
            return await self._pass_on(request, data, resolve.not_found(text))
        return await manage.delete(record, self.services.pool)

    async def other(self, request: web.Request) -> web.StreamResponse:
        missing = ApiError(404, "404 page not found")
        if request.path.startswith(("/api/", "/v1/")):
            missing = _needs_ollama(self.upstream, request)
        return await self._pass_on(request, None, missing)

    async def _pass_on(
        self, request: web.Request, body: bytes | None, otherwise: ApiError
    ) -> web.StreamResponse:
        try:
            return await self.upstream.forward(request, body)
        except Unreachable:
            if otherwise.message == "404 page not found":
                return web.Response(status=404, text=otherwise.message)
            return _error(request, otherwise)


def _error(request: web.Request, error: ApiError) -> web.Response:
    if request.path.startswith("/v1/"):
        return replies.v1_error(request.path, error)
    return replies.native_error(error)


def _needs_ollama(upstream: Upstream, request: web.Request) -> ApiError:
    where = upstream.base or "none is configured"
    return ApiError(
        502,
        f"{request.path} needs the real Ollama, which does not answer ({where}); "
        "start it with `ollama serve` or set `upstream`",
    )


def _plain(request: web.Request, data: bytes) -> bytes:
    """The body without its zstd coding, which `/v1/*` accepts (contract 1.14)."""
    coding = request.headers.get("Content-Encoding", "")
    if coding != "zstd" or not request.path.startswith("/v1/"):
        return data
    try:
        reader = zstandard.ZstdDecompressor().stream_reader(data)
        plain: bytes = reader.read(_ZSTD_LIMIT + 1)
    except zstandard.ZstdError as error:
        raise ApiError(400, f"invalid zstd body: {error}") from None
    if len(plain) > _ZSTD_LIMIT:
        raise ApiError(413, "http: request body too large")
    return plain


def _model_text(raw: dict[str, Any], path: str) -> Any:
    """The model a body names; the last spelling of the key wins, as in Go."""
    text: Any = ""
    both = path in ("/api/show", "/api/delete")
    for wanted in ("name", "model") if both else ("model",):
        for key, value in raw.items():
            if key.lower() == wanted and value not in (None, ""):
                text = value
    return text


def _missing(path: str, text: Any) -> ApiError:
    required = ApiError(400, "model is required")
    if path in ("/api/chat", "/api/show", "/v1/chat/completions"):
        error = resolve.not_found(text, empty=required)
    else:
        error = resolve.not_found(text)
    if "/embed" in path and error.status == 404 and text:
        return ApiError(404, f'model "{text}" not found, try pulling it first')
    if path == "/api/show" and error.status == 404:
        return ApiError(404, f"model '{names.parse(text).display}' not found")
    return error


def _union(
    mine: list[dict[str, Any]], theirs: dict[str, Any] | None, latest: str
) -> list[dict[str, Any]]:
    """Both lists in Ollama's order, the latest first; of a name in both ours, as we serve it."""
    known = {item["name"].lower() for item in mine}
    other = [
        item for item in (theirs or {}).get("models") or [] if item["name"].lower() not in known
    ]
    return sorted(mine + other, key=lambda item: _moment(item.get(latest)), reverse=True)


def _moment(text: Any) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError):
        return 0.0


def _timed(rates: Rates, model: str) -> Callable[[bytes], bytes]:
    """Reads Ollama's rate out of the last line of an answer, which passes unchanged."""

    def line(data: bytes) -> bytes:
        if b'"eval_duration":' in data:
            with contextlib.suppress(ValueError, KeyError):
                last = wire.loads(data)
                rates.note(model, "ollama", last["eval_count"], last["eval_duration"] / 1e9)
        return data

    return line


def _openai_model(name: str, created: float, shown: str | None = None) -> dict[str, Any]:
    parsed = names.parse(names.parse_reference(name).base)
    return {
        "id": shown or parsed.display,
        "object": "model",
        "created": int(created),
        "owned_by": parsed.namespace,
    }


@web.middleware
async def _log_requests(request: web.Request, handler: Handler) -> web.StreamResponse:
    number, started = next(_numbers), time.monotonic()
    _model.set("-")
    outcome: str | int = "cancelled"
    try:
        response = await handler(request)
        outcome = response.status
        return response
    except web.HTTPException as error:
        outcome = error.status
        raise
    except ConnectionError:
        # The client went away while we wrote; there is nobody left to tell.
        raise asyncio.CancelledError from None
    except (json.JSONDecodeError, RecursionError) as error:
        outcome = 400
        return replies.native_error(ApiError(400, str(error)))
    finally:
        seconds = time.monotonic() - started
        model = _model.get()
        log.info(
            "#%d %s %s %s %s %.3fs", number, request.method, request.path, model, outcome, seconds
        )
