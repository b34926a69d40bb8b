"""The real program: `ollama-spec serve` as a process over the real patched runner and SmolLM2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import ollama
import psutil
import pytest

from ollama_spec.profiles import AcceptSettings, Profile, SpecSettings, WeightFile
from ollama_spec.store import ModelRecord, ModelStore

MODEL = "smol"


@dataclass
class Served:
    process: subprocess.Popen[bytes]
    url: str
    log: Path

    @cached_property
    def client(self) -> ollama.Client:
        return ollama.Client(host=self.url)

    def end(self) -> None:
        self.client.close()
        self.process.terminate()
        self.process.wait(timeout=30)

    def children(self) -> list[psutil.Process]:
        found = psutil.Process(self.process.pid).children(recursive=True)
        return [item for item in found if "llama-server" in " ".join(item.cmdline())]

    def busy(self) -> bool:
        """Whether the child works on anything, by its log.

        Not by asking /slots: every such question restarts the second after which llama-server
        looks whether its clients are still there.
        """
        path = self.log.parent / "state" / "ollama-spec" / "logs" / "smol.log"
        text = path.read_text(errors="replace")
        return text.count("| processing task") > text.count("| stop processing")


def put_models(root: Path, target: Path, drafter: Path) -> None:
    def weights(path: Path) -> WeightFile:
        return WeightFile(path=path, size=path.stat().st_size)

    store = ModelStore(root / "data" / "ollama-spec" / "models")
    accept = AcceptSettings(mode="relaxed", top_n=5)
    for name, profile in (
        (MODEL, Profile()),
        ("smol:relaxed", Profile(spec=SpecSettings(accept=accept))),
    ):
        store.put(
            ModelRecord(
                name=name,
                target=weights(target),
                drafter=weights(drafter),
                # one thread: two that wait for each other crawl where others use the cores
                parameters={"temperature": 0, "num_ctx": 2048, "num_thread": 1},
                profile=profile,
            )
        )


def start(root: Path, runner: Path) -> Served:
    environment = {**os.environ, "HOME": str(root), "XDG_RUNTIME_DIR": str(root / "run")}
    for kind in ("CONFIG", "CACHE", "DATA", "STATE"):
        environment[f"XDG_{kind}_HOME"] = str(root / kind.lower())
    (root / "run").mkdir(mode=0o700, exist_ok=True)
    ready = root / "ready.json"
    ready.unlink(missing_ok=True)
    argv = [sys.executable, "-m", "ollama_spec", "-v", "serve", "--host", "127.0.0.1:0"]
    argv += ["--upstream", "", "--ready-file", str(ready), "--runner", str(runner)]
    with (root / "serve.log").open("a") as log:
        process = subprocess.Popen(argv, stderr=log, env=environment)
    deadline = time.monotonic() + 60
    while not ready.exists():
        assert process.poll() is None and time.monotonic() < deadline, log.name
        time.sleep(0.05)
    return Served(process, json.loads(ready.read_text())["url"], root / "serve.log")


@pytest.fixture(scope="session")
def serve_root(
    tmp_path_factory: pytest.TempPathFactory, smollm2: Path, smollm2_drafter: Path
) -> Path:
    root = tmp_path_factory.mktemp("serve")
    put_models(root, smollm2, smollm2_drafter)
    return root


@pytest.fixture(scope="session")
def served(serve_root: Path, patched_runner: Path) -> Iterator[Served]:
    """One sidecar for all tests that leave it well."""
    running = start(serve_root, patched_runner)
    try:
        yield running
    finally:
        running.end()
