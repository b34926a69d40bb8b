"""A second opinion on a result of `ollama-spec bench --json`: a client that shares no code with it.

    python bench/independent.py RESULT.json --runner llama-server --target T.gguf --drafter D.gguf

Only the standard library. It starts the servers itself, asks the prompts of RESULT again with the
same settings and seeds, in an order of its own, reads the stream byte by byte and keeps its own
clock. The last line is one JSON object: speed and time to the first token by set and configuration,
and how far each lies from RESULT's.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import random
import socket
import statistics
import subprocess
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextlib.contextmanager
def server(*argv: str):
    port = free_port()
    command = [*argv, "--host", "127.0.0.1", "--port", str(port), "-np", "1", "--no-webui"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            if child.poll() is not None:
                raise SystemExit(f"server ended with {child.returncode}: {' '.join(command)}")
            with contextlib.suppress(OSError):
                if get(port, "/health") == 200:
                    break
            time.sleep(0.2)
        yield port
    finally:
        child.kill()
        child.wait()


def get(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", path)
    return connection.getresponse().status


def post(port: int, path: str, body: dict) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=900)
    data = json.dumps(body).encode()
    connection.request("POST", path, data, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    if reply.status != 200:
        raise SystemExit(f"HTTP {reply.status}: {reply.read()[:300]!r}")
    return reply


def templated(port: int, text: str) -> str:
    body = {"messages": [{"role": "user", "content": text}]}
    return json.load(post(port, "/apply-template", body))["prompt"]


class Asked(NamedTuple):
    first: float  # seconds to the first byte of text
    rest: float  # seconds from there to the last event
    tokens: int
    prefill: float  # seconds, as the server says


def ask(port: int, body: dict) -> Asked:
    start = time.monotonic()
    reply = post(port, "/completion", {**body, "stream": True, "cache_prompt": False})
    first = last = None
    tokens, timings = 0, {}
    while line := reply.readline():
        if not line.startswith(b"data: "):
            continue
        now = time.monotonic()
        event = json.loads(line[6:])
        if first is None and event.get("content"):
            first = now
        last = now
        tokens = event.get("tokens_predicted", tokens)
        timings = event.get("timings", timings)
    first = first or now
    return Asked(first - start, (last or now) - first, tokens, timings["prompt_ms"] / 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("result", type=Path)
    parser.add_argument("--runner", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--drafter", required=True)
    parser.add_argument("--depth", type=int, default=3, help="drafted tokens per round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--server", action="append", default=[], help="another server argument")
    options = parser.parse_args()
    told = json.loads(options.result.read_text())
    settings, configurations = told["settings"], told["configurations"]
    base = [options.runner, "-m", options.target, "-c", str(options.context)]
    base += ["-t", str(options.threads), "-b", "512", *options.server]
    draft = ["--spec-type", "draft-simple", "--spec-draft-model", options.drafter]
    draft += ["--spec-draft-n-max", str(options.depth)]
    found = defaultdict(list)
    with server(*base) as plain, server(*base, *draft) as pair:
        work = [
            (name, config, index, repeat)
            for name, texts in told["prompts"].items()
            for index in range(len(texts))
            for repeat in range(settings["repeats"])
            for config in configurations
        ]
        random.Random(7).shuffle(work)
        for port in (plain, pair):
            ask(port, {"prompt": "Hello", "n_predict": 8})
        for name, config, index, repeat in work:
            port = pair if config in ("strict", "relaxed") else plain
            body = {
                "prompt": templated(plain, told["prompts"][name][index]),
                "n_predict": settings["n_predict"],
                "temperature": settings["temperature"],
                "ignore_eos": True,
                "seed": 1000 * repeat + index + 1,
                **configurations[config],
            }
            found[name, config].append(ask(port, body))
    lines = []
    for line in told["summary"]:
        answers = found[line["set"], line["config"]]
        speed = sum(one.tokens - 1 for one in answers) / sum(one.rest for one in answers)
        wait = 1000 * statistics.median(one.first for one in answers)
        lines.append(
            {
                "set": line["set"],
                "config": line["config"],
                "tokens_per_second": round(speed, 2),
                "ttft_ms": round(wait, 1),
                "speed_apart": round(speed / line["tokens_per_second"]["value"] - 1, 4),
                "ttft_apart": round(wait / line["ttft_ms"]["value"] - 1, 4),
            }
        )
    for line in lines:
        print("  ".join(f"{key} {value}" for key, value in line.items()))
    print(json.dumps(lines))


if __name__ == "__main__":
    main()
