"""create, list, show, rm by the command line: exit codes, one clear line, nothing half-made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fixtures import gguf_make
from fixtures.gguf_make import VOCABULARY

from ollama_spec.cli import run
from ollama_spec.store import ModelStore


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    gguf_make.write(tmp_path / "t.gguf")
    gguf_make.write(tmp_path / "d.gguf", block_count=2)
    gguf_make.write(tmp_path / "other.gguf", tokens=[*VOCABULARY[:17], "x", *VOCABULARY[18:]])
    return tmp_path


def _create(folder: Path, text: str, name: str = "pair", *flags: str) -> int:
    (folder / "Modelfile").write_text(text)
    return run(["create", name, "-f", str(folder / "Modelfile"), *flags])


def test_create_list_show_rm(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "FROM ./t.gguf\nDRAFT ./d.gguf\nPARAMETER num_ctx 64\nPARAMETER draft_num_predict 2\n"
    assert _create(folder, text + "SYSTEM Be brief.", "My/Pair:1") == 0
    assert "created My/Pair:1: t.gguf with drafter d.gguf" in capsys.readouterr().out
    record = ModelStore().get("my/pair:1")
    assert record.target.path == folder / "t.gguf"
    assert len(record.target.sha256 or "") == 64
    assert record.profile.spec.n_max == 2

    assert run(["list", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed["name"] == "My/Pair:1"
    assert [item["role"] for item in listed["files"]] == ["target", "drafter"]
    assert run(["list", "-v"]) == 0
    assert "2 files" in capsys.readouterr().out

    assert run(["show", "my/pair:1"]) == 0
    shown = capsys.readouterr().out
    assert "draft-simple" in shown and "strict (lossless)" in shown and "Be brief." in shown
    assert run(["show", "my/pair:1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["spec_type"] == "draft-simple"

    assert run(["modelfile", "my/pair:1"]) == 0
    written = capsys.readouterr().out
    assert _create(folder, written, "again") == 0
    again = ModelStore().get("again")
    assert (again.target, again.drafter, again.system) == (
        record.target,
        record.drafter,
        record.system,
    )
    capsys.readouterr()
    assert run(["rm", "my/pair:1", "again"]) == 0
    assert ModelStore().list() == []
    assert (folder / "t.gguf").exists()


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("FROM ./none.gguf", 6, "no such file: ./none.gguf"),
        ("FROM none", 4, "model 'none' not found"),
        ("FROM ./cut.gguf", 6, "is truncated"),
        ("FROM ./t.gguf\nDRAFT ./other.gguf", 6, "token 17 is 'x', the target's 't17'"),
        ("FROM ./t.gguf\nDRAFT ./t.gguf", 6, "DRAFT must not reference the same local path"),
        ("FROM ./t.gguf\nDRAFT model", 6, "no such file: model"),
        ("FROM ./t.gguf\nFROM ./d.gguf", 6, "a second model in FROM"),
        ("FROM ./t.gguf\nDRAFT ./d.gguf\nDRAFT ./d.gguf", 6, "a second DRAFT"),
        ("FROM ./page.gguf", 6, "is a web page"),
        ("FROM ./t.gguf\nADAPTER ./d.gguf", 6, "ADAPTER is not served"),
        ("SYSTEM x", 6, "no FROM line"),
    ],
)
def test_what_cannot_be_created_gives_one_error_and_leaves_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, code: int, words: str
) -> None:
    whole = (folder / "t.gguf").read_bytes()
    (folder / "cut.gguf").write_bytes(whole[:-100])
    (folder / "page.gguf").write_bytes(b"<!doctype html>")
    assert _create(folder, text) == code
    shown = capsys.readouterr()
    assert words in shown.err
    assert shown.err.count("error:") == 1 and "hint:" in shown.err
    assert "Traceback" not in shown.err
    assert ModelStore().list() == []


def test_a_missing_modelfile_and_a_bad_name(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["create", "x", "-f", str(folder / "nope")]) == 4
    assert "no such Modelfile" in capsys.readouterr().err
    assert _create(folder, "FROM ./t.gguf", "../x") == 6
    assert "invalid model name" in capsys.readouterr().err


def test_dry_run_checks_and_creates_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _create(folder, "FROM ./t.gguf", "x", "--dry-run") == 0
    assert "would create x:latest" in capsys.readouterr().out
    assert ModelStore().list() == []


@pytest.mark.parametrize("name", ["a b.gguf", "ä.gguf", "a#b.gguf"])
def test_case_31_paths_are_taken_as_written(folder: Path, name: str) -> None:
    (folder / "t.gguf").rename(folder / name)
    assert _create(folder, f"FROM ./{name}") == 0
    assert ModelStore().get("pair").target.path == folder / name
    assert _create(folder, f'FROM "{name}"') == 0


def test_case_31_home_other_folder_links_and_no_shell_escapes(
    folder: Path, isolated_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (isolated_home / "h.gguf").symlink_to(folder / "t.gguf")
    assert _create(folder, "FROM ~/h.gguf") == 0
    assert ModelStore().get("pair").target.path == folder / "t.gguf"
    inside = folder / "inside"
    inside.mkdir()
    (inside / "Modelfile").write_text("FROM ../t.gguf")
    assert run(["create", "up", "-f", str(inside / "Modelfile")]) == 0
    (folder / "a b.gguf").symlink_to(folder / "t.gguf")
    assert _create(folder, "FROM ./a\\ b.gguf") == 6
    assert "no such file: ./a\\ b.gguf" in capsys.readouterr().err


def test_from_one_of_our_models_inherits_and_overrides(folder: Path) -> None:
    assert _create(folder, "FROM ./t.gguf\nDRAFT ./d.gguf\nSYSTEM one\nPARAMETER top_k 3") == 0
    assert _create(folder, "FROM pair\nSYSTEM two\nPARAMETER top_p 0.5", "child") == 0
    child = ModelStore().get("child")
    assert child.drafter == ModelStore().get("pair").drafter
    assert child.system == "two"
    assert child.parameters == {"top_k": 3, "top_p": 0.5}


def test_rm_of_an_unknown_name_removes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _create(folder, "FROM ./t.gguf") == 0
    assert run(["rm", "pair", "nope"]) == 4
    assert "model 'nope' not found" in capsys.readouterr().err
    assert len(ModelStore().list()) == 1
