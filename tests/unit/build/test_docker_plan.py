"""What the docker engine would do, without a daemon: golden scripts, architectures, refusals."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from ollama_spec.build import docker_engine, docker_plan, elf
from ollama_spec.build.gpu import Gpu, GpuReport, parse_smi
from ollama_spec.errors import (
    ArtefactUnusable,
    BuildError,
    DockerPermission,
    DockerUnavailable,
)

GOLDEN = Path(__file__).parents[2] / "golden/build"
TOOLS = ["llama-server", "llama-quantize"]


def gpus(*capabilities: str, driver: str = "570.26") -> GpuReport:
    found = [Gpu(name="GPU", compute_capability=item) for item in capabilities]
    return GpuReport(gpus=found, driver=driver)


def make(backend: str = "cuda", *capabilities: str, **more: str) -> docker_plan.DockerPlan:
    return docker_plan.make(
        "b10488", backend=backend, gpus=gpus(*capabilities), jobs=4, tools=TOOLS, **more
    )


@pytest.mark.parametrize(
    ("name", "backend", "capability"),
    [
        ("cpu", "cpu", None),
        ("vulkan", "vulkan", None),
        ("cuda-75", "cuda", "7.5"),
        ("cuda-86", "cuda", "8.6"),
        ("cuda-89", "cuda", "8.9"),
        ("cuda-90", "cuda", "9.0"),
        ("cuda-120", "cuda", "12.0"),
    ],
)
def test_golden_dockerfile_and_script(name: str, backend: str, capability: str | None) -> None:
    """Set OLLAMA_SPEC_TEST_GOLDEN=write to renew the files after an intended change."""
    plan = make(backend, *([capability] if capability else []))
    text = f"{plan.dockerfile}\n=====\n{plan.script}"
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("OLLAMA_SPEC_TEST_GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()


def test_no_buildkit_only_syntax_and_no_native_architecture() -> None:
    plan = make("cuda", "8.9")
    for word in ("--mount", "<<", "# syntax", "--security"):
        assert word not in plan.dockerfile
    assert "ARCHITECTURES=89-real" in plan.script and "native" not in plan.script.lower().replace(
        "ggml_native=off", ""
    )
    assert "-DGGML_CUDA_NCCL=OFF" in plan.script


@pytest.mark.parametrize(
    ("wanted", "archs"),
    [
        ("86;120", ["86-real", "120a-real"]),
        ("8.6, 8.9", ["86-real", "89-real"]),
        ("90a", ["90-real"]),
    ],
)
def test_architectures_by_the_user(wanted: str, archs: list[str]) -> None:
    plan = make("cuda", cuda_arch=wanted)
    assert plan.cuda is not None and plan.cuda.archs == archs


@pytest.mark.parametrize(
    ("image", "capability", "words"),
    [
        ("nvidia/cuda:12.4.1-devel-rockylinux8", "12.0", "cannot compile for architecture 120"),
        ("nvidia/cuda:12.8.1-devel-rockylinux8", "12.1", "cannot compile for architecture 121"),
        ("nvidia/cuda:13.0.1-devel-rockylinux8", "6.1", "cannot compile for architecture 61"),
        ("mine/cuda:latest", "8.6", "does not name its CUDA version"),
        ("nvidia/cuda:11.8.0-devel", "8.6", "12.0 is the least"),
    ],
)
def test_pairs_that_cannot_work_are_refused_before_the_build(
    image: str, capability: str, words: str
) -> None:
    with pytest.raises(BuildError) as caught:
        make("cuda", capability, base_image=image)
    assert words in caught.value.message
    if capability == "12.0":
        assert "12.8 or newer" in str(caught.value.hint)


@pytest.mark.parametrize("capability", ["12.0", "12.1"])
def test_a_toolkit_that_knows_the_chip_is_taken(capability: str) -> None:
    plan = make("cuda", capability, base_image="nvidia/cuda:12.9.1-devel-rockylinux8")
    assert plan.cuda is not None and plan.cuda.archs[0].endswith("a-real")


def test_without_a_gpu_the_user_must_name_the_architecture() -> None:
    with pytest.raises(BuildError, match="architecture is unknown"):
        make("cuda")


def test_an_old_driver_is_warned_about() -> None:
    plan = docker_plan.make(
        "b1", backend="cuda", gpus=gpus("8.6", driver="535.1"), jobs=1, tools=TOOLS
    )
    assert plan.cuda is not None and "older than 550" in plan.cuda.warnings[0]


def test_a_mirror_goes_before_the_image_name() -> None:
    plan = make("cpu", mirror="mirror.example/hub")
    assert plan.dockerfile.splitlines()[0] == "FROM mirror.example/hub/rockylinux:8"


def test_smi_rows_with_unknown_columns() -> None:
    text = "0, NVIDIA GeForce RTX 4090, 8.9, 570.26, 24564\n1, Tesla K80, [N/A], 470.1, [N/A]\n"
    found, driver = parse_smi(text)
    assert [gpu.compute_capability for gpu in found] == ["8.9", None]
    assert found[0].memory_mib == 24564 and driver == "470.1"


@pytest.mark.parametrize(
    ("dynamic", "versions", "words"),
    [
        ("(RUNPATH) Library runpath: [$ORIGIN]\n (NEEDED) [libllama.so.0]", "GLIBC_2.28", None),
        ("(RUNPATH) Library runpath: [/usr/local/cuda/lib64/stubs]", "", "stubs"),
        ("(NEEDED) Shared library: [libnccl.so.2]", "", "libnccl.so.2"),
        ("(NEEDED) Shared library: [libgomp.so.1]", "", "libgomp.so.1"),
        ("", "GLIBC_2.17 GLIBC_2.38", "glibc 2.38, this host has 2.31"),
    ],
)
def test_link_checks(dynamic: str, versions: str, words: str | None) -> None:
    found = elf.complaints("x", elf.parse(dynamic, versions), "2.31")
    assert (found == []) if words is None else (len(found) == 1 and words in found[0])


def test_what_comes_out_of_a_container_cannot_leave_its_folder(tmp_path: Path) -> None:
    def tar(**members: str | None) -> tarfile.TarFile:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name, link in members.items():
                info = tarfile.TarInfo(f"bin/../../{name}")
                if link is not None:
                    info.type, info.linkname = tarfile.SYMTYPE, link
                archive.addfile(info, io.BytesIO(b""))
        buffer.seek(0)
        return tarfile.open(fileobj=buffer)

    target = tmp_path / "bin"
    target.mkdir()
    docker_engine.unpack_flat(tar(a=None, b="a"), target)
    assert sorted(path.name for path in target.iterdir()) == ["a", "b"]
    with pytest.raises(ArtefactUnusable):
        docker_engine.unpack_flat(tar(c="/etc/passwd"), target)


def test_no_daemon_and_no_permission_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(DockerUnavailable, match="no docker daemon answers"):
        docker_engine.connect()
    error = docker_engine.unreachable(PermissionError(13, "Permission denied"), "unix:///x")
    assert isinstance(error, DockerPermission) and "group `docker`" in str(error.hint)
    too_old = docker_engine.unreachable(Exception("client version 1.24 is too old"), "x")
    assert isinstance(too_old, DockerUnavailable) and "does not speak our API" in too_old.message
