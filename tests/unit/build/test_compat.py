"""Ollama's compat layer: where it is taken from, and how it goes into a tree."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ollama_spec.build import compat, sources
from ollama_spec.errors import BuildError

PATCH = """\
--- a/src/llama-model-loader.cpp
+++ b/src/llama-model-loader.cpp
@@ -1,3 +1,4 @@
 one
+ours
 two
 three
"""


def layer(root: Path, pin: str = "b5") -> Path:
    folder = root / "llama/compat"
    (folder / "models").mkdir(parents=True)
    (folder / "001-hooks.patch").write_text(PATCH)
    (folder / "layer.cpp").write_text("int layer;")
    (folder / "models/extra.cpp").write_text("int extra;")
    (root / "LLAMA_CPP_VERSION").write_text(pin + "\n")
    return folder


TREE = {
    "src/llama-model-loader.cpp": "one\ntwo\nthree\n",
    "src/CMakeLists.txt": "add_library(llama)\n",
    "tools/mtmd/CMakeLists.txt": "add_library(mtmd)\n",
}


def test_the_compat_layer_patches_and_adds_its_sources(tmp_path: Path) -> None:
    folder = layer(tmp_path)
    assert compat.locate(str(tmp_path), "b5", None) == folder
    texts = compat.plan(folder, TREE.get)
    assert texts["src/llama-model-loader.cpp"] == "one\nours\ntwo\nthree\n"
    llama, mtmd = texts["src/CMakeLists.txt"], texts["tools/mtmd/CMakeLists.txt"]
    assert "ollama-compat/layer.cpp" in llama and "ollama-compat/models/extra.cpp" in llama
    assert "ollama-compat/layer.cpp" in mtmd and "models/extra.cpp" not in mtmd
    assert "OLLAMA_COMPAT_MTMD_BUILD" in mtmd and "OLLAMA_COMPAT_MTMD_BUILD" not in llama


def test_a_compat_layer_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    folder = layer(tmp_path, pin="b6")
    with pytest.raises(BuildError, match=r"is for llama.cpp b6, not b5"):
        compat.locate(str(tmp_path), "b5", None)
    with pytest.raises(BuildError, match=r"patch 001-hooks\.patch does not fit"):
        compat.plan(folder, {**TREE, "src/llama-model-loader.cpp": "other\n"}.get)
    with pytest.raises(BuildError, match="not Ollama's source"):
        compat.locate(str(tmp_path / "none"), "b5", None)


def test_the_layer_is_taken_from_gos_module_cache_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GOMODCACHE", str(tmp_path))
    monkeypatch.setattr(sources, "reachable", lambda url: False)
    assert compat.choose("auto", "b10488", None) is None
    assert "without Ollama's compat layer" in capsys.readouterr().err
    folder = layer(compat.module_folder("0.32.15"), "b10488")
    assert compat.module_folder("0.32.15") == tmp_path / "github.com/ollama/ollama@v0.32.15"
    # b10488 is what 0.32.15 carries: found whether or not that Ollama is installed.
    assert compat.choose("auto", "b10488", "0.32.15") == folder
    assert compat.choose("auto", "b10488", None) == folder
    # The source of another release, or of one that carries another tag, does not count.
    assert compat.choose("auto", "b10380", None) is None
    assert compat.choose("auto", "b10488", "0.32.14") is None
    assert compat.choose("none", "b10488", "0.32.15") is None


def test_the_layer_is_fetched_where_git_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream = tmp_path / "upstream"
    layer(upstream, "b10488")
    run = ["git", "-C", str(upstream), "-c", "user.name=x", "-c", "user.email=x@x"]
    for argv in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"], ["tag", "v0.32.15"]):
        subprocess.run([*run, *argv], check=True)
    monkeypatch.setenv("OLLAMA_SPEC_OLLAMA_GIT", str(upstream))
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "none"))
    found = compat.choose("auto", "b10488", "0.32.15")
    assert found is not None and (found / "layer.cpp").read_text() == "int layer;"
    assert compat.choose("git", "b10488", None) == found
