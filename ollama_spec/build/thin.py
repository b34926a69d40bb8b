"""The thin engine: compile common and server only, and link the libraries Ollama installed.

No CUDA toolkit, about four minutes on two cores. The libraries must be of the very commit the
sources are of: their SONAMEs never change, so nothing but this check stops a wrong pair. Ollama's
own libllama also keeps Ollama's compat layer, so every GGUF of its library loads.

llama-batch.cpp goes into the executable as well: with -rdynamic its functions win over those of
libllama wherever that library calls them through its PLT, which `check_library` makes sure of.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from ollama_spec import output, paths
from ollama_spec.artefacts import Artefact, ArtefactStore, Manifest
from ollama_spec.build import compile as compiling
from ollama_spec.build import llama_version, locks, native, overlay, selftest, tags, toolchain
from ollama_spec.build.publish import existing, put_in_use
from ollama_spec.errors import BuildError
from ollama_spec.resources import resource_dir

LIBRARIES = ("libllama", "libmtmd", "libggml", "libggml-base")
_INTERPOSED = "_ZN18llama_batch_allocr4init"


def check_library(library: Path, tag: str) -> str:
    """Raise BuildError unless `library` fits sources of `tag`; returns its commit or "unknown"."""
    missing = [name for name in LIBRARIES if not (library / f"{name}.so.0").exists()]
    if missing:
        raise BuildError(f"{library} lacks {', '.join(f'{name}.so.0' for name in missing)}")
    version = llama_version.of_binary(library / "llama-server", library)
    if version is None:
        raise BuildError(f"the llama-server in {library} does not say its version")
    check_version(version, tag, library)
    check_interposable(library / "libllama.so.0")
    return version.commit or "unknown"


def check_version(version: llama_version.LlamaVersion, tag: str, library: Path) -> None:
    """A build number or a known commit decides; "build 1" with an unknown commit cannot object."""
    known = tags.table().commits
    other = [
        name
        for name, commit in known.items()
        if version.commit and (commit.startswith(version.commit))
    ]
    named = version.tag or (other[0] if other else None)
    if named and named != tag:
        raise BuildError(
            f"the libraries in {library} are of llama.cpp {named}, not {tag}",
            hint=f"build with `--tag {named}`, or use `--engine native`",
        )


def check_interposable(libllama: Path) -> None:
    """libllama must call its batch allocator through the PLT and export it."""
    for tool, flags, wanted, what in (
        ("readelf", "-rW", "JUMP_SLO", "calls its batch allocator directly (-Bsymbolic or LTO)"),
        ("readelf", "--dyn-syms", " FUNC ", "does not export its batch allocator"),
    ):
        try:
            done = subprocess.run(
                [tool, "--wide", flags, str(libllama)], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise BuildError(
                f"cannot read {libllama}: {error}", hint="install binutils (readelf)"
            ) from error
        lines = [line for line in done.stdout.splitlines() if _INTERPOSED in line]
        if not any(wanted in line and " UND " not in line for line in lines):
            raise BuildError(f"{libllama} {what}")


def build_thin(
    tag: str,
    library: Path,
    *,
    source: str | None = None,
    jobs: int | None = None,
    use: bool = True,
) -> Artefact:
    """Build the patched server of `tag` against the libraries in `library` and publish it."""
    started = time.monotonic()
    commit = check_library(library, tag)
    store = ArtefactStore()
    identity = _library_identity(library)
    key = f"{tag}-spec-{overlay.digest(resource_dir('runner_src'))}-thin-{identity}"
    with compiling.interruptible():
        artefact = existing(store, key)
        if artefact is None:
            with locks.exclusive(paths.cache_dir() / "build" / f"{tag}.lock", f"llama.cpp {tag}"):
                artefact = existing(store, key) or _build(
                    store, key, tag, library, commit, source, jobs, started
                )
        if use:
            put_in_use(store, artefact)
    return artefact


def _library_identity(library: Path) -> str:
    total = hashlib.sha256()
    for name in LIBRARIES:
        total.update((library / f"{name}.so.0").read_bytes())
    return total.hexdigest()[:8]


def _build(
    store: ArtefactStore,
    key: str,
    tag: str,
    library: Path,
    commit: str,
    source: str | None,
    jobs: int | None,
    started: float,
) -> Artefact:
    tools = toolchain.find()
    root = paths.ensure(paths.cache_dir() / "build" / tag)
    tree, info = native.prepare_tree(root, tag, source)
    ours = resource_dir("runner_src")
    tree.apply(ours, tag)
    project = root / "thin-project"
    paths.atomic_write(
        paths.ensure(project) / "CMakeLists.txt",
        cmake_project(tree.src, library, overlay.load(ours), tag).encode(),
    )
    # tools/ui runs a script that it looks for below the top folder.
    if not (project / "scripts").is_symlink():
        (project / "scripts").symlink_to(tree.src / "scripts")
    wanted = list(native.TARGETS)
    options = {"GGML_BACKEND_DL": "ON"}
    native.compile_tree(project, root / "thin", tag, commit, tools, wanted, jobs, options)
    staged = store.staging(key)
    try:
        for name in wanted:
            shutil.copy2(root / "thin/bin" / name, staged / "bin" / name)
        copy_libraries(library, staged / "bin")
        native.copy_licence(tree.src, staged, tag)
        proof = selftest.check(staged / "bin/llama-server", tag)
        manifest = Manifest(
            key=key,
            tag=tag,
            commit=commit,
            source=f"{info.origin} ({info.identity}); libraries of {library}",
            overlay=overlay.digest(ours),
            engine="thin",
            backend="+".join(_backends(library)),
            compat=has_compat(library),
            flags=proof.flags,
            compiler=tools.compiler,
            built_seconds=round(time.monotonic() - started, 1),
        )
        artefact = store.publish(staged, manifest)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    output.note(f"built {key} in {manifest.built_seconds:.0f} s")
    return artefact


def has_compat(library: Path) -> bool:
    """Whether this libllama holds Ollama's compat layer: by the variable that turns it off."""
    return b"OLLAMA_LLAMA_CPP_COMPAT" in (library / "libllama.so.0").read_bytes()


def _backends(library: Path) -> list[str]:
    from ollama_spec.build.ollamas import backends_of

    return backends_of(library)


def copy_libraries(library: Path, target: Path) -> None:
    """Copy what the server loads: an upgrade of Ollama must not change them under a built runner.

    Backend modules are copied too. The vendor's run-time libraries (hundreds of MB, stable ABI)
    are linked instead.
    """
    for path in sorted(library.iterdir()):
        if path.is_dir() and next(path.glob("*ggml-*"), None):
            folder = paths.ensure(target / path.name)
            for item in sorted(path.iterdir()):
                if "ggml-" in item.name:
                    shutil.copy2(item, folder / item.name)
                else:
                    (folder / item.name).symlink_to(item)
        elif re.match(r"lib(llama|mtmd|ggml).*\.so", path.name) and "-impl" not in path.name:
            if path.is_symlink() and os.sep not in str(path.readlink()):
                (target / path.name).symlink_to(path.readlink())
            else:
                shutil.copy2(path, target / path.name)


def cmake_project(src: Path, library: Path, ours: overlay.Overlay, tag: str) -> str:
    """A CMake project: llama.cpp's folders for common and server, on imported libraries.

    llama.cpp's top file cannot be used: it would build the libraries. What the folders expect from
    it (two functions, a version) is given here.
    """
    root = (src / "CMakeLists.txt").read_text()
    version = [
        (re.search(rf"set\(LLAMA_VERSION_{part}\s+(\d+)\)", root) or ["", "0"])[1]
        for part in ("MAJOR", "MINOR", "PATCH")
    ]
    batch = " ".join(
        [f"{src}/src/llama-batch.cpp"]
        + [
            f"{src}/{overlay.FOLDER}/{item.file}"
            for item in ours.sources
            if item.target == "llama" and overlay.tag_matches(tag, item.tags)
        ]
    )
    vendor = "vendor" if (src / "vendor/CMakeLists.txt").is_file() else "vendor/cpp-httplib"
    folders = [vendor, "common", "tools/ui", "tools/server", "tools/quantize"]
    imported = "\n".join(
        f"imported({name} {library}/lib{name}.so.0 {src}/{include})"
        for name, include in (
            ("ggml-base", "ggml/include"),
            ("ggml", "ggml/include"),
            ("llama", "include"),
            ("mtmd", "tools/mtmd"),
        )
    )
    added = "\n".join(
        f"add_subdirectory({src}/{name} ${{CMAKE_BINARY_DIR}}/{name})"
        for name in folders
        if (src / name / "CMakeLists.txt").is_file()
    )
    return f"""\
cmake_minimum_required(VERSION 3.14)
project(ollama-spec-thin C CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${{CMAKE_BINARY_DIR}}/bin)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_BUILD_RPATH "$ORIGIN")
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN")
set(LLAMA_VERSION_MAJOR {version[0]})
set(LLAMA_VERSION_BASE {".".join(version)})
set(LLAMA_VERSION {".".join(version)}-dev)
set(LLAMA_INSTALL_VERSION 0.0.${{LLAMA_BUILD_NUMBER}})
set(LLAMA_BUILD_COMMON ON)
set(LLAMA_TOOLS_INSTALL OFF)
set(BUILD_COMPILER "${{CMAKE_C_COMPILER_ID}} ${{CMAKE_C_COMPILER_VERSION}}")
set(BUILD_TARGET "${{CMAKE_SYSTEM_NAME}} ${{CMAKE_SYSTEM_PROCESSOR}}")
find_package(Threads REQUIRED)
function(llama_add_compile_flags)
endfunction()
function(license_add_file)
endfunction()
function(license_generate)
endfunction()
function(imported name file include)
    add_library(${{name}} SHARED IMPORTED GLOBAL)
    set_target_properties(${{name}} PROPERTIES IMPORTED_LOCATION ${{file}}
        INTERFACE_INCLUDE_DIRECTORIES ${{include}})
endfunction()
{imported}
set_property(TARGET ggml PROPERTY INTERFACE_LINK_LIBRARIES ggml-base)
set_property(TARGET llama PROPERTY INTERFACE_LINK_LIBRARIES ggml)
set_property(TARGET mtmd PROPERTY INTERFACE_LINK_LIBRARIES llama)
add_compile_definitions(LLAMA_SHARED GGML_SHARED GGML_BACKEND_SHARED GGML_BACKEND_DL)
include_directories({src})
{added}
target_sources(llama-server PRIVATE {batch})
set_property(SOURCE {batch} TARGET_DIRECTORY llama-server APPEND PROPERTY
    INCLUDE_DIRECTORIES "{src}/src;{src}/{overlay.FOLDER}")
set_target_properties(llama-server PROPERTIES ENABLE_EXPORTS ON)
"""
