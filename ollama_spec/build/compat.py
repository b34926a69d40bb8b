"""Ollama's compat layer: what lets libllama load GGUFs of Ollama's own library.

It is taken from Ollama's source on the user's machine, never shipped by us: patches (call sites)
and C++ files below llama/compat. It goes on before our hooks, wherever we build libllama ourselves.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from ollama_spec import output, paths
from ollama_spec.build import sources, tags
from ollama_spec.errors import BuildError
from ollama_spec.exclusive import exclusive

GIT_URL = "https://github.com/ollama/ollama"
FOLDER = "ollama-compat"  # where its C++ files go inside the llama.cpp tree
_TARGETS = {"src/CMakeLists.txt": "llama", "tools/mtmd/CMakeLists.txt": "mtmd"}


def choose(wanted: str, tag: str, version: str | None) -> Path | None:
    """Folder llama/compat for `tag`, as `wanted` says: auto, none, git, or a folder.

    `version` is the Ollama's here. With auto, Ollama's source is looked for in Go's module cache,
    then asked of its repository; without either there is no layer, and that is told.
    """
    if wanted == "none":
        return None
    if wanted != "auto":
        return locate(wanted, tag, version)
    versions = [version] if version else _versions_with(tag)
    for item in versions:
        if _is_source(module_folder(item), tag):
            return module_folder(item) / "llama/compat"
    if versions and sources.reachable(_git_url()):
        return locate("git", tag, versions[0])
    output.note("without Ollama's compat layer: no source of an Ollama with this tag is in reach")
    return None


def module_folder(version: str) -> Path:
    """Where Go keeps the source of that Ollama once something has been installed from it."""
    cache = os.environ.get("GOMODCACHE")
    home = Path(os.environ.get("GOPATH", "").split(os.pathsep)[0] or Path.home() / "go")
    return Path(cache or home / "pkg/mod") / f"github.com/ollama/ollama@v{version}"


def _versions_with(tag: str) -> list[str]:
    """Releases that carry `tag`, newest first, proper ones before candidates."""
    found = [version for version, pin in tags.table().releases.items() if pin == tag]
    return sorted(found, key=lambda v: ("-" not in v, tags.version_key(v)), reverse=True)


def _is_source(root: Path, tag: str) -> bool:
    pin = root / "LLAMA_CPP_VERSION"
    return (root / "llama/compat").is_dir() and pin.is_file() and pin.read_text().strip() == tag


def locate(source: str, tag: str, version: str | None) -> Path:
    """Folder llama/compat of the Ollama whose pin is `tag`: of a folder, or fetched with git."""
    if source == "git":
        version = version or next(iter(_versions_with(tag)), None)
        if version is None:
            raise BuildError(
                f"which Ollama's compat layer? none here or known carries {tag}",
                hint="name a folder with its source: `--compat DIR`",
            )
        root = _fetch(version)
    else:
        root = Path(source).expanduser()
    folder, pin = root / "llama/compat", root / "LLAMA_CPP_VERSION"
    if not folder.is_dir() or not pin.is_file():
        raise BuildError(
            f"{root} is not Ollama's source: it has no llama/compat or no LLAMA_CPP_VERSION"
        )
    if not _is_source(root, tag):
        pinned = pin.read_text().strip()
        raise BuildError(
            f"the compat layer in {root} is for llama.cpp {pinned}, not {tag}",
            hint=f"build with `--tag {pinned}`, or take the source of the matching Ollama",
        )
    return folder


def _git_url() -> str:
    return os.environ.get("OLLAMA_SPEC_OLLAMA_GIT") or GIT_URL


def _fetch(version: str) -> Path:
    target = paths.cache_dir() / "sources" / f"ollama-{version}"
    with exclusive(target.with_suffix(".lock"), f"the source of Ollama {version}", "fetched"):
        if not target.is_dir():
            sources.clone(_git_url(), f"v{version.removeprefix('v')}", target)
    return target


def digest(folder: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.suffix in (".patch", ".cpp", ".h")):
        total.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return total.hexdigest()[:8]


def code_files(folder: Path) -> list[Path]:
    """C++ files to copy into the tree, relative paths kept."""
    return sorted(path for path in folder.rglob("*") if path.suffix in (".cpp", ".h"))


def plan(folder: Path, read: Callable[[str], str | None]) -> dict[str, str]:
    """New texts of the llama.cpp files that the layer changes; raises BuildError on a misfit."""
    patches = sorted(folder.rglob("*.patch"), key=lambda path: path.name)
    with tempfile.TemporaryDirectory(prefix="os-compat-") as scratch:
        root = Path(scratch)
        touched = sorted({file for patch in patches for file in _files_of(patch)})
        for file in touched:
            text = read(file)
            if text is not None:
                paths.atomic_write(root / file, text.encode("utf-8", "surrogateescape"))
        for patch in patches:
            _apply(patch, root)
        texts = {
            file: (root / file).read_text(encoding="utf-8", errors="surrogateescape")
            for file in touched
            if (root / file).is_file()
        }
    for home, target in _TARGETS.items():
        base = texts.get(home) or read(home)
        if base is None:
            raise BuildError(f"this llama.cpp has no {home}, which the compat layer needs")
        texts[home] = base.rstrip("\n") + "\n" + _cmake(folder, home, target, touched)
    return texts


def _cmake(folder: Path, home: str, target: str, touched: list[str]) -> str:
    up = "${CMAKE_CURRENT_LIST_DIR}/" + "/".join([".."] * home.count("/"))
    own = [path.relative_to(folder).as_posix() for path in code_files(folder)]
    files = [
        f"{up}/{FOLDER}/{name}"
        for name in own
        # Whole architectures (models/) belong to llama only.
        if name.endswith(".cpp") and (target == "llama" or "/" not in name)
    ]
    parent = home.removesuffix("CMakeLists.txt")
    changed = [file.removeprefix(parent) for file in touched if file.startswith(parent)]
    lines = [f"target_sources({target} PRIVATE {' '.join(files)})"] if files else []
    sources_ = " ".join([*files, *(name for name in changed if name.endswith(".cpp"))])
    lines.append(
        f"set_property(SOURCE {sources_} APPEND PROPERTY INCLUDE_DIRECTORIES "
        f'"{up}/{FOLDER};{up}/src")'
    )
    if target == "mtmd":
        lines.append(
            f"set_property(SOURCE {sources_} APPEND PROPERTY COMPILE_DEFINITIONS "
            "OLLAMA_COMPAT_MTMD_BUILD)"
        )
    return "\n".join(["", *lines, ""])


def _files_of(patch: Path) -> list[str]:
    return [
        line.split("\t")[0].removeprefix("+++ b/").strip()
        for line in patch.read_text().splitlines()
        if line.startswith("+++ b/")
    ]


def _apply(patch: Path, root: Path) -> None:
    git = shutil.which("git")
    if git is None:
        raise BuildError("git is not installed; the compat layer's patches need it")
    done = subprocess.run(
        [git, "apply", "--whitespace=nowarn", str(patch.resolve())],
        cwd=root,
        capture_output=True,
        text=True,
        # Without this, git would look for a repository above the scratch folder.
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(root.parent)},
        check=False,
    )
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[0]
        raise BuildError(f"Ollama's patch {patch.name} does not fit this llama.cpp: {reason}")
