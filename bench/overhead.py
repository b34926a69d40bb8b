"""What a layer costs: one llama-server asked directly, through us, and through the real Ollama.

    python bench/overhead.py [--quick] [--json]

Three parts, each with the same llama-server program behind all three. They are asked in turn, round
by round, so that other work on the machine hits all alike.

real   SmolLM2-135M on one thread, greedy, prompt in the cache; one stream at a time
paced  a server that computes nothing (scripted_server.py), a token every 5 ms: the same without
       the noise of computing
fast   the same as fast as it goes, 64 streams at once: the layers are what takes the time

`first_ms`: to the first token. `token_ms`: between tokens. `added_`: median over the rounds of the
difference to direct in the same round. `cpu_us`: processor time of the layer's process per token.
`rss_mb`: its memory after the rounds. `rate`: tokens per second of all streams together.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil
from load_client import Timing, ask

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from fixtures.real import REAL_CACHE  # noqa: E402
from real_ollama import install, servers  # noqa: E402

from ollama_spec import demo_model  # noqa: E402
from ollama_spec.profiles import WeightFile  # noqa: E402
from ollama_spec.store import ModelRecord, ModelStore  # noqa: E402

MESSAGES = [{"role": "user", "content": "Count from one to a hundred in words."}]
SCRIPTED = Path(__file__).with_name("scripted_server.py")
STREAMS = 64


@dataclass(frozen=True)
class Route:
    """One way to the model; `pid`: the layer's own process."""

    name: str
    url: str
    pid: int | None
    native: bool  # speaks Ollama's API, not llama-server's

    async def ask(self, tokens: int) -> Timing:
        if self.native:
            options = {"temperature": 0, "num_predict": tokens}
            body: dict[str, Any] = {"model": "smol", "messages": MESSAGES, "options": options}
            return await ask(self.url, "/api/chat", body)
        body = {"messages": MESSAGES, "stream": True, "temperature": 0, "n_predict": tokens}
        return await ask(self.url, "/v1/chat/completions", body)

    def cpu(self) -> float:
        """Seconds of processor time so far."""
        if self.pid is None:
            return 0.0
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def rss_mb(self) -> float:
        return psutil.Process(self.pid).memory_info().rss / 1e6 if self.pid else 0.0


Table = dict[str, dict[str, float]]


async def one_by_one(routes: list[Route], rounds: int, tokens: int) -> Table:
    """One stream at a time."""
    for route in routes:
        await route.ask(4)  # loads the model, fills the prompt cache
    timings: dict[str, list[Timing]] = {route.name: [] for route in routes}
    spent = dict.fromkeys(timings, 0.0)
    for number in range(rounds):
        for route in routes[number % 3 :] + routes[: number % 3]:
            before = route.cpu()
            timings[route.name].append(await route.ask(tokens))
            spent[route.name] += route.cpu() - before
    table: Table = {}
    for route in routes:
        own, direct = timings[route.name], timings["direct"]
        pairs = list(zip(own, direct, strict=True))
        count = sum(item.tokens for item in own)
        assert count == sum(item.tokens for item in direct), "the answers differ in length"
        table[route.name] = {
            "first_ms": 1e3 * statistics.median(item.first for item in own),
            "added_first_ms": 1e3 * statistics.median(a.first - b.first for a, b in pairs),
            "token_ms": 1e3 * statistics.median(item.per_token for item in own),
            "added_token_ms": 1e3 * statistics.median(a.per_token - b.per_token for a, b in pairs),
            "cpu_us": 1e6 * spent[route.name] / count,
            "rss_mb": route.rss_mb(),
        }
    return table


async def all_at_once(routes: list[Route], rounds: int, tokens: int) -> Table:
    """64 streams; every one must get all its tokens."""
    rates: dict[str, list[float]] = {route.name: [] for route in routes}
    firsts: dict[str, list[float]] = {route.name: [] for route in routes}
    spent = dict.fromkeys(rates, 0.0)
    for number in range(rounds):
        for route in routes[number % 3 :] + routes[: number % 3]:
            before, started = route.cpu(), perf_counter()
            many = await asyncio.gather(*(route.ask(tokens) for _ in range(STREAMS)))
            took = perf_counter() - started
            assert all(item.tokens == tokens for item in many), "tokens were lost"
            rates[route.name].append(STREAMS * tokens / took)
            firsts[route.name] += [item.first for item in many]
            spent[route.name] += route.cpu() - before
    return {
        route.name: {
            "rate": statistics.median(rates[route.name]),
            "first_ms": 1e3 * statistics.median(firsts[route.name]),
            "cpu_us": 1e6 * spent[route.name] / (STREAMS * tokens * rounds),
            "rss_mb": route.rss_mb(),
        }
        for route in routes
    }


@contextmanager
def routes_over(tree: Path, base: Path, *, parallel: int, **script: str) -> Iterator[list[Route]]:
    """Direct, us and Ollama, each with a process of its own of the tree's llama-server.

    `script`: the environment of all of them.
    """
    with ExitStack() as stack:
        homes = {name: base / name for name in ("ollama", "sidecar", "direct")}
        for home in homes.values():
            home.mkdir(parents=True)
        model = demo_model.target(REAL_CACHE / "models")
        settings = {"OLLAMA_GO_TEMPLATE": "0", "OLLAMA_NUM_PARALLEL": str(parallel), **script}
        ollama = stack.enter_context(servers.ollama(tree, homes["ollama"], **settings))
        servers.create(ollama, "smol", model, parameters={"num_thread": 1})
        blob = ollama.blob("smol")
        record = ModelRecord(
            name="smol",
            target=WeightFile(path=blob, size=blob.stat().st_size),
            parameters={"num_thread": 1},
        )
        ModelStore(homes["sidecar"] / "data/ollama-spec/models").put(record)
        more = {"OLLAMA_SPEC_NUM_PARALLEL": str(parallel), **script}
        ours = stack.enter_context(
            servers.sidecar(homes["sidecar"], ollama.runner, ollama.url, **more)
        )
        port, log = servers.free_port(), homes["direct"] / "log"
        argv = [
            str(ollama.runner),
            "--model",
            str(blob),
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ]
        argv += ["-c", "4096", "-np", "1", "-t", "1", "-b", "512", "-ub", "512"]
        env = servers.clean_environment(homes["direct"]) | script
        process = stack.enter_context(servers.running([*argv, "--offline"], env, log))
        url = f"http://127.0.0.1:{port}"
        servers.wait_until_ok(f"{url}/health", process, log)
        yield [
            Route("direct", url, None, native=False),
            Route("ollama-spec", ours.url, ours.pid, native=True),
            Route("ollama", ollama.url, ollama.pid, native=True),
        ]


def scripted_tree(tree: Path, base: Path) -> Path:
    """The same Ollama with the scripted server as its llama-server."""
    libraries = base / "tree" / "lib" / "ollama"
    libraries.mkdir(parents=True)
    shutil.copytree(tree / "bin", base / "tree" / "bin")
    server = libraries / "llama-server"
    for entry in (tree / "lib" / "ollama").iterdir():
        if entry.name != server.name:
            (libraries / entry.name).symlink_to(entry)
    server.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {SCRIPTED} "$@"\n')
    server.chmod(0o755)
    return base / "tree"


def measure(*, quick: bool) -> dict[str, Table]:
    tree = install.installed(REAL_CACHE)
    report: dict[str, Table] = {}
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        with routes_over(tree, base / "real", parallel=1) as routes:
            report["real"] = asyncio.run(one_by_one(routes, 6 if quick else 40, 32))
        scripted = scripted_tree(tree, base)
        tokens = 32
        script = {"SCRIPTED_TOKENS": str(tokens), "SCRIPTED_STEP_MS": "5"}
        with routes_over(scripted, base / "paced", parallel=1, **script) as routes:
            report["paced"] = asyncio.run(one_by_one(routes, 15 if quick else 100, tokens))
        tokens = 128 if quick else 512
        script = {"SCRIPTED_TOKENS": str(tokens)}
        with routes_over(scripted, base / "fast", parallel=STREAMS, **script) as routes:
            report["fast"] = asyncio.run(all_at_once(routes, 3 if quick else 9, tokens))
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="about a minute instead of several")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    report = measure(quick=options.quick)
    if options.json:
        print(json.dumps(report))
        return
    for title, table in report.items():
        print(f"{title:14}" + "".join(f"{key:>16}" for key in table["direct"]))
        for name, values in table.items():
            print(f"  {name:12}" + "".join(f"{value:16.3f}" for value in values.values()))


if __name__ == "__main__":
    main()
