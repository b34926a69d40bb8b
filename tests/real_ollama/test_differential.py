"""The same requests to the real Ollama and to the sidecar, and the same answers from both."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from real_ollama.cases import CASES, Case
from real_ollama.compare import ask, differences
from real_ollama.servers import RealOllama, Server


@pytest.fixture(scope="module")
def both(real_ollama: RealOllama, sidecar: Server) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    with (
        httpx.Client(base_url=real_ollama.url, trust_env=False, timeout=120) as theirs,
        httpx.Client(base_url=sidecar.url, trust_env=False, timeout=120) as ours,
    ):
        for http in (theirs, ours):
            # Whatever other tests left loaded, both have the same one model now.
            for model in http.get("/api/ps").json()["models"]:
                http.post("/api/generate", json={"model": model["name"], "keep_alive": 0})
            http.post("/api/generate", json={"model": "smol"}).raise_for_status()
        yield theirs, ours


def test_the_suite_covers_what_it_claims() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 150


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_same_answer(case: Case, both: tuple[httpx.Client, httpx.Client]) -> None:
    theirs, ours = (ask(http, case) for http in both)
    found = differences(theirs, ours)
    assert not found, "\n".join(found[:6])
