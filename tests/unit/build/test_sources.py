"""Sources: safe unpacking, a real git repository, folders, and a clear word for unknown tags."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from ollama_spec.build import sources
from ollama_spec.errors import BuildError

FILES = {"CMakeLists.txt": b"project(x)\n", "common/arg.cpp": b"int a;\n"}


def sdist(path: Path, members: dict[str, bytes], link: str | None = None) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        if link:
            info = tarfile.TarInfo(link)
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(info)
    return path


def write_tree(folder: Path) -> Path:
    for name, data in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def test_only_the_llama_cpp_folder_of_an_sdist_is_taken(tmp_path: Path) -> None:
    members = {f"pkg-1/llama.cpp/{name}": data for name, data in FILES.items()}
    members |= {"pkg-1/setup.py": b"x", "pkg-1/llama.cpp/models/big.gguf": b"x"}
    archive = sdist(tmp_path / "a.tar.gz", members, link="pkg-1/llama.cpp/common/link")
    sources.extract(archive, tmp_path / "out")
    found = [p for p in (tmp_path / "out").rglob("*") if p.is_file() or p.is_symlink()]
    assert sorted(p.relative_to(tmp_path / "out").as_posix() for p in found) == sorted(FILES)


def test_a_path_that_climbs_out_is_refused(tmp_path: Path) -> None:
    archive = sdist(tmp_path / "a.tar.gz", {"pkg-1/llama.cpp/common/../../../evil": b"x"})
    with pytest.raises(BuildError, match="unsafe path"):
        sources.extract(archive, tmp_path / "out")
    assert not (tmp_path / "evil").exists()


def git(folder: Path, *argv: str) -> str:
    identity = {f"GIT_{who}_{what}": "t@t" for who in ("AUTHOR", "COMMITTER") for what in ("NAME",)}
    identity |= {f"GIT_{who}_EMAIL": "t@t" for who in ("AUTHOR", "COMMITTER")}
    done = subprocess.run(
        ["git", *argv],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **identity},
    )
    return done.stdout.strip()


def test_git_gives_the_tree_and_commit_of_the_tag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = write_tree(tmp_path / "repo")
    git(repository, "init", "-q")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "one")
    git(repository, "tag", "b77")
    commit = git(repository, "rev-parse", "HEAD")
    (repository / "common/arg.cpp").write_text("later\n")
    git(repository, "commit", "-qam", "two")
    monkeypatch.setenv("OLLAMA_SPEC_LLAMA_GIT", str(repository))

    assert sources.git_has("b77") and not sources.git_has("b78")
    info = sources.obtain("b77", None, tmp_path / "out")
    assert (info.kind, info.identity, info.commit) == ("git", commit, commit[:9])
    assert (tmp_path / "out/common/arg.cpp").read_bytes() == FILES["common/arg.cpp"]
    assert not (tmp_path / "out/.git").exists()
    with pytest.raises(BuildError, match="cannot fetch b78"):
        sources.obtain("b78", "git", tmp_path / "other")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "repo"]


def test_a_folder_is_copied_and_known_by_its_content(tmp_path: Path) -> None:
    folder = write_tree(tmp_path / "mine")
    info = sources.obtain("b1", str(folder), tmp_path / "out")
    assert info.kind == "dir" and info.identity == sources.folder_identity(folder)
    (folder / "common/arg.cpp").write_text("changed")
    assert info.identity != sources.folder_identity(folder)


def test_a_folder_of_the_users_own_is_part_of_an_artefacts_key(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text("one")
    (first,) = sources.key_part(str(tmp_path))
    (tmp_path / "CMakeLists.txt").write_text("two")
    assert sources.key_part(str(tmp_path)) != [first]
    assert sources.key_part(None) == sources.key_part("git") == []


def test_what_is_no_llama_cpp_tree_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text("project(other)\n")
    with pytest.raises(BuildError, match=r"not a llama.cpp source tree"):
        sources.obtain("b1", str(folder), tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_a_tag_without_an_sdist_is_answered_with_the_nearest(tmp_path: Path) -> None:
    # A real registry that has no such version and one that cannot be reached read the same here.
    with pytest.raises(BuildError, match=r"no source of llama.cpp b9889") as caught:
        sources.obtain("b9889", "registry", tmp_path / "out")
    assert "b9840, b10069" in str(caught.value.hint)
