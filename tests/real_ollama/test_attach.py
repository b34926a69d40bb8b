"""`attach` with the wired Gemma 4 pair, whose prompt only Ollama itself renders."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from real_ollama import servers
from real_ollama.servers import RealOllama

from ollama_spec.measure.fixtures import wired
from ollama_spec.profiles import AcceptSettings, Profile, SpecSettings, WeightFile
from ollama_spec.store import ModelRecord, ModelStore

ASKED = {
    "model": "wired",
    "prompt": "The licence of this software",
    "options": {"temperature": 0, "num_predict": 24},
}
GENEROUS = AcceptSettings(mode="relaxed", top_n=10, ratio=0.05, budget_nats=10)


@pytest.fixture(scope="module")
def ollama(
    real_ollama_tree: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealOllama]:
    """An Ollama with a Gemma 4 and its drafter, created as a Modelfile with DRAFT would."""
    home = tmp_path_factory.mktemp("plain")
    pair = wired.make_pair(home / "pair", wired.WEAK)
    with servers.ollama(real_ollama_tree, home) as server:
        data = pair.drafter.read_bytes()
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        httpx.post(
            f"{server.url}/api/blobs/{digest}", content=data, trust_env=False
        ).raise_for_status()
        settings = {"num_thread": 1}  # two would wait for each other on a busy machine
        servers.create(
            server, "wired", pair.target, draft_files={"drafter.gguf": digest}, parameters=settings
        )
        yield server


def command(ollama: RealOllama, runner: Path, *flags: str) -> list[str]:
    argv = [sys.executable, "-m", "ollama_spec", "attach", "--ollama", str(ollama.program)]
    return [*argv, "--models", str(ollama.models), "--runner", str(runner), *flags]


@contextmanager
def attached(ollama: RealOllama, runner: Path, home: Path, accept: AcceptSettings) -> Iterator[str]:
    blob = ollama.blob("wired")
    record = ModelRecord(
        name="wired",
        target=WeightFile(path=blob, size=blob.stat().st_size),
        profile=Profile(spec=SpecSettings(n_max=3, accept=accept)),
    )
    ModelStore(home / "data/ollama-spec/models").put(record)
    ready, log = home / "ready.json", home / "attach.log"
    argv = command(ollama, runner, "--host", "127.0.0.1:0", "--ready-file", str(ready))
    with servers.running(argv, servers.clean_environment(home), log) as process:
        deadline = time.monotonic() + 60
        while not ready.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert ready.exists(), log.read_text()
        yield json.loads(ready.read_bytes())["url"]


def generate(url: str, *, stream: bool = False) -> list[dict[str, Any]]:
    reply = httpx.post(
        f"{url}/api/generate", json={**ASKED, "stream": stream}, trust_env=False, timeout=300
    )
    assert reply.status_code == 200, reply.text
    return [json.loads(line) for line in reply.text.splitlines()]


def receipts(url: str, route: str, *, stream: bool) -> list[dict[str, Any]]:
    """Every `spec` in an answer of one of the other dialects."""
    body: dict[str, Any] = {"model": "wired", "stream": stream, "temperature": 0}
    body |= {"prompt": ASKED["prompt"], "input": ASKED["prompt"], "max_tokens": 12}
    body |= {"messages": [{"role": "user", "content": ASKED["prompt"]}], "max_output_tokens": 12}
    text = httpx.post(f"{url}{route}", json=body, trust_env=False, timeout=300).text
    lines = [line.removeprefix("data: ") for line in text.splitlines()]
    objects = [json.loads(line) for line in lines if line.startswith("{")]
    return [item["spec"] for item in objects if "spec" in item]


def test_answers_are_ollamas_and_relaxing_accepts_more(
    ollama: RealOllama, patched_runner: Path, tmp_path: Path
) -> None:
    (plain,) = generate(ollama.url)
    assert "spec" not in plain
    with attached(ollama, patched_runner, tmp_path, AcceptSettings()) as url:
        (strict,) = generate(url)
        pieces = generate(url, stream=True)
        for route in ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"):
            for stream in (False, True):
                found = receipts(url, route, stream=stream)
                assert len(found) == 1, f"{route}, stream {stream}: {found}"
                assert found[0]["drafted"] > 0
    assert strict["response"] == plain["response"]
    assert "".join(piece["response"] for piece in pieces) == plain["response"]
    for last in (strict, pieces[-1]):
        spec = last["spec"]
        assert (spec["mode"], spec["lossless"], spec["relaxed"]) == ("strict", True, 0)
        assert 0 < spec["accepted"] < spec["drafted"]
    with attached(ollama, patched_runner, tmp_path, GENEROUS) as url:
        (relaxed,) = generate(url)
    spec = relaxed["spec"]
    assert (spec["mode"], spec["lossless"]) == ("relaxed", False)
    assert spec["relaxed"] > 0
    assert spec["regret_nats"] > 0
    rate = spec["accepted"] / spec["drafted"]
    assert rate > strict["spec"]["accepted"] / strict["spec"]["drafted"]


def test_the_tree_leaves_the_installed_ollama_alone(
    ollama: RealOllama, patched_runner: Path, tmp_path: Path
) -> None:
    def snapshot() -> dict[str, tuple[int, int]]:
        files = sorted(ollama.tree.rglob("*"))
        return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in files}

    def run(*flags: str) -> dict[str, Any]:
        done = subprocess.run(
            command(ollama, patched_runner, "--json", *flags),
            env=servers.clean_environment(tmp_path),
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        value: dict[str, Any] = json.loads(done.stdout)
        return value

    before = snapshot()
    tree = Path(run("--print")["tree"])
    assert (tree / "bin" / "ollama").samefile(ollama.program) or (
        (tree / "bin" / "ollama").stat().st_size == ollama.program.stat().st_size
    )
    assert (tree / "lib/ollama/libllama.so").resolve().parent == ollama.runner.parent
    assert not (tree / "lib/ollama/llama-server").is_symlink()
    assert run("--remove") == {"removed": True}
    assert not tree.parent.exists()
    assert snapshot() == before
