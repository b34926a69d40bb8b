"""One patched server for the whole folder, and how to read its trace."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fixtures.wired import pair

from ollama_spec.measure.server import free_port, running

ANYTHING = {  # the loosest rule there is: only the guards are left to say no
    "speculative.relaxed_top_n": 1 << 20,
    "speculative.relaxed_ratio": 0,
    "speculative.relaxed_budget": 0,
    "speculative.relaxed_digits": False,
}
PROMPTS = [
    "The import statement",
    "A class definition is",
    "If the sequence is empty,",
    "Numbers 1 and 2 are",
    "The value of the expression",
    "An object is",
    "In the following example",
    "Return a copy of the string",
    "When an exception is raised",
    "The for loop",
    "def f(x):\n    return",
    "Each module has",
    "A list of names:\n- one\n-",
    "The dictionary",
    "Note that the first argument",
    "By default",
    "This method is called",
    "Formally, the syntax",
    "Assignment of an object to",
    "The pass statement",
]


DRAWN = ("--spec-draft-sampling", "probabilistic")


def needs_drawn_drafts(runner: Path) -> None:
    """Skip where the llama-server under test is older than that option."""
    shown = subprocess.run([str(runner), "--help"], capture_output=True, text=True, check=True)
    if DRAWN[0] not in shown.stdout:
        pytest.skip(f"this llama-server has no {DRAWN[0]}; newer ones (b11434) do")


class Server:
    """A running llama-server and the trace it writes."""

    def __init__(self, url: str, trace: Path | None) -> None:
        self.client = httpx.Client(base_url=url, trust_env=False, timeout=600)
        self._trace = trace

    def post(self, body: dict[str, Any], path: str = "/completion") -> httpx.Response:
        body = {"n_predict": 24, "temperature": 0, "cache_prompt": False, "seed": 7} | body
        return self.client.post(path, json=body)

    def complete(self, prompt: str, **body: Any) -> dict[str, Any]:
        answer = self.post({"prompt": prompt, "return_tokens": True} | body)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result

    def mark(self) -> int:
        assert self._trace is not None
        return self._trace.stat().st_size if self._trace.exists() else 0

    def rounds(self, since: int = 0) -> list[dict[str, Any]]:
        assert self._trace is not None
        with self._trace.open() as file:
            file.seek(since)
            return [json.loads(line) for line in file]

    def verdicts(self, since: int) -> set[str]:
        return {p["verdict"] for r in self.rounds(since) for p in r["positions"]}


@contextmanager
def serve(runner: Path, model: Path, *args: str, trace: Path | None = None) -> Iterator[Server]:
    port = free_port()
    argv = [str(runner), "-m", str(model), "--port", str(port), "-c", "2048", "-np", "1"]
    argv += ["-t", "1", "--spec-draft-threads", "1", "--no-ui", *args]
    if trace is not None:
        argv += ["--spec-draft-trace", str(trace)]
    with running(argv, port) as url:
        server = Server(url, trace)
        try:
            yield server
        finally:
            server.client.close()


def drafting(drafter: Path, n_max: int = 4) -> Sequence[str]:
    depth = ("--spec-draft-n-max", str(n_max))
    return ("--spec-type", "draft-simple", "--spec-draft-model", str(drafter), *depth)


def drafting_mtp(drafter: Path, n_max: int = 4) -> Sequence[str]:
    return ("--spec-type", "draft-mtp", *drafting(drafter, n_max)[2:])


@pytest.fixture(scope="session")
def server(patched_runner: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The wired Gemma 4 pair: a real MTP drafter, a hundred times faster than SmolLM2."""
    trace = tmp_path_factory.mktemp("trace") / "trace.ndjson"
    made = pair()
    args = [*drafting_mtp(made.drafter), "--metrics"]
    with serve(patched_runner, made.target, *args, trace=trace) as running_server:
        yield running_server
