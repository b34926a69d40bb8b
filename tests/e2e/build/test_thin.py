"""Detecting a real Ollama, and the thin engine against its libraries.

Needs the real Ollama v0.32.15 (Go and its module proxy; built once, cached).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from fixtures.real import REAL_CACHE, caches
from real_ollama import install

from ollama_spec.build import elf, engines, follow, thin_library
from ollama_spec.errors import BuildError

pytestmark = [pytest.mark.real_ollama, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def tree() -> Path:
    try:
        return install.installed(REAL_CACHE)
    except install.Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def on_path(tree: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The real Ollama on PATH, and no server of it running."""
    monkeypatch.setenv("PATH", f"{tree / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")
    return tree


@pytest.mark.usefixtures("on_path")
def test_detect_names_release_tag_and_engine_without_a_network(tree: Path) -> None:
    argv = [sys.executable, "-m", "ollama_spec", "detect", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["chosen"] == str(tree / "bin/ollama")
    (binary,) = [item for item in found["binaries"] if item["path"] == found["chosen"]]
    assert binary["version"] == "0.32.15"
    assert binary["library"] == str(tree / "lib/ollama")
    assert binary["llama"]["build"] == 10488
    assert binary["backends"] == ["cpu"]
    assert found["conclusion"]["tag"] == "b10488"
    assert found["server"]["version"] is None and found["server"]["error"]
    assert found["engine"] == "thin"


def test_libraries_of_another_tag_are_refused_by_name(tree: Path) -> None:
    with pytest.raises(BuildError, match=r"are of llama\.cpp b10488, not b10380"):
        thin_library.check(tree / "lib/ollama", "b10380")


@pytest.mark.slow
@pytest.mark.usefixtures("on_path")
def test_auto_takes_thin_and_the_runner_computes_with_ollamas_libraries(
    tree: Path, smollm2: Path, smollm2_drafter: Path, tmp_path: Path
) -> None:
    with caches():
        artefact = engines.build(engines.Request(use=False))
    assert (artefact.manifest.engine, artefact.manifest.tag) == ("thin", "b10488")
    assert "--spec-draft-relaxed-top-n" in artefact.manifest.flags
    assert elf.read(artefact.server).runpath == ["$ORIGIN"]
    theirs = tree / "lib/ollama/libllama.so.0"
    ours = artefact.server.parent / "libllama.so.0"
    assert ours.read_bytes() == theirs.read_bytes()

    argv = [str(artefact.server), "--model", str(smollm2), "--model-draft", str(smollm2_drafter)]
    argv += ["--spec-type", "draft-simple", "--spec-draft-relaxed-top-n", "5", "--ctx-size", "512"]
    argv += ["--threads", "1", "--threads-draft", "1"]  # spinning threads starve on a busy machine
    with server(argv, tmp_path) as (client, pid):
        maps = Path(f"/proc/{pid}/maps").read_text()
        body = {"messages": [{"role": "user", "content": "Name three colours."}], "max_tokens": 24}
        reply = client.post("/v1/chat/completions", json={**body, "temperature": 0})
    assert str(ours.resolve()) in maps
    assert reply.status_code == 200
    timings = reply.json()["timings"]
    assert timings["draft_n"] > 0 and "draft_n_relaxed" in timings


@pytest.mark.usefixtures("on_path")
def test_follow_reports_a_failure_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources that do not exist stand for any failed build."""
    found = follow.follow(engines.Request(source="/nonexistent", engine="native"))
    assert found.changed is False and found.now is None
    assert found.tag == "b10488" and found.error is not None


@contextmanager
def server(argv: list[str], folder: Path) -> Iterator[tuple[httpx.Client, int]]:
    socket = folder / "s.sock"
    with (folder / "log").open("w") as log:
        child = subprocess.Popen([*argv, "--host", str(socket)], stdout=log, stderr=log)
    transport = httpx.HTTPTransport(uds=str(socket))
    try:
        with httpx.Client(transport=transport, base_url="http://runner", timeout=600) as client:
            limit = time.monotonic() + 60
            while child.poll() is None and time.monotonic() < limit:
                try:
                    if client.get("/health").status_code == 200:
                        break
                except httpx.TransportError:
                    pass
                time.sleep(0.1)
            yield client, child.pid
    finally:
        child.kill()
        child.wait()
