"""A patched server with SmolLM2 as target and as its own speculator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ollama_spec.measure.server import free_port, running

SPARSE = [
    *("--specprefill-min-tokens", "600"),
    *("--specprefill-keep", "0.3"),
    *("--specprefill-tail", "64"),
    *("--specprefill-min-gain", "0"),
]


class Server:
    def __init__(self, url: str) -> None:
        self.url = url
        self.http = httpx.Client(base_url=url, trust_env=False, timeout=300)

    def post(
        self, prompt: str | list[int], path: str = "/completion", **keys: Any
    ) -> httpx.Response:
        body = {"prompt": prompt, "n_predict": 8, "temperature": 0, "seed": 1, **keys}
        return self.http.post(path, json=body)

    def ask(self, prompt: str | list[int], **keys: Any) -> dict[str, Any]:
        answer = self.post(prompt, **keys)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result


@contextmanager
def serving(runner: Path, model: Path, arguments: Sequence[str]) -> Iterator[Server]:
    port = free_port()
    argv = [str(runner), "-m", str(model), "--port", str(port), "--no-webui", "-b", "512"]
    with running([*argv, *arguments], port) as url:
        server = Server(url)
        with server.http:
            yield server


def report(answer: dict[str, Any]) -> dict[str, Any]:
    found = answer["timings"]["specprefill"]
    assert isinstance(found, dict)
    return found


def fields(answer: dict[str, Any]) -> tuple[Any, ...]:
    return answer["content"], answer["tokens_predicted"], answer["tokens_evaluated"]


@pytest.fixture(scope="package")
def sparse(patched_runner: Path, smollm2: Path) -> Iterator[Server]:
    """On for every request, four slots."""
    arguments = ["-c", "8192", "-np", "4", "--specprefill", "--specprefill-model", str(smollm2)]
    with serving(patched_runner, smollm2, [*arguments, *SPARSE]) as server:
        yield server


@pytest.fixture(scope="package", params=["orig", "compact"])
def chat(patched_runner: Path, smollm2: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    """One slot, so that later turns find the cache; only requests that ask for it are sparse."""
    arguments = ["-c", "6144", "-np", "1", "--specprefill-model", str(smollm2)]
    arguments += ["--specprefill-pos", request.param]
    with serving(patched_runner, smollm2, [*arguments, *SPARSE]) as server:
        yield server
