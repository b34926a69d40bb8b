"""A CUDA toolkit in an installer's layout or in that of the Python wheels; which one is taken."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ollama_spec import paths
from ollama_spec.build import cuda_plan, cuda_toolkit, elf, native
from ollama_spec.build.gpu import Gpu, GpuReport
from ollama_spec.errors import BuildError

NVCC = """\
#!/bin/sh
echo 'nvcc: NVIDIA (R) Cuda compiler driver'
echo 'Cuda compilation tools, release 13.0, V13.0.88'
"""
HEADER = """\
#define cuMemFree cuMemFree_v2
CUresult CUDAAPI cuMemFree(CUdeviceptr dptr);
CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size);
"""


def toolkit(home: Path, folder: str) -> Path:
    for part in ("bin", "include", "nvvm/bin", folder):
        (home / part).mkdir(parents=True)
    (home / "bin/nvcc").write_text(NVCC)
    (home / "bin/nvcc").chmod(0o755)
    (home / "include/cuda.h").write_text(HEADER)
    for name in ("libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libother.so.1"):
        (home / folder / name).touch()
    return home


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    found = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "nvcc" else found(name))
    monkeypatch.setattr(cuda_toolkit, "_USUAL", ())


@pytest.mark.usefixtures("nowhere")
def test_the_layout_of_wheels_is_completed_beside_the_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = toolkit(tmp_path / "nvidia/cu13", "lib")
    monkeypatch.setenv("CUDA_HOME", str(home))
    before = sorted(home.rglob("*"))
    found = cuda_toolkit.find()
    assert (found.home, found.text, found.version) == (home, "13.0.88", (13, 0))
    assert found.root.is_relative_to(paths.cache_dir())
    assert (found.root / "lib64/libcudart.so").resolve() == home / "lib/libcudart.so.13"
    assert not (found.root / "bin/nvcc").is_symlink()  # else nvcc takes `home` for its root
    assert sorted(home.rglob("*")) == before
    names = [path.name for path in found.runtime_libraries()]
    assert names == ["libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13"]
    assert {path.parent for path in found.runtime_libraries()} == {home / "lib"}
    assert cuda_toolkit.find() == found  # and the second time nothing is made anew


def test_the_stub_names_the_drivers_functions_and_its_soname(tmp_path: Path) -> None:
    (tmp_path / "cuda.h").write_text(HEADER)
    stub = tmp_path / "libcuda.so"
    cuda_toolkit.driver_stub(tmp_path / "cuda.h", stub)
    symbols = subprocess.run(
        ["readelf", "-W", "--dyn-syms", stub], capture_output=True, text=True, check=True
    ).stdout
    for name in ("cuMemFree", "cuMemFree_v2", "cuMemCreate"):
        assert f" {name}\n" in symbols
    dynamic = subprocess.run(["readelf", "-dW", stub], capture_output=True, text=True, check=True)
    assert "[libcuda.so.1]" in dynamic.stdout


@pytest.mark.usefixtures("nowhere")
def test_an_installed_toolkit_is_used_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = toolkit(tmp_path / "cuda", "lib64")
    (home / "lib64/libcudart.so").symlink_to("libcudart.so.13")
    monkeypatch.setenv("CUDA_PATH", str(home))
    found = cuda_toolkit.find()
    assert found.root == found.home == home
    assert found.runtime_libraries()[0] == home / "lib64/libcudart.so.13"


@pytest.mark.usefixtures("nowhere")
def test_no_toolkit_and_a_broken_one_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BuildError, match="no CUDA toolkit found") as caught:
        cuda_toolkit.find()
    assert "CUDA_HOME" in str(caught.value.hint)
    home = toolkit(tmp_path / "cuda", "lib64")
    (home / "lib64/libcudart.so").touch()
    (home / "bin/nvcc").write_text("#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("CUDA_HOME", str(home))
    with pytest.raises(BuildError, match="nvcc does not run here"):
        cuda_toolkit.find()


def test_the_native_engine_refuses_what_it_cannot_build() -> None:
    with pytest.raises(BuildError, match="the native engine builds cpu and cuda"):
        native.build_native("b10488", backend="vulkan")
    with pytest.raises(BuildError, match=r"CUDA 12\.4 \(here\) cannot compile .* 120"):
        cuda_plan.plan(GpuReport(gpus=[Gpu(name="x")]), "120", (12, 4), "here")


def test_a_libstdcxx_that_is_too_old_is_named() -> None:
    links = elf.parse("", "GLIBC_2.17 GLIBCXX_3.4.9 GLIBCXX_3.4.32 GLIBCXX_3.4.5")
    assert links.glibcxx == "3.4.32"
    (found,) = elf.complaints("x", links, "2.36", "3.4.30")
    assert "GLIBCXX 3.4.32, this host has 3.4.30" in found
    assert elf.complaints("x", links, "2.36", "3.4.32") == []
    host = elf.host_glibcxx()
    assert host is None or host.startswith("3.4.")
