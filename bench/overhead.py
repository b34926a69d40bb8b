"""What a layer costs: one llama-server asked directly, through us, and through the real Ollama.

    python bench/overhead.py [--quick] [--json]

The same model (SmolLM2-135M), the same llama-server binary, one thread, greedy, cached prompt; the
three are asked in turn, so that other work on the machine hits all alike. Reported per path: median
time to first token, median time per token, both in ms, and the CPU time and memory of the layer
itself. `added` is the difference to direct. Then 16 streams at once (4 with --quick): total rate.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from fixtures.real import REAL_CACHE  # noqa: E402
from real_ollama import install, servers  # noqa: E402

from ollama_spec import demo_model  # noqa: E402
from ollama_spec.profiles import WeightFile  # noqa: E402
from ollama_spec.store import ModelRecord, ModelStore  # noqa: E402

MESSAGES = [{"role": "user", "content": "Count from one to a hundred in words."}]


@dataclass(frozen=True)
class Route:
    """One way to the model; `pid`: the layer's own process."""

    name: str
    url: str
    pid: int | None
    native: bool  # speaks Ollama's API, not llama-server's


@dataclass(frozen=True)
class Timing:
    first: float  # seconds to the first token
    per_token: float  # seconds
    tokens: int


async def ask(session: aiohttp.ClientSession, path: Route, tokens: int) -> Timing:
    """One streamed answer, timed at the client."""
    if path.native:
        body: dict[str, Any] = {"model": "smol", "messages": MESSAGES}
        body["options"] = {"temperature": 0, "num_predict": tokens}
        address = f"{path.url}/api/chat"
    else:
        body = {"messages": MESSAGES, "stream": True, "temperature": 0, "n_predict": tokens}
        body["cache_prompt"] = True
        address = f"{path.url}/v1/chat/completions"
    started, times = time.perf_counter(), []
    async with session.post(address, json=body) as reply:
        reply.raise_for_status()
        async for line in reply.content:
            if b'"content":"' in line and b'"content":""' not in line:
                times.append(time.perf_counter())
    per_token = (times[-1] - times[0]) / max(len(times) - 1, 1)
    return Timing(times[0] - started, per_token, len(times))


def cpu(path: Route) -> float:
    if path.pid is None:
        return 0.0
    times = psutil.Process(path.pid).cpu_times()
    return float(times.user + times.system)


async def measure(paths: list[Route], rounds: int, tokens: int, streams: int) -> dict[str, Any]:
    results: dict[str, list[Timing]] = {path.name: [] for path in paths}
    report: dict[str, Any] = {}
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for path in paths:
            await ask(session, path, 4)  # loads the model, fills the prompt cache
        before = {path.name: cpu(path) for path in paths}
        for _ in range(rounds):
            for path in paths:
                results[path.name].append(await ask(session, path, tokens))
        for path in paths:
            timings = results[path.name]
            count = sum(item.tokens for item in timings)
            report[path.name] = {
                "first_ms": 1000 * statistics.median(item.first for item in timings),
                "per_token_ms": 1000 * statistics.median(item.per_token for item in timings),
                "cpu_ms_per_token": 1000 * (cpu(path) - before[path.name]) / count,
                "memory_mb": psutil.Process(path.pid).memory_info().rss / 1e6 if path.pid else 0,
            }
        for path in paths:
            started = time.perf_counter()
            many = await asyncio.gather(*(ask(session, path, tokens) for _ in range(streams)))
            total = sum(item.tokens for item in many)
            report[path.name]["total_rate"] = total / (time.perf_counter() - started)
    for path in paths:
        own, direct = report[path.name], report["direct"]
        for key in ("first_ms", "per_token_ms"):
            own[f"added_{key}"] = own[key] - direct[key]
    return report


@contextmanager
def all_paths() -> Iterator[list[Route]]:
    tree = install.installed(REAL_CACHE)
    model = demo_model.target(REAL_CACHE / "models")
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        homes = {name: base / name for name in ("ollama", "sidecar", "direct")}
        for home in homes.values():
            home.mkdir()
        settings = {"OLLAMA_GO_TEMPLATE": "0"}
        ollama = stack.enter_context(servers.ollama(tree, homes["ollama"], **settings))
        servers.create(ollama, "smol", model, parameters={"num_thread": 1})
        blob = ollama.blob("smol")
        record = ModelRecord(
            name="smol",
            target=WeightFile(path=blob, size=blob.stat().st_size),
            parameters={"num_thread": 1},
        )
        ModelStore(homes["sidecar"] / "data/ollama-spec/models").put(record)
        ours = stack.enter_context(servers.sidecar(homes["sidecar"], ollama.runner, ollama.url))
        port, log = servers.free_port(), homes["direct"] / "log"
        argv = [str(ollama.runner), "--model", str(blob), "--port", str(port), "-c", "4096"]
        argv += ["-np", "1", "-t", "1", "-b", "512", "-ub", "512", "--no-webui", "--offline"]
        env = servers.clean_environment(homes["direct"])
        process = stack.enter_context(servers.running(argv, env, log))
        url = f"http://127.0.0.1:{port}"
        servers.wait_until_ok(f"{url}/health", process, log)
        yield [
            Route("direct", url, None, native=False),
            Route("ollama-spec", ours.url, ours.pid, native=True),
            Route("ollama", ollama.url, ollama.pid, native=True),
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rounds, tokens, streams = (5, 16, 4) if options.quick else (20, 64, 16)
    with all_paths() as paths:
        report = asyncio.run(measure(paths, rounds, tokens, streams))
    if options.json:
        print(json.dumps(report))
        return
    keys = list(report["direct"])
    print(f"{'':12}" + "".join(f"{key:>20}" for key in keys))
    for name, values in report.items():
        print(f"{name:12}" + "".join(f"{values[key]:20.2f}" for key in keys))


if __name__ == "__main__":
    main()
