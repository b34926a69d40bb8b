"""One llama-server process, from start to end.

DESIGN. Each child has ONE owner task (`_own`) and only that task changes its state. Callers ask
(`stop`) or wait (`ready`, `gone`); they never act on a state they have read. A child is used once:
a restart is a new Child, made by the pool.

    starting --healthy--> ready --stop--> stopping --> stopped
        |                   |
        +----- exit --------+----------------------> failed (with the error's text)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import aiohttp

from ollama_spec.runner import orphans
from ollama_spec.runner.apierror import ApiError
from ollama_spec.runner.childlog import ChildLog

log = logging.getLogger(__name__)

State = Literal["starting", "ready", "stopping", "stopped", "failed"]
_LAUNCHER = Path(__file__).with_name("launch.py")
_POLL = 0.1  # seconds between two looks at /health
_TERM_GRACE = 3.0  # seconds between TERM and KILL


@dataclass(frozen=True)
class Launch:
    """How to start a child: the command, where it listens, and what it is for."""

    argv: tuple[str, ...]
    address: str  # path of a Unix socket, or host:port
    model: str
    log_path: Path
    env: dict[str, str] = field(default_factory=dict)


class Child:
    def __init__(self, launch: Launch, load_timeout: float) -> None:
        self.launch = launch
        self.state: State = "starting"
        self.log = ChildLog(launch.log_path)
        self.pid: int | None = None
        self.error: str | None = None
        self._load_timeout = load_timeout
        self._stop = asyncio.Event()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.session = self._session()
        self._task = asyncio.create_task(self._own(), name=f"owner of {launch.model}")

    @property
    def url(self) -> str:
        return "http://runner" if self._is_unix else f"http://{self.launch.address}"

    @property
    def _is_unix(self) -> bool:
        return self.launch.address.startswith("/")

    def _session(self) -> aiohttp.ClientSession:
        # A connection per request, as Ollama does: an idle one may be closed under our feet.
        connector: aiohttp.BaseConnector
        if self._is_unix:
            connector = aiohttp.UnixConnector(self.launch.address, limit=0, force_close=True)
        else:
            connector = aiohttp.TCPConnector(limit=0, force_close=True)
        return aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
        )

    async def ready(self) -> None:
        """Wait until it serves; ApiError with the child's own words if it never will."""
        await asyncio.shield(self._ready)

    def stop(self) -> None:
        """Ask it to end; returns at once."""
        self._stop.set()

    async def gone(self) -> None:
        """Wait until the process and all it held is gone."""
        await asyncio.shield(self._task)

    async def settle(self, limit: float = 1.0) -> None:
        """After a broken connection: give the owner a moment to see that the process ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await self.gone()

    async def _own(self) -> None:
        process: asyncio.subprocess.Process | None = None
        record: Path | None = None
        try:
            process = await self._spawn()
            self.pid = process.pid
            record = orphans.write(
                process.pid,
                Path(self.launch.argv[0]),
                self.launch.address,
                self.launch.model,
            )
            await self._live(process)
        except ApiError as error:
            self._fail(error.message)
        except Exception as error:
            log.exception("owner of %s", self.launch.model)
            self._fail(f"internal error: {error}")
        finally:
            if process is not None:
                await _end(process)
            await self.session.close()
            self._tidy(record)
            if self.state != "failed":
                self.state = "stopped"
            if not self._ready.done():
                self._ready.set_exception(ApiError(499, "request canceled"))
            self._ready.exception() if not self._ready.cancelled() else None

    def _tidy(self, record: Path | None) -> None:
        if record is not None:
            record.unlink(missing_ok=True)
        if self._is_unix:
            Path(self.launch.address).unlink(missing_ok=True)

    async def _spawn(self) -> asyncio.subprocess.Process:
        command = [sys.executable, "-I", "-S", str(_LAUNCHER), str(os.getpid()), *self.launch.argv]
        descriptor = os.open(self.launch.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            return await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                env={**os.environ, **self.launch.env},
                start_new_session=True,
            )
        except OSError as error:
            raise ApiError(500, f"error starting llama-server: {error}") from error
        finally:
            os.close(descriptor)

    async def _live(self, process: asyncio.subprocess.Process) -> None:
        exited = asyncio.create_task(process.wait())
        stop = asyncio.create_task(self._stop.wait())
        healthy = asyncio.create_task(self._healthy())
        try:
            await asyncio.wait({exited, stop, healthy}, return_when=asyncio.FIRST_COMPLETED)
            if healthy.done() and not exited.done() and not stop.done():
                healthy.result()
                self.state = "ready"
                self._ready.set_result(None)
                await asyncio.wait({exited, stop}, return_when=asyncio.FIRST_COMPLETED)
            if stop.done():
                self.state = "stopping"
            else:
                self._fail(self._exit_text(exited.result()))
        finally:
            for task in (exited, stop, healthy):
                task.cancel()
            await asyncio.gather(exited, stop, healthy, return_exceptions=True)

    async def _healthy(self) -> None:
        """Returns when /health says ok; ApiError after `load_timeout` without a sign of life."""
        loop = asyncio.get_running_loop()
        seen, since = self.log.size(), loop.time()
        while not await self._answers_ok():
            size = self.log.size()
            if size != seen:
                seen, since = size, loop.time()
            if loop.time() - since > self._load_timeout:
                captured = self.log.errors() or self.log.last_lines()
                raise ApiError(500, f"timed out waiting for llama-server to start - {captured}")
            await asyncio.sleep(_POLL)

    async def _answers_ok(self) -> bool:
        try:
            async with self.session.get(
                f"{self.url}/health", timeout=aiohttp.ClientTimeout(total=2)
            ) as response:
                return response.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    def _exit_text(self, code: int) -> str:
        how = f"signal: {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        captured = self.log.errors() or self.log.last_lines()
        text = f"llama-server process has terminated: {how}"
        return f"{text}: {captured}" if captured else text

    def _fail(self, message: str) -> None:
        self.state = "failed"
        self.error = message
        if not self._ready.done():
            self._ready.set_exception(ApiError(500, message))
        log.error("%s: %s", self.launch.model, message)


async def _end(process: asyncio.subprocess.Process) -> None:
    """TERM, a grace period, KILL: always to the whole group, so no grandchild is left."""
    if process.returncode is None:
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TERM_GRACE):
                await process.wait()
    _signal_group(process.pid, signal.SIGKILL)
    if process.returncode is None:
        await process.wait()


def _signal_group(pid: int, number: int) -> None:
    # The group outlives its leader as long as any member does, so this also reaches grandchildren.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
