"""`build check`: does the overlay fit a tag? Hooks apply once each, what they touch compiles.

Compiling means `-fsyntax-only` of our own sources and of every hooked .cpp file, with the include
folders CMake would give them: seconds per file instead of a build per tag.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
from pydantic import Field

from ollama_spec import paths
from ollama_spec.build import compile as compiling
from ollama_spec.build import overlay, sources, tags, toolchain
from ollama_spec.build.worktree import WorkTree
from ollama_spec.errors import BuildError
from ollama_spec.exclusive import exclusive
from ollama_spec.profiles import Strict
from ollama_spec.resources import resource_dir

_INCLUDES = (
    ".", "include", "ggml/include", "ggml/src", "src", "common", "vendor", "tools/mtmd",
    "tools/server", "vendor/nlohmann", "vendor/sheredom", overlay.FOLDER,
)  # fmt: skip


class CheckResult(Strict):
    tag: str
    checked_as: str  # the nearest tag that has a source, where `tag` itself has none
    pinned_by: list[str] = Field(description="Ollama releases that carry the tag")
    applies: bool = False
    compiles: bool | None = None  # None: not tried
    files: int = 0
    error: str | None = None


def resolve_tags(words: str) -> list[str]:
    """ "all": every pin of Ollama since v0.30.0 and the newest known; else a comma list."""
    if words != "all":
        chosen = [word.strip() for word in words.split(",") if word.strip()]
        for tag in chosen:
            overlay.tag_number(tag)
        return chosen
    facts = tags.table()
    newest = f"b{max(facts.sdists)}"
    return [*tags.pins(facts), *([] if newest in tags.pins(facts) else [newest])]


def check_tag(tag: str, *, source: str | None = None, compile_: bool = True) -> CheckResult:
    """Check one tag; what does not fit is in the result's `error`, other failures are raised."""
    facts = tags.table()
    known = int(tag[1:]) in facts.sdists
    actual = tag if known or source else tags.nearest_sdist(tag, facts)
    if not known and source is None and sources.git_has(tag):
        actual = tag
    releases = [version for version, pin in facts.releases.items() if pin == tag]
    result = CheckResult(tag=tag, checked_as=actual, pinned_by=releases)
    untouched = pristine(actual, source)
    ours = resource_dir("runner_src")
    with compiling.interruptible("check"), _scratch() as scratch:
        tree = WorkTree(scratch)
        shutil.copytree(untouched, tree.src)
        try:
            tree.apply(ours, actual)
        except BuildError as error:
            return result.model_copy(update={"error": error.message})
        files = compiled_files(overlay.load(ours), actual, tree)
        result = result.model_copy(update={"applies": True, "files": len(files)})
        if not compile_:
            return result
        wrong = _syntax_errors(tree.src, files)
    return result.model_copy(update={"compiles": not wrong, "error": wrong[0] if wrong else None})


def compiled_files(plan: overlay.Overlay, tag: str, tree: WorkTree) -> list[str]:
    """Our own sources and the hooked .cpp files of `tag`, relative to the tree."""
    touched = overlay.plan(plan, tag, tree.pristine)
    ours = [
        f"{overlay.FOLDER}/{item.file}"
        for item in plan.sources
        if overlay.tag_matches(tag, item.tags)
    ]
    ours += [f"{overlay.FOLDER}/{name}" for tool in plan.tools for name in tool.sources]
    return sorted({*ours, *(file for file in touched if file.endswith(".cpp"))})


def pristine(tag: str, source: str | None) -> Path:
    """An untouched tree of `tag`, kept in the cache between checks."""
    folder = paths.cache_dir() / "check" / tag
    with exclusive(folder.with_suffix(".lock"), f"the tree of {tag}", "fetched"):
        if source not in (None, "auto", "git", "registry"):
            return Path(str(source)).expanduser()
        if not folder.is_dir():
            sources.obtain(tag, source, folder)
    return folder


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder of this process, gone afterwards; those of killed processes go too."""
    root = paths.ensure(paths.cache_dir() / "check")
    for left in root.glob(".scratch-*"):
        if not psutil.pid_exists(int(left.name.rpartition("-")[2])):
            shutil.rmtree(left, ignore_errors=True)
    folder = root / f".scratch-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _syntax_errors(src: Path, files: list[str]) -> list[str]:
    cxx = toolchain.compiler("CXX", ("c++", "g++", "clang++"))
    includes = [f"-I{src / name}" for name in _INCLUDES]
    command = [cxx, "-std=c++17", "-fsyntax-only", "-w", *includes]

    def one(file: str) -> str | None:
        done = subprocess.run(
            [*command, str(src / file)],
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
        if done.returncode == 0:
            return None
        return compiling.first_error(done.stderr).replace(f"{src}/", "")

    with ThreadPoolExecutor(toolchain.jobs()) as pool:
        return [error for error in pool.map(one, files) if error]
