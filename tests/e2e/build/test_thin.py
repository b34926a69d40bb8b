"""Detecting a real Ollama, and the thin engine against its libraries.

Needs the real Ollama v0.32.15 (Go and its module proxy; built once, cached).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fixtures.real import REAL_CACHE, caches
from fixtures.servers import chat, server
from real_ollama import install

from ollama_spec.artefacts import ArtefactStore, Manifest
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
    assert found["conclusion"]["commit"] == "9d77fa17254e1dee4b9e92504c91611a60b1359f"
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
    argv += ["--spec-type", "draft-simple", "--spec-draft-relaxed-top-n", "5", "--ctx-size", "4096"]
    argv += ["--specprefill-model", str(smollm2), "--specprefill-min-tokens", "600"]
    argv += ["--specprefill-keep", "0.3", "--specprefill-tail", "64", "--specprefill-min-gain", "0"]
    argv += ["--threads", "1", "--threads-draft", "1"]  # spinning threads starve on a busy machine
    with server(argv, tmp_path) as (client, pid):
        maps = Path(f"/proc/{pid}/maps").read_text()
        answer = chat(client, "Write a short story about a dog.", max_tokens=64)
        assert answer["timings"]["draft_n"] > 0
        assert answer["timings"]["draft_n_relaxed"] > 0
        assert answer["timings"]["specprefill"]["status"] == "disabled"  # only when asked for
        text = " ".join(f"On day {day} the ship sailed {day * 7 % 50} miles." for day in range(90))
        long = f"{text}\nHow many miles did the ship sail on day 40?"
        sparse = chat(client, long, max_tokens=8, specprefill=True)["timings"]["specprefill"]
    assert str(ours.resolve()) in maps
    assert sparse["status"] == "active" and sparse["pos"] == "original"
    assert 0 < sparse["n_kept"] < 0.7 * sparse["n_prompt"]


@pytest.mark.slow
@pytest.mark.usefixtures("on_path")
def test_follow_switches_to_what_ollama_carries_and_keeps_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compiled objects come from the cache; the store of runners is this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(REAL_CACHE / "cache"))
    store = ArtefactStore()
    old = Manifest(key="b10380-old", tag="b10380", commit="c", source="s", overlay="o",
                   engine="thin", flags=[])  # fmt: skip
    store.use(store.publish(store.staging(old.key), old))
    argv = [sys.executable, "-m", "ollama_spec", "build", "follow", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert (found["tag"], found["engine"], found["changed"]) == ("b10488", "thin", True)
    assert found["before"] == old.key and found["error"] is None
    current, previous = store.current(), store.previous()
    assert current is not None and current.manifest.key == found["now"]
    assert previous is not None and previous.manifest.key == old.key
    again = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    assert again["changed"] is False and again["now"] == found["now"]
    subprocess.run([*argv[:4], "rollback"], check=True, capture_output=True)
    current = store.current()
    assert current is not None and current.manifest.key == old.key


@pytest.mark.usefixtures("on_path")
def test_follow_reports_a_failure_and_stays() -> None:
    """Sources that do not exist stand for any failed build."""
    found = follow.follow(engines.Request(source="/nonexistent", engine="native"))
    assert found.changed is False and found.now is None
    assert found.tag == "b10488" and found.error is not None
