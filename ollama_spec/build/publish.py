"""The frame of every build: one at a time per tag, self-tested, published by one rename."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from ollama_spec import output, paths
from ollama_spec.artefacts import Artefact, ArtefactStore, Manifest
from ollama_spec.build import compile as compiling
from ollama_spec.build import selftest, sources
from ollama_spec.errors import BuildError
from ollama_spec.exclusive import exclusive


def produce(key: str, tag: str, make: Callable[[Path], Manifest], *, use: bool) -> Artefact:
    """The artefact `key`, built by `make` unless it exists; put in use if `use` says so.

    `make` gets an empty folder, fills its bin/ and returns a manifest; flags and time are added
    here. Raises what `make` raises, ArtefactUnusable when the self-test fails, and BuildError on
    an interrupt; the runner in use then stays in use and nothing half-made remains.
    """
    store = ArtefactStore()
    with compiling.interruptible():
        artefact = existing(store, key)
        if artefact is None:
            lock = paths.cache_dir() / "build" / f"{tag}.lock"
            with exclusive(lock, f"llama.cpp {tag}", "built"):
                artefact = existing(store, key) or _publish(store, key, tag, make)
        if use:
            put_in_use(store, artefact)
    return artefact


def existing(store: ArtefactStore, key: str) -> Artefact | None:
    """The complete artefact of exactly this key."""
    found = [item for item in store.list() if item.manifest.key == key]
    return found[0] if found and found[0].server.is_file() else None


def put_in_use(store: ArtefactStore, artefact: Artefact) -> None:
    """Make it current, unless it is a stock build and something else already is."""
    if artefact.manifest.overlay is not None or store.current() is None:
        store.use(artefact)


def _publish(
    store: ArtefactStore, key: str, tag: str, make: Callable[[Path], Manifest]
) -> Artefact:
    started = time.monotonic()
    _sweep(tag, store.root)
    staged = store.staging(key)
    try:
        manifest = make(staged)
        if manifest.overlay and manifest.overlay not in key:
            raise BuildError(
                "the hooks changed while they were compiled, so the runner may be a mixture",
                hint="run the build again",
            )
        proof = selftest.check(staged / "bin" / "llama-server", tag)
        seconds = round(time.monotonic() - started, 1)
        done = {"flags": proof.flags, "built_seconds": seconds}
        artefact = store.publish(staged, manifest.model_copy(update=done))
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    output.note(f"built {key} in {seconds:.0f} s")
    return artefact


def _sweep(tag: str, artefacts: Path) -> None:
    """Remove what a killed build left behind: we hold the lock, so none of it is live."""
    root = paths.ensure(paths.cache_dir() / "build" / tag)
    for pattern, folder in ((".src.*.partial", root), (f".*-{tag}-*", artefacts)):
        for path in folder.glob(pattern):
            shutil.rmtree(path, ignore_errors=True)


def copy_licence(src: Path, staged: Path, tag: str) -> None:
    licence = src / "LICENSE"  # some sdists left it out
    text = (
        licence.read_text() if licence.is_file() else f"llama.cpp {tag}: MIT\n{sources.GIT_URL}\n"
    )
    (staged / "LICENSE.llama.cpp").write_text(text)
