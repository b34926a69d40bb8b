"""`pull` against the real Ollama: it lists the model, shows DRAFT, answers, and keeps one copy."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fakes.hub import FakeHub
from fixtures import wired
from huggingface_hub.utils import close_session
from real_ollama import servers
from real_ollama.servers import RealOllama

from ollama_spec import cli
from ollama_spec.store import ModelStore, weights_dir

SMOL = "someone/SmolLM2-GGUF"
WIRED = "someone/gemma-4-E2B-it-GGUF"


@pytest.fixture
def hub(isolated_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    server = FakeHub()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    yield server
    close_session()
    server.close()


@pytest.fixture
def ollama(
    real_ollama_tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RealOllama]:
    """A server of its own, with an empty store."""
    with servers.ollama(real_ollama_tree, tmp_path) as server:
        monkeypatch.setenv("OLLAMA_SPEC_UPSTREAM", server.url)
        yield server


def client(ollama: RealOllama, *arguments: str, seconds: float = 600) -> str:
    """Output of the real `ollama` program."""
    argv = [str(ollama.program), *arguments]
    done = subprocess.run(
        argv, env=ollama.env, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def first_words(ollama: RealOllama, *arguments: str) -> str:
    """The start of what `ollama run` prints; its answer may be endless."""
    argv = [str(ollama.program), "run", *arguments]
    with subprocess.Popen(argv, env=ollama.env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        words = process.stdout.read(8)
        process.terminate()
    return words


def acceptance(ollama: RealOllama) -> list[str]:
    """Lines of the log that tell accepted drafts; they come a moment after the reply."""
    found: list[str] = []
    deadline = time.monotonic() + 30
    while not found and time.monotonic() < deadline:
        time.sleep(0.2)
        lines = (ollama.home / "ollama.log").read_text(errors="replace").splitlines()
        found = [line for line in lines if "draft acceptance =" in line]
    return found


def big_files(folder: Path) -> list[int]:
    """Sizes of all weights below a folder, largest first."""
    found = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return sorted((size for size in found if size > 1_000_000), reverse=True)


def test_pull_of_a_gemma4_pair_drafts_in_plain_ollama(hub: FakeHub, ollama: RealOllama) -> None:
    pair = wired.pair()
    hub.put(WIRED, "gemma-4-E2B-it-Q4_K_M.gguf", pair.target.read_bytes())
    hub.put(WIRED, "mtp-gemma-4-E2B-it.gguf", pair.drafter.read_bytes())
    assert cli.run(["pull", f"hf.co/{WIRED}:Q4_K_M", "--name", "gemma4:wired-mtp"]) == 0
    assert "gemma4:wired-mtp" in client(ollama, "list")
    shown = client(ollama, "show", "--modelfile", "gemma4:wired-mtp")
    record = ModelStore().get("gemma4:wired-mtp")
    assert record.drafter is not None
    assert f"FROM {record.target.path}" in shown
    assert f"DRAFT {record.drafter.path}" in shown
    assert "PARAMETER draft_num_predict 2" in shown
    assert (record.renderer, record.parser) == ("gemma4", "gemma4")
    assert record.drafter.repo == WIRED and record.drafter.revision == hub.commit
    # One copy of each weight, all of them Ollama's.
    assert len(big_files(ollama.models)) == 2
    assert big_files(weights_dir()) == []
    assert first_words(ollama, "gemma4:wired-mtp", "the class of").strip()
    body = {
        "model": "gemma4:wired-mtp",
        "prompt": "the class of",
        "stream": False,
        "options": {"num_predict": 12, "temperature": 0},
    }
    reply = httpx.post(f"{ollama.url}/api/generate", json=body, timeout=300, trust_env=False)
    assert reply.json()["response"].strip()
    log = (ollama.home / "ollama.log").read_text(errors="replace")
    assert "--spec-type draft-mtp --spec-draft-n-max 2" in log
    accepted = acceptance(ollama)
    assert accepted and "(    0 accepted" not in accepted[-1]


def test_pull_of_a_classic_pair_answers_in_plain_ollama_and_drafts_in_ours(
    hub: FakeHub, ollama: RealOllama, smollm2: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ollama starts every unknown drafter as draft-mtp, which ends its runner: it gets none."""
    content = smollm2.read_bytes()
    hub.put(SMOL, "SmolLM2-135M-Instruct-Q4_1.gguf", content)
    hub.put("someone/Draft-GGUF", "Draft-Q4_1.gguf", content[:-1] + bytes([content[-1] ^ 1]))
    argv = ["pull", f"hf.co/{SMOL}:Q4_1", "--draft", "hf.co/someone/Draft-GGUF:Q4_1"]
    assert cli.run([*argv, "--name", "smol-pair"]) == 0
    assert "Ollama itself cannot draft by draft-simple" in capsys.readouterr().err
    record = ModelStore().get("smol-pair")
    assert record.drafter is not None and weights_dir() in record.drafter.path.parents
    shown = client(ollama, "show", "--modelfile", "smol-pair")
    assert f"FROM {record.target.path}" in shown
    assert "DRAFT" not in shown and "draft_num_predict" not in shown
    assert len(big_files(ollama.models)) == 1
    assert big_files(weights_dir()) == [record.drafter.size]
    assert "smol-pair" in client(ollama, "list")
    answer = client(ollama, "run", "smol-pair", "Say yes.")
    assert answer.strip()
    assert cli.run(["list", "-v"]) == 0
    assert "2 files, 197 MB on disk" in capsys.readouterr().out
    # Nothing is moved or made again by a second pull.
    assert cli.run([*argv, "--name", "smol-pair"]) == 0
    assert "up to date" in capsys.readouterr().out


def test_pull_with_keep_download_and_without_registering(
    hub: FakeHub, ollama: RealOllama, smollm2: Path
) -> None:
    hub.put(SMOL, "SmolLM2-135M-Instruct-Q4_1.gguf", smollm2.read_bytes())
    assert cli.run(["pull", f"hf.co/{SMOL}", "--name", "mine", "--no-register"]) == 0
    assert "mine" not in client(ollama, "list")
    assert len(big_files(weights_dir())) == 1
    assert cli.run(["pull", f"hf.co/{SMOL}", "--name", "mine", "--keep-download"]) == 0
    assert "mine" in client(ollama, "list")
    assert len(big_files(weights_dir())) == 1
    assert len([item for item in hub.downloads("Q4_1.gguf") if item.sent > 1_000_000]) == 1


def test_case_11_pull_of_a_drafter_for_a_model_of_ollamas_keeps_all_else(
    hub: FakeHub, ollama: RealOllama, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = wired.pair()
    settings = {"system": "Be brief.", "template": "{{ .Prompt }}", "parameters": {"top_k": 7}}
    servers.create(ollama, "base", pair.target, **settings)
    hub.put(WIRED, "gemma-4-E2B-it-Q4_K_M.gguf", pair.target.read_bytes())
    hub.put(WIRED, "mtp-gemma-4-E2B-it.gguf", pair.drafter.read_bytes())
    assert cli.run(["pair", "add", "base", "--draft", f"hf.co/{WIRED}", "--name", "base:mtp"]) == 0
    before, after = details(ollama, "base"), details(ollama, "base:mtp")
    for key in ("system", "template", "capabilities"):
        assert after[key] == before[key], key
    assert "PARAMETER top_k 7" in str(after["modelfile"])
    assert "DRAFT " in str(after["modelfile"]) and "DRAFT " not in str(before["modelfile"])
    record = ModelStore().get("base:mtp")
    assert record.parameters["top_k"] == 7 and record.system == "Be brief."
    assert record.drafter is not None and ollama.models in record.drafter.path.parents
    assert big_files(weights_dir()) == []
    assert len(big_files(ollama.models)) == 3  # the fixture's upload, its rewrite, the drafter


def details(ollama: RealOllama, name: str) -> dict[str, object]:
    body = {"model": name}
    reply = httpx.post(f"{ollama.url}/api/show", json=body, timeout=60, trust_env=False)
    value: dict[str, object] = reply.json()
    return value


def test_pull_explains_blobs_it_may_not_read(
    hub: FakeHub,
    ollama: RealOllama,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from ollama_spec import ollama_store

    pair = wired.pair()
    hub.put(WIRED, "gemma-4-E2B-it-Q4_K_M.gguf", pair.target.read_bytes())
    hub.put(WIRED, "mtp-gemma-4-E2B-it.gguf", pair.drafter.read_bytes())
    stranger = ollama_store.Reader(54321, frozenset([54321]))
    monkeypatch.setattr(ollama_store.Reader, "current", classmethod(lambda cls: stranger))
    (ollama.models / "manifests").mkdir(parents=True, exist_ok=True)
    for folder in [ollama.models, *ollama.models.parents]:
        if folder.stat().st_uid == os.getuid() and len(folder.parts) > 2:
            folder.chmod(folder.stat().st_mode | 0o011)
    (ollama.models / "blobs").chmod(0o700)
    assert cli.run(["pull", f"hf.co/{WIRED}:Q4_K_M", "--name", "shut"]) == 0
    err = capsys.readouterr().err
    assert f"may not enter {ollama.models / 'blobs'}" in err
    assert "the download stays" in err and "setfacl" in err
    record = ModelStore().get("shut")
    assert weights_dir() in record.target.path.parents and record.target.path.is_file()
