"""Fixtures around the real Ollama; without Go or its module proxy they skip and say so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures.real import REAL_CACHE
from real_ollama import install, servers
from real_ollama.servers import RealOllama, Server

from ollama_spec.profiles import WeightFile
from ollama_spec.store import ModelRecord, ModelStore

# What Ollama adds to a GGUF whose chat template it takes for ChatML.
STOP = ["<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{{- range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>\n{{ end }}"
    "<|im_start|>assistant\n"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.real_ollama)
            # The first test of a session may have to compile both Ollama and llama.cpp.
            item.add_marker(pytest.mark.timeout(3600))


@pytest.fixture(scope="session")
def real_ollama_tree() -> Path:
    """bin/ollama and lib/ollama of Ollama v0.32.15."""
    try:
        return install.installed(REAL_CACHE)
    except install.Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def real_ollama(
    real_ollama_tree: Path, smollm2: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealOllama]:
    """A running server with the model `smol` (SmolLM2-135M, Q4_1).

    Ollama recognises its template as ChatML and would render it by its own Go template;
    OLLAMA_GO_TEMPLATE=0 keeps it on the native path, which is the one we claim to equal.
    """
    home = tmp_path_factory.mktemp("ollama")
    with servers.ollama(real_ollama_tree, home, OLLAMA_GO_TEMPLATE="0") as server:
        # One thread: two spin-wait for each other when the machine has other work.
        servers.create(server, "smol", smollm2, parameters={"num_thread": 1, "stop": STOP})
        yield server


@pytest.fixture(scope="session")
def sidecar(real_ollama: RealOllama, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Our sidecar before that server, with a `smol` of its own on the same blob and runner."""
    home = tmp_path_factory.mktemp("sidecar")
    put_model(home, "smol", real_ollama.blob("smol"))
    with servers.sidecar(home, real_ollama.runner, real_ollama.url) as server:
        yield server


def put_model(home: Path, name: str, target: Path, drafter: Path | None = None) -> None:
    """A record in the store below `home`, with the stop texts Ollama gave the model."""
    record = ModelRecord(
        name=name,
        target=weight(target),
        drafter=weight(drafter) if drafter else None,
        template=TEMPLATE,
        parameters={"num_thread": 1, "stop": STOP},
    )
    ModelStore(home / "data" / "ollama-spec" / "models").put(record)


def weight(path: Path) -> WeightFile:
    return WeightFile(path=path, size=path.stat().st_size)
