"""The thin engine: compile common and server only, and link the libraries Ollama installed.

No CUDA toolkit, about four minutes on two cores. Ollama's own libllama keeps Ollama's compat layer,
so every GGUF of its library loads.

llama-batch.cpp goes into the executable as well: with -rdynamic its functions win over those of
libllama wherever that library calls them through its PLT, which `thin_library` makes sure of. The
runner itself tries a gap between positions when it loads a model, and falls back to positions
without gaps where that fails.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path

from ollama_spec import output, paths
from ollama_spec.artefacts import Artefact, Manifest
from ollama_spec.build import (
    gpu,
    overlay,
    publish,
    selftest,
    sources,
    steps,
    tags,
    thin_library,
    toolchain,
)
from ollama_spec.build.ollamas import backends_of
from ollama_spec.build.thin_project import cmake_project
from ollama_spec.resources import resource_dir


def build_thin(
    tag: str,
    library: Path,
    *,
    source: str | None = None,
    jobs: int | None = None,
    use: bool = True,
) -> Artefact:
    """Build the patched server of `tag` against the libraries in `library` and publish it."""
    told = thin_library.check(library, tag)
    commit = tags.table().commits.get(tag, told)
    thin_library.check_floor(library)
    chosen = thin_library.gpu_folder(backends_of(library), gpu.report())
    parts = [tag, f"spec-{overlay.digest(resource_dir('runner_src'))}", "thin", _identity(library)]
    key = "-".join([*parts, *([chosen] if chosen else []), *sources.key_part(source)])

    def make(staged: Path) -> Manifest:
        return _make(staged, key, tag, library, chosen, commit, source, jobs)

    return publish.produce(key, tag, make, use=use)


def _identity(library: Path) -> str:
    total = hashlib.sha256()
    for name in thin_library.LIBRARIES:
        total.update((library / f"{name}.so.0").read_bytes())
    return total.hexdigest()[:8]


def _make(
    staged: Path,
    key: str,
    tag: str,
    library: Path,
    chosen: str | None,
    commit: str,
    source: str | None,
    jobs: int | None,
) -> Manifest:
    tools = toolchain.find()
    root = paths.cache_dir() / "build" / tag
    tree, info = steps.prepare_tree(root, tag, source)
    thin_library.check_backend_api(library, tree.src)
    ours = resource_dir("runner_src")
    tree.apply(ours, tag)
    project = root / "thin-project"
    text = cmake_project(tree.src, library, overlay.load(ours), tag)
    paths.atomic_write(project / "CMakeLists.txt", text.encode())
    # tools/ui runs a script that it looks for below the top folder.
    if not (project / "scripts").is_symlink():
        (project / "scripts").symlink_to(tree.src / "scripts")
    options = {**steps.OPTIONS, "GGML_BACKEND_DL": "ON"}
    wanted = list(steps.TARGETS)
    steps.compile_tree(project, root / "thin", tag, commit, tools, wanted, jobs, options)
    for name in wanted:
        shutil.copy2(root / "thin/bin" / name, staged / "bin" / name)
    copy_libraries(library, chosen, staged / "bin")
    publish.copy_licence(tree.src, staged, tag)
    if selftest.positions(staged / "bin/llama-server") == "compact":
        output.note("these libraries take no gaps: sparse prefill will use compact positions")
    return Manifest(
        key=key,
        tag=tag,
        commit=commit,
        source=f"{info.origin} ({info.identity}); libraries of {library}",
        overlay=overlay.digest(ours),
        engine="thin",
        backend="+".join(["cpu", *([chosen] if chosen else [])]),
        compat=thin_library.has_compat(library),
        flags=[],
        compiler=tools.compiler,
    )


def copy_libraries(library: Path, chosen: str | None, target: Path) -> None:
    """Copy what the server loads: an upgrade of Ollama must not change them under a built runner.

    The modules of the GPU folder `chosen` go beside the server, where ggml looks for them. The
    vendor's run-time libraries (hundreds of MB, stable ABI) are linked instead of copied.
    """
    for path in sorted(library.iterdir()):
        if re.match(r"lib(llama|mtmd|ggml).*\.so", path.name) and "-impl" not in path.name:
            if path.is_symlink() and os.sep not in str(path.readlink()):
                (target / path.name).symlink_to(path.readlink())
            else:
                shutil.copy2(path, target / path.name)
    for path in sorted((library / chosen).iterdir()) if chosen else ():
        if "ggml-" in path.name:
            shutil.copy2(path, target / path.name)
        elif not (target / path.name).exists():
            (target / path.name).symlink_to(path)
