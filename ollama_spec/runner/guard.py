"""Who may talk to us: the Host check against DNS rebinding and the CORS rules (contract 12)."""

from __future__ import annotations

import fnmatch
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache

import psutil
from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_LOCAL = ("localhost", "127.0.0.1", "0.0.0.0")
_APPS = ("app://*", "file://*", "tauri://*", "vscode-webview://*", "vscode-file://*")
_STAINLESS = (
    "arch", "async", "custom-poll-interval", "helper-method", "lang", "os", "package-version",
    "poll-helper", "retry-count", "runtime", "runtime-version", "timeout",
)  # fmt: skip
_HEADERS = [
    "Authorization", "Content-Type", "User-Agent", "Accept", "X-Requested-With", "OpenAI-Beta",
    "X-Spec-Mode", *(f"x-stainless-{name}" for name in _STAINLESS),
]  # fmt: skip
_METHODS = "GET,POST,PUT,PATCH,DELETE,HEAD,OPTIONS"


def allowed_origins(extra: Iterable[str]) -> tuple[str, ...]:
    local = [
        f"{scheme}://{host}{port}"
        for scheme in ("http", "https")
        for host in _LOCAL
        for port in ("", ":*")
    ]
    return (*extra, *local, *_APPS)


def origin_allowed(origin: str, host: str, allowed: Iterable[str]) -> bool:
    """An origin equal to the address asked is no cross-origin request at all."""
    if origin in (f"http://{host}", f"https://{host}"):
        return True
    return any(entry == "*" or fnmatch.fnmatchcase(origin, entry) for entry in allowed)


def host_allowed(host: str) -> bool:
    """For a loopback listener: an address of this machine or a name that means it."""
    name = _without_port(host).lower()
    if not name or name == "localhost" or name == socket.gethostname().lower():
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name.endswith((".localhost", ".local", ".internal"))
    private = address.is_loopback or address.is_private or address.is_unspecified
    return private or name in _own_addresses()


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].split("]")[0]
    return host.rsplit(":", 1)[0] if host.count(":") == 1 else host


@lru_cache(maxsize=1)
def _own_addresses() -> frozenset[str]:
    found = psutil.net_if_addrs().values()
    return frozenset(entry.address.split("%")[0].lower() for group in found for entry in group)


def middleware(
    origins: Iterable[str], *, loopback: bool
) -> Callable[..., Awaitable[web.StreamResponse]]:
    """The guard as an aiohttp middleware; `loopback`: we listen on a loopback address only."""
    allowed = allowed_origins(origins)
    everyone = "*" in allowed

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        host = request.headers.get("Host", "")
        if loopback and not host_allowed(host):
            return web.Response(status=403)
        origin = request.headers.get("Origin")
        cross = origin is not None and origin not in (f"http://{host}", f"https://{host}")
        if origin is not None and cross and not origin_allowed(origin, host, allowed):
            return web.Response(status=403)
        if request.method == "OPTIONS" and (cross or loopback):
            response = web.Response(status=204)
            if cross:
                response.headers["Access-Control-Allow-Methods"] = _METHODS
                response.headers["Access-Control-Allow-Headers"] = ",".join(_HEADERS)
                response.headers["Access-Control-Max-Age"] = "43200"
        else:
            request["cors"] = (origin or "", everyone) if cross else None
            return await handler(request)
        if cross:
            add_cors(response, origin or "", everyone)
        return response

    return guard


def add_cors(response: web.StreamResponse, origin: str, everyone: bool) -> None:
    response.headers["Access-Control-Allow-Origin"] = "*" if everyone else origin
    if not everyone:
        response.headers["Vary"] = "Origin"


async def on_prepare(request: web.Request, response: web.StreamResponse) -> None:
    """Last touch before headers go out, also for streams and passed-through answers."""
    response.headers.pop("Server", None)
    cors = request.get("cors")
    if cors:
        add_cors(response, *cors)
