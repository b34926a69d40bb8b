"""The loaded models: load on demand, one at a time, keep_alive, eviction (contract 9).

A request holds a `Lease` on a loaded model. Loads pass one FIFO lock; while a load waits for room
the model it wants to evict takes no new requests, so it does become idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from ollama_spec import names, paths
from ollama_spec.config import Config
from ollama_spec.errors import StartFailed
from ollama_spec.runner import argv, keepalive, room
from ollama_spec.runner.apierror import ApiError, NotStarted
from ollama_spec.runner.binary import Binary
from ollama_spec.runner.child import Child, Launch
from ollama_spec.runner.client import RunnerClient
from ollama_spec.runner.drafting import Drafting

log = logging.getLogger(__name__)

BUSY = "server busy, please try again.  maximum pending requests exceeded"
MEDIA_MARKER = "<__ollama_spec_media__>"
_BACKOFF_LIMIT = 30.0  # seconds
_numbers = itertools.count(1)

Key = tuple[str, str, str, str]


class Loaded:
    """A model that serves, and who uses it.

    `wanted`: as it was asked for; `num_ctx`: what it runs with, less where memory was short.
    """

    def __init__(
        self, key: Key, wanted: argv.Wanted, num_ctx: int, child: Child, binary: Binary
    ) -> None:
        self.key = key
        self.wanted = wanted
        self.num_ctx = num_ctx
        self.child = child
        self.binary = binary
        self.keep_alive = 0.0
        self.in_flight = 0
        self.retiring = False
        self.expires_at = 0.0  # seconds since the epoch
        self.slots = asyncio.Semaphore(wanted.parallel)
        self.idle = asyncio.Event()
        self.idle.set()
        self.timer: asyncio.TimerHandle | None = None
        self.drafting = Drafting(wanted.spec_type)

    @property
    def usable(self) -> bool:
        return self.child.state == "ready" and not self.retiring


class OutOfMemory(ApiError):
    def __init__(self, wanted: argv.Wanted, free: int, said: str) -> None:
        super().__init__(
            500,
            f"out of memory: about {room.gib(room.needed(wanted))} are needed with num_ctx "
            f"{wanted.num_ctx}, {room.gib(free)} are free ({said})",
        )


class Lease:
    """One request's hold on a loaded model."""

    def __init__(self, loaded: Loaded, idle_timeout: float) -> None:
        self.loaded = loaded
        self.client = RunnerClient(loaded.child, idle_timeout)
        self.num_ctx = loaded.num_ctx
        self.binary = loaded.binary


class Pool:
    """`empty_ollama`: asks the real Ollama to unload everything and waits until it has."""

    def __init__(
        self,
        config: Config,
        find_binary: Callable[[], Binary],
        empty_ollama: Callable[[], Awaitable[None]],
    ) -> None:
        self._config = config
        self._find_binary = find_binary
        self._empty_ollama = empty_ollama
        self._default_keep_alive = keepalive.from_setting(config.keep_alive)
        self._models: dict[Key, Loaded] = {}
        self._failures: dict[Key, tuple[int, float]] = {}  # count, monotonic time of the last
        self._pending = 0
        self._loading = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()
        self._watching: set[asyncio.Task[None]] = set()

    def loaded(self) -> list[Loaded]:
        """The models that serve, the one kept longest first."""
        ready = [item for item in self._models.values() if item.child.state == "ready"]
        return sorted(ready, key=lambda item: item.expires_at, reverse=True)

    def find(self, name: str) -> Loaded | None:
        return self._models.get(names.parse(name).key)

    @contextlib.asynccontextmanager
    async def lease(self, wanted: argv.Wanted, keep_alive: float | None) -> AsyncIterator[Lease]:
        """Hold a model that runs as wanted, loading it first if need be.

        ApiError 503 when too many loads wait, NotStarted with the child's words when it does not
        start.
        """
        key = names.parse(wanted.record.name).key
        loaded = self._fresh(key, wanted)
        if loaded is None:
            loaded = await self._queue(key, wanted)
        else:
            self._take(loaded)
        if keep_alive is not None:
            loaded.keep_alive = keep_alive
        if loaded.expires_at < time.time() + loaded.keep_alive:
            loaded.expires_at = _after(loaded.keep_alive)
        try:
            yield Lease(loaded, self._config.stream_idle_timeout)
        finally:
            self._give_back(loaded)

    def answered(self, loaded: Loaded) -> None:
        """A model that has answered starts without delay the next time."""
        self._failures.pop(loaded.key, None)

    def unload(self, name: str) -> None:
        """Take the model out as soon as nobody uses it; nothing happens if it is not loaded."""
        loaded = self.find(name)
        if loaded is None:
            return
        loaded.keep_alive = 0
        loaded.expires_at = time.time()
        loaded.retiring = True
        if loaded.in_flight == 0:
            self._end(loaded)

    async def close(self) -> None:
        """End every child; returns when all are gone."""
        for loaded in list(self._models.values()):
            self._end(loaded)
        await asyncio.gather(*self._ending, *self._watching)

    def _fresh(self, key: Key, wanted: argv.Wanted) -> Loaded | None:
        loaded = self._models.get(key)
        return loaded if loaded and loaded.usable and loaded.wanted == wanted else None

    def _take(self, loaded: Loaded) -> None:
        loaded.in_flight += 1
        loaded.idle.clear()
        if loaded.timer:
            loaded.timer.cancel()
            loaded.timer = None

    def _give_back(self, loaded: Loaded) -> None:
        loaded.in_flight -= 1
        if loaded.in_flight:
            return
        loaded.idle.set()
        loaded.expires_at = _after(loaded.keep_alive)
        if self._models.get(loaded.key) is not loaded:
            return
        if loaded.keep_alive <= 0 or loaded.retiring:
            self._end(loaded)
        elif loaded.keep_alive != keepalive.FOREVER:
            loop = asyncio.get_running_loop()
            loaded.timer = loop.call_later(loaded.keep_alive, self._expire, loaded)

    def _expire(self, loaded: Loaded) -> None:
        if loaded.in_flight == 0:
            log.info("%s was idle: unloading", loaded.wanted.record.name)
            self._end(loaded)

    def _end(self, loaded: Loaded) -> None:
        """Out of the table now; the process ends in the background, and loads wait for it."""
        if self._models.get(loaded.key) is loaded:
            del self._models[loaded.key]
        loaded.retiring = True
        if loaded.timer:
            loaded.timer.cancel()
        loaded.child.stop()
        task = asyncio.create_task(loaded.child.gone())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _queue(self, key: Key, wanted: argv.Wanted) -> Loaded:
        if self._pending >= self._config.max_queue:
            raise ApiError(503, BUSY)
        self._pending += 1
        try:
            async with self._loading:
                loaded = self._fresh(key, wanted) or await self._load(key, wanted)
                self._take(loaded)
                return loaded
        finally:
            self._pending -= 1

    async def _load(self, key: Key, wanted: argv.Wanted) -> Loaded:
        try:
            binary = await asyncio.to_thread(self._find_binary)
            return await self._start(key, wanted, binary)
        except ApiError as error:
            raise NotStarted(error) from error
        except StartFailed as error:
            raise NotStarted(ApiError(500, f"{error.message}; {error.hint}")) from error

    async def _start(self, key: Key, wanted: argv.Wanted, binary: Binary) -> Loaded:
        old = self._models.get(key)
        if old:
            await self._retire(old)
        while len(self._models) >= self._config.max_loaded_models:
            await self._retire(self._victim())
        if self._ending:
            await asyncio.wait(set(self._ending))
        await self._make_room(wanted)
        await asyncio.sleep(self._delay(key))
        started = time.monotonic()
        try:
            child, num_ctx = await self._fitting_child(binary, wanted)
        except ApiError:
            self._note_failure(key)
            raise
        name = wanted.record.name
        if wanted.record.template:
            log.warning(
                "%s: its TEMPLATE is Go's, which only Ollama runs; the GGUF's is used", name
            )
        log.info("%s is ready after %.1f s (pid %s)", name, time.monotonic() - started, child.pid)
        loaded = Loaded(key, wanted, num_ctx, child, binary)
        loaded.keep_alive = self._default_keep_alive
        self._models[key] = loaded
        watch = asyncio.create_task(self._watch(loaded))
        self._watching.add(watch)
        watch.add_done_callback(self._watching.discard)
        return loaded

    async def _make_room(self, wanted: argv.Wanted) -> None:
        """Models of ours go one by one, then those of Ollama, as long as memory is short."""
        need = room.needed(wanted)
        while need > await asyncio.to_thread(room.free, wanted):
            if self._models:
                await self._retire(self._victim())
                continue
            log.info("%s needs %s: asking Ollama to unload", wanted.record.name, room.gib(need))
            await self._empty_ollama()
            return

    async def _fitting_child(self, binary: Binary, wanted: argv.Wanted) -> tuple[Child, int]:
        """A child that serves, and its context; after running out of memory with less of it, and
        at last with all the memory that others give up."""
        for way in (wanted, *room.smaller(wanted)):
            try:
                return await self._child(binary, way), way.num_ctx
            except OutOfMemory as error:
                log.warning("%s: %s", wanted.record.name, error.message)
        while self._models:
            await self._retire(self._victim())
        await self._empty_ollama()
        return await self._child(binary, wanted), wanted.num_ctx

    async def _child(self, binary: Binary, wanted: argv.Wanted) -> Child:
        child = Child(self._launch(binary, wanted), self._config.load_timeout)
        try:
            await child.ready()
        except BaseException as error:
            # also when the only client that wanted it has gone: nobody else may pay for the load
            child.stop()
            await child.gone()
            if isinstance(error, ApiError) and child.log.out_of_memory():
                free = await asyncio.to_thread(room.free, wanted)
                raise OutOfMemory(wanted, free, error.message) from error
            raise
        return child

    async def _watch(self, loaded: Loaded) -> None:
        """Forget a child that ended by itself."""
        await loaded.child.gone()
        if loaded.child.state == "failed":
            self._note_failure(loaded.key)
        if self._models.get(loaded.key) is loaded:
            self._end(loaded)

    async def _retire(self, loaded: Loaded) -> None:
        loaded.retiring = True
        await loaded.idle.wait()
        if self._models.get(loaded.key) is loaded:
            self._end(loaded)
        await loaded.child.gone()

    def _victim(self) -> Loaded:
        """Idle ones first, then by shortest keep-alive, then by path (contract 9.3)."""
        return min(
            self._models.values(),
            key=lambda item: (
                item.in_flight > 0,
                item.keep_alive,
                str(item.wanted.record.target.path),
            ),
        )

    def _note_failure(self, key: Key) -> None:
        count = self._failures.get(key, (0, 0.0))[0]
        self._failures[key] = (count + 1, time.monotonic())

    def _delay(self, key: Key) -> float:
        """Seconds to wait before a start: none after a first failure, then doubling."""
        count, last = self._failures.get(key, (0, 0.0))
        if count < 2:
            return 0.0
        pause = min(0.5 * float(1 << min(count - 2, 10)), _BACKOFF_LIMIT)
        return max(0.0, last + pause - time.monotonic())

    def _launch(self, binary: Binary, wanted: argv.Wanted) -> Launch:
        address = _socket_path() if binary.unix_socket else f"127.0.0.1:{_free_port()}"
        libraries = [str(binary.path.parent), os.environ.get("LD_LIBRARY_PATH", "")]
        return Launch(
            argv=tuple(argv.server_argv(binary, wanted, address)),
            address=address,
            model=wanted.record.name,
            log_path=paths.state_dir() / "logs" / f"{_file_name(wanted.record.name)}.log",
            env={
                "LD_LIBRARY_PATH": ":".join(part for part in libraries if part),
                "LLAMA_MEDIA_MARKER": MEDIA_MARKER,
            },
        )


def _after(seconds: float) -> float:
    # Ollama's "forever" is about 292 years ahead; clients only compare with 20 years.
    return time.time() + min(seconds, 2**63 / 1e9)


def _file_name(model: str) -> str:
    return "".join(part if part.isalnum() or part in "-._" else "_" for part in model)


def _socket_path() -> str:
    folder = paths.ensure(paths.runtime_dir(), 0o700)
    path = folder / f"{os.getpid()}-{next(_numbers)}.sock"
    Path(path).unlink(missing_ok=True)
    return str(path)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
