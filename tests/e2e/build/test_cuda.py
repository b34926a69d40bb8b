"""CUDA for real: the native engine compiles ggml-cuda, and the result is linked as it should be.

Needs a CUDA toolkit (CONTRIBUTING says how to have one from the package registry) and about 40
minutes of two cores, so `pytest -m slow` runs it, not CI. No GPU is needed; without a driver the
runner must say so and compute on the CPU.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from fixtures.real import TAG, caches
from fixtures.servers import chat, server

from ollama_spec.build import cuda_toolkit, elf
from ollama_spec.build.native import build_native

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * 3600)]


def driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def test_the_native_engine_compiles_and_links_cuda(smollm2: Path, tmp_path: Path) -> None:
    if cuda_toolkit.home() is None:
        pytest.skip("no CUDA toolkit: set CUDA_HOME (CONTRIBUTING, CUDA for real)")
    with caches():
        artefact = build_native(TAG, backend="cuda", cuda_arch="86", use=False)
    manifest, folder = artefact.manifest, artefact.server.parent
    assert (manifest.engine, manifest.backend, manifest.cuda_arch) == (
        "native",
        "cuda",
        ["86-real"],
    )
    assert elf.problems(folder) == []  # no path of a stub or toolkit, no NCCL
    module = elf.read(folder / "libggml-cuda.so")
    assert module.runpath == ["$ORIGIN"]
    assert {"libcuda.so.1", "libggml-base.so.0"} <= set(module.needed)
    for name in module.needed:
        if name.startswith(("libcudart", "libcublas")):
            assert (folder / name).is_file()
    assert elf.read(artefact.server).runpath == ["$ORIGIN"]

    argv = [str(artefact.server), "--model", str(smollm2), "--ctx-size", "512", "--threads", "1"]
    with server(argv, tmp_path) as (client, _):
        chat(client, "Say hello.", max_tokens=4)
    log = (tmp_path / "log").read_text(errors="replace")
    plain = "CUDA cannot be used, so the model runs on the CPU: is the GPU's driver installed?"
    assert (plain in log) != driver()
    if not driver():
        assert "libcuda.so.1: cannot open shared object file" in log
