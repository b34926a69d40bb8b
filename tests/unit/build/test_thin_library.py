"""Which libraries of an Ollama the thin engine links, and what goes beside its server."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ollama_spec.build import thin, thin_library
from ollama_spec.build.gpu import Gpu, GpuReport
from ollama_spec.build.llama_version import LlamaVersion
from ollama_spec.errors import BuildError


def test_libraries_of_another_commit_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"of llama\.cpp b10380, not b10488"):
        thin_library.check_version(LlamaVersion(text="", build=10380), "b10488", tmp_path)
    thin_library.check_version(LlamaVersion(text="", build=10488), "b10488", tmp_path)
    with pytest.raises(BuildError, match=r"lacks libllama\.so\.0"):
        thin_library.check(tmp_path, "b10488")


def test_a_changed_llama_cpp_is_refused_by_its_commit(tmp_path: Path) -> None:
    version = LlamaVersion(text="", build=10488, commit="5a1b2c3d4")
    with pytest.raises(BuildError, match="of commit 5a1b2c3d4, but b10488 is 9d77fa172"):
        thin_library.check_version(version, "b10488", tmp_path)
    for commit in ("9d77fa172", "9d77fa17254e1dee4b9e92504c91611a60b1359f"):
        same = LlamaVersion(text="", build=None, commit=commit)
        thin_library.check_version(same, "b10488", tmp_path)
        with pytest.raises(BuildError, match=r"of llama\.cpp b10488, not b10353"):
            thin_library.check_version(same, "b10353", tmp_path)


@pytest.mark.parametrize(
    ("capabilities", "limit", "platform", "folder"),
    [
        (["8.9"], "13.0", "plain", "cuda_v13"),
        (["8.9", "6.1"], "13.0", "plain", "cuda_v12"),  # CUDA 13 knows no Pascal
        (["8.9"], "12.8", "plain", "cuda_v12"),
        ([None], "13.1", "plain", "cuda_v13"),
        (["8.7"], None, "jetson-6", "cuda_jetpack6"),
        (["8.7"], None, "jetson-5", None),  # not among the folders
        ([], "13.0", "plain", None),
    ],
)
def test_the_gpu_folder_follows_driver_and_gpu(
    capabilities: list[str | None], limit: str | None, platform: str, folder: str | None
) -> None:
    gpus = [Gpu(name="x", compute_capability=item) for item in capabilities]
    report = GpuReport(gpus=gpus, cuda_limit=limit, platform=platform)
    names = ["cpu", "cuda_v12", "cuda_v13", "cuda_jetpack6", "vulkan"]
    assert thin_library.gpu_folder(names, report) == folder


def test_gpu_modules_go_beside_the_server_where_ggml_looks(tmp_path: Path) -> None:
    library, target = tmp_path / "lib", tmp_path / "bin"
    ours = ("libllama.so.0.1", "libggml-cpu-x64.so", "cuda_v12/libggml-cuda.so")
    others = ("cuda_v12/libcudart.so.12", "vulkan/libggml-vulkan.so", "llama-server")
    for file in (*ours, *others, "libllama-server-impl.so"):
        (library / file).parent.mkdir(parents=True, exist_ok=True)
        (library / file).write_text(file)
    (library / "libllama.so.0").symlink_to("libllama.so.0.1")
    target.mkdir()
    thin.copy_libraries(library, "cuda_v12", target)
    plain = sorted(path.name for path in target.iterdir() if not path.is_symlink())
    assert plain == ["libggml-cpu-x64.so", "libggml-cuda.so", "libllama.so.0.1"]
    assert (target / "libcudart.so.12").readlink() == library / "cuda_v12/libcudart.so.12"
    assert str((target / "libllama.so.0").readlink()) == "libllama.so.0.1"


def test_a_module_that_cannot_be_loaded_is_believed(tmp_path: Path) -> None:
    (tmp_path / "libggml-cuda.so").write_bytes(b"no library")
    assert thin_library.api_version(tmp_path / "libggml-cuda.so") is None


def test_a_module_of_another_interface_is_refused(tmp_path: Path) -> None:
    """A module of one function, as ggml's are loaded: it says 3 where the sources say 2."""
    code = "static int reg = 3; void * ggml_backend_init(void) { return &reg; }"
    module = tmp_path / "lib/libggml-cpu.so"
    module.parent.mkdir()
    argv = ["cc", "-shared", "-fPIC", "-xc", "-", "-o", str(module)]
    subprocess.run(argv, input=code, text=True, check=True)
    header = tmp_path / "src/ggml/src/ggml-backend-impl.h"
    header.parent.mkdir(parents=True)
    header.write_text("    #define GGML_BACKEND_API_VERSION 2\n")
    with pytest.raises(BuildError, match="version 3 of ggml's backend interface, the sources sp"):
        thin_library.check_backend_api(module.parent, tmp_path / "src")
    header.write_text("    #define GGML_BACKEND_API_VERSION 3\n")
    thin_library.check_backend_api(module.parent, tmp_path / "src")
