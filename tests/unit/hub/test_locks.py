"""Locks: export, import, and a pull that reproduces one or fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from fakes import hub_files
from fakes.hub import FakeHub

from ollama_spec import cli, lock
from ollama_spec.store import ModelStore, weights_dir

REPO = "me/Big-GGUF"
DRAFT = "me/Small-GGUF"
PULL = ["pull", f"hf.co/{REPO}", "--draft", f"hf.co/{DRAFT}", "--name", "pair"]


@pytest.fixture
def exported(hub: FakeHub, tmp_path: Path) -> Path:
    """The lock of a pulled pair; the pair itself is gone again."""
    hub.put(REPO, "Big-Q4_K_M.gguf", hub_files.model("Big", seed=1))
    hub.put(DRAFT, "Small-Q8_0.gguf", hub_files.model("Small", seed=2))
    assert cli.run(PULL) == 0
    file = tmp_path / "pair.lock"
    assert cli.run(["export", "pair", "-o", str(file)]) == 0
    ModelStore().remove("pair")
    return file


def test_a_lock_holds_repositories_commits_hashes_sizes_and_settings(
    hub: FakeHub, exported: Path
) -> None:
    value = yaml.safe_load(exported.read_text())
    assert value["target"]["revision"] == hub.commit
    (file,) = value["target"]["files"]
    assert file["size"] == len(hub.files[REPO]["Big-Q4_K_M.gguf"])
    assert len(file["sha256"]) == 64
    assert value["profile"]["spec"]["type"] == "draft-simple"
    assert str(weights_dir()) not in exported.read_text()


def test_an_imported_lock_makes_the_same_model(hub: FakeHub, exported: Path) -> None:
    assert cli.run(["import", str(exported), "--name", "copy"]) == 0
    # What `main` points at has moved on meanwhile; the lock pins the commit.
    assert cli.run(["pull", "--locked", "copy"]) == 0
    made, wanted = lock.find("copy"), lock.load(exported.read_text(), "x")
    assert made is not None and made.same_content(wanted)
    record = ModelStore().get("copy")
    assert record.target.path.read_bytes() == hub.files[REPO]["Big-Q4_K_M.gguf"]
    assert record.profile == wanted.profile


def test_a_lock_file_can_be_pulled_directly(exported: Path) -> None:
    assert cli.run(["pull", "--locked", str(exported)]) == 0
    assert ModelStore().find("pair") is not None


def test_a_file_replaced_in_place_fails_the_lock(
    hub: FakeHub, exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.put(REPO, "Big-Q4_K_M.gguf", hub_files.model("Big", seed=99))
    assert cli.run(["pull", "--locked", str(exported)]) == 5
    assert "is not the locked file" in capsys.readouterr().err
    del hub.files[REPO]["Big-Q4_K_M.gguf"]
    hub.put(REPO, "Big-Q8_0.gguf", hub_files.model("Big"))
    assert cli.run(["pull", "--locked", str(exported)]) == 5
    assert "has no Big-Q4_K_M.gguf any more" in capsys.readouterr().err
    assert ModelStore().find("pair") is None


def test_without_a_lock_locked_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["pull", "--locked", "nobody"]) == 4
    assert "no lock for nobody" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["- a list", "version: 2\nname: x", "a: [", "name: x\nspam: 1"])
def test_damaged_locks_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    file = tmp_path / "bad.lock"
    file.write_text(text)
    assert cli.run(["import", str(file)]) == 3
    assert str(file) in capsys.readouterr().err


def test_only_pulled_models_can_be_exported(
    hub: FakeHub, exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["pull", "--locked", str(exported)]) == 0
    lock.path_of("pair").unlink()
    assert cli.run(["export", "pair"]) == 4
    assert "was not pulled" in capsys.readouterr().err


def test_export_prints_json_too(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["pull", "--locked", str(exported)]) == 0
    capsys.readouterr()
    assert cli.run(["export", "pair", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["target"]["repo"] == REPO
