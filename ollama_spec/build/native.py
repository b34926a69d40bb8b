"""The native engine: compile llama-server with this machine's own compiler.

One tree and one build folder per tag serve stock and patched builds alike (worktree.py), below
cache/build/<tag>/. The folder survives failures and interrupts, so the next try is incremental.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from pathlib import Path

from ollama_spec import output, paths
from ollama_spec.artefacts import Artefact, ArtefactStore, Manifest
from ollama_spec.build import compat as compats
from ollama_spec.build import compile as compiling
from ollama_spec.build import locks, overlay, selftest, sources, toolchain
from ollama_spec.build.publish import existing, put_in_use
from ollama_spec.build.tags import table
from ollama_spec.build.worktree import WorkTree
from ollama_spec.errors import BuildError
from ollama_spec.resources import resource_dir

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


def build_native(
    tag: str,
    *,
    stock: bool = False,
    source: str | None = None,
    jobs: int | None = None,
    use: bool = True,
    compat: str | None = None,
    ollama: str | None = None,
) -> Artefact:
    """Build llama.cpp `tag` with our overlay (or as it comes, with `stock`) and publish it.

    `compat` is a folder with Ollama's source, or "git" for that of version `ollama`: its compat
    layer then goes on first.

    Returns at once when the same artefact exists. With `use` it becomes the runner in use, unless
    it is a stock build and another is already in use. Raises BuildError and its subclasses.
    """
    started = time.monotonic()
    overlay.tag_number(tag)
    store = ArtefactStore()
    layer = compats.locate(compat, tag, ollama) if compat and not stock else None
    key = artefact_key(tag, stock=stock, source=source, layer=layer)
    with compiling.interruptible():
        artefact = existing(store, key)
        if artefact is None:
            with locks.exclusive(paths.cache_dir() / "build" / f"{tag}.lock", f"llama.cpp {tag}"):
                artefact = existing(store, key) or _build(
                    store,
                    key,
                    tag,
                    stock=stock,
                    source=source,
                    jobs=jobs,
                    layer=layer,
                    started=started,
                )
        if use:
            put_in_use(store, artefact)
    return artefact


def artefact_key(tag: str, *, stock: bool, source: str | None, layer: Path | None = None) -> str:
    """Names tag, kind, CPU, compat layer and, for a folder given by the user, its content."""
    parts = [tag, "stock" if stock else f"spec-{overlay.digest(resource_dir('runner_src'))}"]
    parts += ["native", "cpu", toolchain.host_id()]
    if layer:
        parts.append(f"compat-{compats.digest(layer)}")
    if source not in (None, "auto", "git", "registry"):
        identity = sources.folder_identity(Path(str(source)).expanduser())
        parts.append(hashlib.sha256(identity.encode()).hexdigest()[:8])
    return "-".join(parts)


def _build(
    store: ArtefactStore,
    key: str,
    tag: str,
    *,
    stock: bool,
    source: str | None,
    jobs: int | None,
    layer: Path | None,
    started: float,
) -> Artefact:
    tools = toolchain.find()
    root = paths.ensure(paths.cache_dir() / "build" / tag)
    _sweep(root, store.root)
    _require_space(root)
    tree, info = prepare_tree(root, tag, source)
    ours = resource_dir("runner_src")
    if stock:
        tree.make_stock()
    else:
        tree.apply(ours, tag, layer)
    build = root / "native"
    wanted = list(TARGETS)
    if not stock:
        wanted += [tool.name for tool in overlay.load(ours).tools]
    commit = table().commits.get(tag, info.commit)
    try:
        compile_tree(tree.src, build, tag, commit, tools, wanted, jobs)
    except BuildError as error:
        if "disk is full" not in error.message and shutil.disk_usage(root).free > _FULL_BYTES:
            raise
        # A full disk often shows as some other error; give the space back.
        shutil.rmtree(build, ignore_errors=True)
        raise compiling.disk_full("the compiler had no space left") from error
    staged = store.staging(key)
    try:
        for name in wanted:
            shutil.copy2(build / "bin" / name, staged / "bin" / name)
        copy_licence(tree.src, staged, tag)
        proof = selftest.check(staged / "bin" / "llama-server", tag)
        manifest = Manifest(
            key=key,
            tag=tag,
            commit=commit,
            source=f"{info.origin} ({info.identity})",
            overlay=None if stock else overlay.digest(ours),
            engine="native",
            compat=layer is not None,
            flags=proof.flags,
            compiler=tools.compiler,
            built_seconds=round(time.monotonic() - started, 1),
        )
        artefact = store.publish(staged, manifest)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    output.note(f"built {key} in {manifest.built_seconds:.0f} s")
    return artefact


def copy_licence(src: Path, staged: Path, tag: str) -> None:
    licence = src / "LICENSE"  # some sdists left it out
    text = (
        licence.read_text() if licence.is_file() else f"llama.cpp {tag}: MIT\n{sources.GIT_URL}\n"
    )
    (staged / "LICENSE.llama.cpp").write_text(text)


def _sweep(root: Path, artefacts: Path) -> None:
    """Remove what a killed build left behind: we hold the lock, so none of it is live."""
    for pattern, folder in ((".src.*.partial", root), (f".*-{root.name}-*", artefacts)):
        for path in folder.glob(pattern):
            shutil.rmtree(path, ignore_errors=True)


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
    """Configure and build `targets` of the tree `src` in the folder `build`."""
    env = toolchain.environment(tools, build.parent)
    defines = {
        **OPTIONS,
        **(options or {}),
        # CMake would ask git otherwise, and find our own repository or nothing.
        "LLAMA_BUILD_NUMBER": str(overlay.tag_number(tag)),
        "LLAMA_BUILD_COMMIT": commit,
        "CMAKE_MAKE_PROGRAM": tools.ninja,
    }
    if tools.ccache:
        defines |= {f"CMAKE_{lang}_COMPILER_LAUNCHER": tools.ccache for lang in ("C", "CXX")}
    arguments = [f"-D{name}={value}" for name, value in defines.items()]
    count = toolchain.jobs(jobs)
    output.note(
        f"building llama.cpp {tag} with {count} job{'s' if count > 1 else ''}, {tools.compiler}"
    )
    compiling.run(
        [tools.cmake, "-G", "Ninja", "-S", str(src), "-B", str(build), *arguments], env=env
    )
    progress = compiling.Progress("compiling")
    try:
        compiling.run(
            [tools.ninja, "-C", str(build), "-j", str(count), *targets], env=env, progress=progress
        )
    finally:
        progress.close()


def _require_space(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < _NEEDED_BYTES and not (folder / "native").is_dir():
        raise compiling.disk_full(f"{folder} has {output.human_size(free)} left")
