"""The real Ollama, for tests: its own program by `go install`, laid out as its installer does.

Its `lib/ollama` is ours: stock llama.cpp at the tag Ollama pins, built with the options Ollama
documents (shared libraries, loadable backends, no OpenMP, no native tuning, stripped). One CPU
variant instead of all of them; nothing else differs that a client could see. Not included: Ollama's
compat patches, whose source is not part of what `go install` gives us to compile against, so only
GGUFs in upstream layout load here.

    python tests/real_ollama/install.py      prints the folder; builds it first when needed
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "0.32.15"
TAG = "b10488"
MODULE = "github.com/ollama/ollama"
_GO_PLACES = ("/usr/local/go/bin", "/usr/lib/go/bin", "/opt/homebrew/bin")
_TARGETS = ["llama-server", "llama-quantize"]
_OPTIONS = {
    "BUILD_SHARED_LIBS": "ON",
    "GGML_BACKEND_DL": "ON",
    "GGML_NATIVE": "OFF",
    "GGML_CPU_ALL_VARIANTS": "OFF",
    "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
    "CMAKE_INSTALL_RPATH": "$ORIGIN",
}


class Missing(Exception):
    """A part that this machine lacks; the text names it."""


def find_go() -> Path:
    found = shutil.which("go", path=os.pathsep.join([os.environ.get("PATH", ""), *_GO_PLACES]))
    if not found:
        raise Missing("no Go toolchain (`go`), which the real Ollama is compiled with")
    return Path(found)


def installed(cache: Path) -> Path:
    """The tree `<cache>/ollama-<version>-<tag>` with bin/ and lib/ollama/, made when absent."""
    tree = cache / f"ollama-{VERSION}-{TAG}"
    libraries = tree / "lib" / "ollama"
    if not (tree / "bin" / "ollama").is_file():
        _install_program(cache / "go", tree / "bin")
    if not (libraries / "llama-server").is_file():
        _install_libraries(libraries)
    return tree


def _install_program(scratch: Path, target: Path) -> None:
    go = find_go()
    # The version is set by the linker in Ollama's own releases too; it is 0.0.0 otherwise.
    stamp = f"-s -w -X={MODULE}/version.Version={VERSION} -X={MODULE}/server.mode=release"
    env = {
        **os.environ,
        "GOPATH": str(scratch / "path"),
        "GOBIN": str(scratch / "bin"),
        "GOCACHE": str(scratch / "cache"),
        "GOFLAGS": "-modcacherw",
        "GOTOOLCHAIN": "local",
    }
    done = subprocess.run(
        [str(go), "install", f"-ldflags={stamp}", f"{MODULE}@v{VERSION}"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise Missing(f"`go install {MODULE}@v{VERSION}` failed: {reason}")
    target.mkdir(parents=True, exist_ok=True)
    partial = target / ".ollama.partial"
    shutil.copy2(scratch / "bin" / "ollama", partial)
    partial.replace(target / "ollama")
    # 2 GB of modules and objects that nothing needs again.
    shutil.rmtree(scratch, ignore_errors=True)


def _install_libraries(target: Path) -> None:
    from fixtures.real import caches

    from ollama_spec import paths
    from ollama_spec.build import toolchain
    from ollama_spec.build.native import compile_tree, prepare_tree
    from ollama_spec.build.tags import table

    with caches():
        # A tree of its own: the one of the native engine changes between stock and patched.
        root = paths.ensure(paths.cache_dir() / "build" / f"{TAG}-ollama")
        tree, info = prepare_tree(root, TAG, None)
        tree.make_stock()
        commit = table().commits.get(TAG, info.commit)
        build = root / "shared"
        tools = toolchain.find()
        compile_tree(tree.src, build, TAG, commit, tools, _TARGETS, None, _OPTIONS)
    staged = target.with_name(".ollama.partial")
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    built = build / "bin"
    for path in sorted(built.iterdir()):
        if path.name in _TARGETS or ".so" in path.name:
            shutil.copy2(path, staged / path.name, follow_symlinks=False)
            if not path.is_symlink():
                subprocess.run(["strip", "--strip-unneeded", str(staged / path.name)], check=True)
    shutil.rmtree(target, ignore_errors=True)
    staged.rename(target)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from fixtures.real import REAL_CACHE

    print(installed(REAL_CACHE))
