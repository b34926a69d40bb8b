"""Run the sidecar until it is told to stop."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import logging
import os
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import uvloop
from aiohttp import web

from ollama_spec import output, paths
from ollama_spec.config import Config
from ollama_spec.errors import ConfigError, PortInUse, RunnerError
from ollama_spec.runner import binary, orphans
from ollama_spec.runner.app import Front
from ollama_spec.runner.passthrough import Upstream
from ollama_spec.runner.pool import Pool
from ollama_spec.runner.rates import Rates
from ollama_spec.runner.request import Services
from ollama_spec.store import ModelStore

log = logging.getLogger(__name__)


def serve(config: Config, ready_file: Path | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code. Raises PortInUse, ConfigError.

    `ready_file`: gets `{"url": ..., "pid": ...}` once requests are answered.
    """
    listener = listen(config.host)
    try:
        orphans.sweep()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(config, listener, ready_file))
    finally:
        listener.close()
        if ready_file:
            ready_file.unlink(missing_ok=True)


def listen(host: str) -> socket.socket:
    """A listening socket for "HOST:PORT"; port 0 takes any free one."""
    name, _, port = host.removeprefix("http://").rstrip("/").rpartition(":")
    if not port.isdigit():
        raise ConfigError(f"host must be HOST:PORT, not {host!r}", hint="e.g. 127.0.0.1:11435")
    name = name.strip("[]") or "0.0.0.0"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            name, int(port), type=socket.SOCK_STREAM
        )[0]
    except (socket.gaierror, OverflowError) as error:
        raise ConfigError(f"cannot listen on {host}: {error}") from error
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(512)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"{host} is in use{_holder(int(port))}",
                hint="stop that program or choose another address with --host",
            ) from error
        raise RunnerError(f"cannot listen on {host}: {error.strerror}") from error
    return listener


def _holder(port: int) -> str:
    """ " by NAME (pid N)" where the system tells us."""
    try:
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == "LISTEN" and (*connection.laddr, 0, 0)[1] == port
            if listens and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        pass
    return ""


async def _serve(config: Config, listener: socket.socket, ready_file: Path | None) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with running(config, listener) as url:
        _announce(url, ready_file, config)
        await stopping.wait()
        notify("STOPPING=1")
    return 0


@asynccontextmanager
async def running(config: Config, listener: socket.socket) -> AsyncGenerator[str]:
    """The sidecar inside a running event loop; yields its URL, ends all children on leaving."""
    address = listener.getsockname()
    upstream = Upstream(config.upstream)
    pool = Pool(config, lambda: binary.find(config), upstream.unload_all)
    attached = Upstream(config.attached)
    front = Front(
        Services(config, pool, ModelStore(), upstream, Rates(config.compare_every)), attached
    )
    runner = web.AppRunner(
        front.app(loopback=ipaddress.ip_address(address[0]).is_loopback),
        handler_cancellation=True,
        auto_decompress=False,  # bodies are passed on as they came; /v1/* decodes zstd itself
        access_log=None,
        shutdown_timeout=2,
    )
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    try:
        await runner.setup()
        await web.SockSite(runner, listener).start()
        yield f"http://{host}:{address[1]}"
    finally:
        # Children first: an answer in progress ends at once instead of holding the server open.
        await pool.close()
        await runner.cleanup()
        await upstream.close()
        await attached.close()


def _announce(url: str, ready_file: Path | None, config: Config) -> None:
    behind = config.upstream or "no Ollama behind"
    output.note(f"ollama-spec serves on {url} ({behind})")
    if ready_file:
        paths.atomic_write(ready_file, json.dumps({"url": url, "pid": os.getpid()}).encode())
    notify("READY=1")


def notify(state: str) -> None:
    """Tell systemd (sd_notify protocol); nothing happens outside a unit."""
    target = os.environ.get("NOTIFY_SOCKET")
    if not target:
        return
    if target.startswith("@"):
        target = "\0" + target[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        try:
            channel.sendto(state.encode(), target)
        except OSError as error:
            log.warning("cannot notify systemd: %s", error)
