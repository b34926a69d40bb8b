"""Run the private Ollama and stand before it: all passes, answers of our models get receipts."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from ollama_spec import names, output, paths
from ollama_spec.errors import StartFailed
from ollama_spec.runner import attach_receipts as receipts
from ollama_spec.runner import decode
from ollama_spec.runner.apierror import ApiError
from ollama_spec.runner.daemon import listen
from ollama_spec.runner.passthrough import Unreachable, Upstream

log = logging.getLogger(__name__)

_LAUNCHER = Path(__file__).with_name("launch.py")
_START_SECONDS = 60


@dataclass(frozen=True)
class Attached:
    """What to run: the tree, the user's store, and the trace of each model of ours by its key."""

    tree: Path
    models: Path
    traces: dict[tuple[str, str, str, str], Path]
    build: str


def serve(attached: Attached, host: str, ready_file: Path | None = None) -> int:
    """Serve until SIGTERM or SIGINT; StartFailed when the private Ollama does not come up."""
    listener = listen(host)
    try:
        return asyncio.run(_serve(attached, listener, ready_file))
    finally:
        listener.close()
        if ready_file:
            ready_file.unlink(missing_ok=True)


async def _serve(attached: Attached, listener: socket.socket, ready_file: Path | None) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with _ollama(attached) as (process, upstream):
        front = _Front(attached, upstream)
        app = web.Application(client_max_size=2**40)
        app.router.add_route("*", "/{path:.*}", front.handle)
        runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, auto_decompress=False
        )
        await runner.setup()
        await web.SockSite(runner, listener).start()
        address = listener.getsockname()
        url = f"http://{address[0]}:{address[1]}"
        output.note(f"attached: {url} is your Ollama with our runner in it")
        if ready_file:
            text = json.dumps({"url": url, "pid": os.getpid()})
            paths.atomic_write(ready_file, text.encode())
        ended = asyncio.create_task(process.wait())
        stop = asyncio.create_task(stopping.wait())
        await asyncio.wait({ended, stop}, return_when=asyncio.FIRST_COMPLETED)
        await runner.cleanup()
        if not stop.done():
            raise StartFailed(
                f"the private Ollama ended with {process.returncode}",
                hint=f"its log is {_log_path()}",
            )
    return 0


def _log_path() -> Path:
    return paths.ensure(paths.state_dir() / "logs") / "attach.log"


@asynccontextmanager
async def _ollama(
    attached: Attached,
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, Upstream]]:
    """The private Ollama on a port of its own; gone, with its runners, on leaving."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    # It shares the user's store: tidying up there is the business of the user's own Ollama.
    env = {**os.environ, "OLLAMA_HOST": address, "OLLAMA_MODELS": str(attached.models)}
    env["OLLAMA_NOPRUNE"] = "1"
    program = str(attached.tree / "bin" / "ollama")
    command = [sys.executable, "-I", "-S", str(_LAUNCHER), str(os.getpid()), program, "serve"]
    with _log_path().open("ab") as stream:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=stream, stderr=stream, env=env, start_new_session=True
        )
    upstream = Upstream(f"http://{address}")
    try:
        await _until_up(process, upstream)
        yield process, upstream
    finally:
        await upstream.close()
        if process.returncode is None:
            process.terminate()  # Ollama ends its runners itself
            try:
                await asyncio.wait_for(process.wait(), 10)
            except TimeoutError:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()


async def _until_up(process: asyncio.subprocess.Process, upstream: Upstream) -> None:
    for _ in range(_START_SECONDS * 10):
        if process.returncode is not None:
            break
        if await upstream.get_json("/api/version"):
            return
        await asyncio.sleep(0.1)
    raise StartFailed("the private Ollama did not start", hint=f"its log is {_log_path()}")


class _Front:
    def __init__(self, attached: Attached, upstream: Upstream) -> None:
        self._attached = attached
        self._upstream = upstream

    async def handle(self, request: web.Request) -> web.StreamResponse:
        try:
            if request.method != "POST" or request.path not in receipts.ROUTES:
                return await self._upstream.forward(request)
            body = await request.read()
            trace = self._trace(body)
            if trace is None:
                return await self._upstream.forward(request, body)
            mark = receipts.size(trace)
            return await self._upstream.forward(
                request, body, lambda line: self._line(request.path, line, trace, mark)
            )
        except Unreachable:
            text = json.dumps({"error": "the private Ollama does not answer"})
            return web.Response(status=502, text=text, content_type="application/json")

    def _trace(self, body: bytes) -> Path | None:
        try:
            reference = names.parse_reference(str(decode.parse(body).get("model", "")))
            return self._attached.traces.get(names.parse(reference.base).key)
        except (ApiError, names.InvalidName):
            return None

    def _line(self, route: str, line: bytes, trace: Path, mark: int) -> bytes:
        if not receipts.is_last(route, line):
            return line
        rounds = receipts.rounds_since(trace, mark)
        return receipts.with_receipt(line, receipts.receipt(rounds, self._attached.build))
