"""What every engine that compiles here does: get the tree of a tag, then CMake and Ninja on it.

One tree per tag serves stock and patched builds alike (worktree.py), below cache/build/<tag>/.
Build folders survive failures and interrupts, so the next try is incremental.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from ollama_spec import output
from ollama_spec.build import compile as compiling
from ollama_spec.build import overlay, sources, toolchain
from ollama_spec.build.worktree import WorkTree
from ollama_spec.errors import BuildError

TARGETS = ("llama-server", "llama-quantize")
_NEEDED_BYTES = 300 * 2**20
_FULL_BYTES = 4 * 2**20
# What shortens the build without touching what we use; options a tag lacks are ignored by CMake.
OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "BUILD_SHARED_LIBS": "OFF",
    "GGML_NATIVE": "ON",
    "GGML_OPENMP": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_TOOLS": "ON",
    "LLAMA_BUILD_SERVER": "ON",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",
    "LLAMA_OPENSSL": "OFF",
    "LLAMA_SUBPROCESS": "OFF",
    "MTMD_VIDEO": "OFF",
}
# Ollama's own layout: one server, backends as modules beside it, found by `$ORIGIN`.
MODULES = {
    **OPTIONS,
    "BUILD_SHARED_LIBS": "ON",
    "GGML_BACKEND_DL": "ON",
    "GGML_NATIVE": "OFF",
    "GGML_CPU_ALL_VARIANTS": "ON",
    "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
    "CMAKE_INSTALL_RPATH": "$ORIGIN",
}
CUDA = {
    "GGML_CUDA": "ON",
    "GGML_CUDA_NCCL": "OFF",  # toolkits bring NCCL, hosts often lack it
    "CMAKE_CUDA_FLAGS": "-t 1",
    # Where we build there may be only a stub of the driver's library.
    "CMAKE_EXE_LINKER_FLAGS": "-Wl,--allow-shlib-undefined",
}


def prepare_tree(root: Path, tag: str, source: str | None) -> tuple[WorkTree, sources.SourceInfo]:
    """The tree of `tag` below `root`: kept when it is the one asked for, else fetched anew."""
    tree, record = WorkTree(root), root / "source.json"
    info = sources.load_info(record) if tree.src.is_dir() else None
    if info and not _same_source(info, source):
        info = None
    if info is None:
        record.unlink(missing_ok=True)
        shutil.rmtree(root / "pristine", ignore_errors=True)
        info = sources.obtain(tag, source, tree.src)
        sources.save_info(record, info)
    return tree, info


def _same_source(info: sources.SourceInfo, source: str | None) -> bool:
    if source in (None, "auto"):
        return info.kind != "dir"
    if source in ("git", "registry"):
        return info.kind == source
    folder = Path(str(source)).expanduser()
    return info.origin == str(folder) and info.identity == sources.folder_identity(folder)


def compile_tree(
    src: Path,
    build: Path,
    tag: str,
    commit: str,
    tools: toolchain.Toolchain,
    targets: list[str],
    jobs: int | None,
    options: dict[str, str] | None = None,
) -> None:
    """Configure and build `targets` of the tree `src` in the folder `build`.

    `options` defaults to OPTIONS. A disk found full gives the space of `build` back.
    """
    free = shutil.disk_usage(build.parent).free
    if free < _NEEDED_BYTES and not build.is_dir():
        raise compiling.disk_full(f"{build.parent} has {output.human_size(free)} left")
    defines = {
        **(options or OPTIONS),
        # CMake would ask git otherwise, and find our own repository or nothing.
        "LLAMA_BUILD_NUMBER": str(overlay.tag_number(tag)),
        "LLAMA_BUILD_COMMIT": commit[:9],  # as long as upstream prints it
        "CMAKE_MAKE_PROGRAM": tools.ninja,
    }
    if tools.ccache:
        languages = ("C", "CXX", *(["CUDA"] if "GGML_CUDA" in defines else []))
        defines |= {f"CMAKE_{lang}_COMPILER_LAUNCHER": tools.ccache for lang in languages}
    try:
        _run(src, build, tag, tools, targets, toolchain.jobs(jobs), defines)
    except BuildError as error:
        if "disk is full" not in error.message and _free(build) > _FULL_BYTES:
            raise
        # A full disk often shows as some other error.
        shutil.rmtree(build, ignore_errors=True)
        raise compiling.disk_full("the compiler had no space left") from error


def _free(build: Path) -> int:
    return shutil.disk_usage(build.parent).free


def _run(
    src: Path,
    build: Path,
    tag: str,
    tools: toolchain.Toolchain,
    targets: list[str],
    jobs: int,
    defines: dict[str, str],
) -> None:
    env = toolchain.environment(tools, build.parent)
    arguments = [f"-D{name}={value}" for name, value in defines.items()]
    output.note(
        f"building llama.cpp {tag} with {jobs} job{'s' if jobs > 1 else ''}, {tools.compiler}"
    )
    compiling.run(
        [tools.cmake, "-G", "Ninja", "-S", str(src), "-B", str(build), *arguments], env=env
    )
    progress = compiling.Progress("compiling")
    try:
        compiling.run(
            [tools.ninja, "-C", str(build), "-j", str(jobs), *targets], env=env, progress=progress
        )
    finally:
        progress.close()
