"""The tree goes from stock to patched and back, touching only what differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ollama_spec.build.worktree import WorkTree
from ollama_spec.errors import OverlayError

HOOKS = """\
hooks:
- {id: one, file: common/arg.cpp, anchor: "return 1;", action: before, line: "ours();"}
sources: [{file: accept.cpp, target: llama-common}]
"""


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    folder = tmp_path / "runner_src"
    folder.mkdir()
    (folder / "hooks.yaml").write_text(HOOKS)
    (folder / "accept.cpp").write_text("int accept;\n")
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> WorkTree:
    common = tmp_path / "root/src/common"
    common.mkdir(parents=True)
    (common / "arg.cpp").write_text("int f() {\n    return 1;\n}\n")
    (common / "CMakeLists.txt").write_text("add_library(llama-common arg.cpp)\n")
    return WorkTree(tmp_path / "root")


def snapshot(tree: WorkTree) -> dict[str, tuple[str, int]]:
    return {
        path.relative_to(tree.src).as_posix(): (path.read_text(), path.stat().st_mtime_ns)
        for path in tree.src.rglob("*")
        if path.is_file()
    }


def test_applying_twice_changes_nothing_not_even_time_stamps(tree: WorkTree, ours: Path) -> None:
    tree.apply(ours, "b1")
    first = snapshot(tree)
    assert "    ours();\n    return 1;" in first["common/arg.cpp"][0]
    assert first["ollama-spec/accept.cpp"][0] == "int accept;\n"
    tree.apply(ours, "b1")
    assert snapshot(tree) == first


def test_stock_gives_the_first_text_back(tree: WorkTree, ours: Path) -> None:
    before = {name: text for name, (text, _) in snapshot(tree).items()}
    tree.apply(ours, "b1")
    tree.make_stock()
    after = {name: text for name, (text, _) in snapshot(tree).items()}
    assert {name: after[name] for name in before} == before


def test_a_changed_hook_starts_from_the_first_text(tree: WorkTree, ours: Path) -> None:
    tree.apply(ours, "b1")
    (ours / "hooks.yaml").write_text(HOOKS.replace("ours();", "theirs();"))
    tree.apply(ours, "b1")
    text = (tree.src / "common/arg.cpp").read_text()
    assert "theirs();" in text and "ours();" not in text


def test_a_miss_changes_no_file(tree: WorkTree, ours: Path) -> None:
    before = snapshot(tree)
    miss = '- {id: two, file: common/arg.cpp, anchor: "none", action: after, line: x}\nsources:'
    (ours / "hooks.yaml").write_text(HOOKS.replace("sources:", miss))
    with pytest.raises(OverlayError, match="hook two"):
        tree.apply(ours, "b1")
    left = snapshot(tree)
    assert {name: left[name] for name in before} == before
    assert "ours();" not in left["common/arg.cpp"][0]
