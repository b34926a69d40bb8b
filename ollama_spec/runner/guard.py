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


@lru_cache(maxsize=256)
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


class Guard:
    """Checks every request; `loopback`: we listen on a loopback address only."""

    def __init__(self, origins: Iterable[str], *, loopback: bool) -> None:
        self._allowed = allowed_origins(origins)
        self._loopback = loopback

    def refuses(self, request: web.Request) -> bool:
        host = request.headers.get("Host", "")
        if self._loopback and not host_allowed(host):
            return True
        origin = request.headers.get("Origin")
        return origin is not None and not origin_allowed(origin, host, self._allowed)

    def middleware(self) -> Callable[..., Awaitable[web.StreamResponse]]:
        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            if self.refuses(request):
                return web.Response(status=403)
            if request.method == "OPTIONS" and (_is_cross(request) or self._loopback):
                return _preflight(request)
            return await handler(request)

        return guard

    async def on_prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        """Last touch before headers go out, also for streams and passed-through answers."""
        response.headers.pop("Server", None)
        if response.headers.get("Content-Type") == "":
            # a passed-through answer that has none: aiohttp would invent one
            del response.headers["Content-Type"]
        if not _is_cross(request) or self.refuses(request):
            return
        if "*" in self._allowed:
            response.headers["Access-Control-Allow-Origin"] = "*"
        else:
            response.headers["Access-Control-Allow-Origin"] = request.headers["Origin"]
            response.headers["Vary"] = "Origin"


def _is_cross(request: web.Request) -> bool:
    origin, host = request.headers.get("Origin"), request.headers.get("Host", "")
    return origin is not None and origin not in (f"http://{host}", f"https://{host}")


def _preflight(request: web.Request) -> web.Response:
    response = web.Response(status=204)
    if _is_cross(request):
        response.headers["Access-Control-Allow-Methods"] = _METHODS
        response.headers["Access-Control-Allow-Headers"] = ",".join(_HEADERS)
        response.headers["Access-Control-Max-Age"] = "43200"
    return response
