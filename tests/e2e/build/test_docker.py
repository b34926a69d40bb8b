"""The docker engine with a real dockerd: build, faults, and nothing left behind.

Needs `docker` reachable, or root with `dockerd` and `debootstrap` (Debian: docker.io, debootstrap).
`pytest -m docker` runs it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from fixtures.real import REAL_CACHE, caches

from ollama_spec.artefacts import ArtefactStore
from ollama_spec.build import docker_engine, docker_plan, elf
from ollama_spec.build.gpu import GpuReport
from ollama_spec.errors import BuildError, CompileFailed, DockerUnavailable

pytestmark = [pytest.mark.docker, pytest.mark.timeout(3600)]
BASE = "ollama-spec-test-base:bookworm"
PACKAGES = "g++,cmake,ninja-build,ccache,binutils"
CMAKE = """\
cmake_minimum_required(VERSION 3.14)
project(llama CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
add_executable(llama-server common/server.cpp)
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a daemon: the one in use here, else one of our own for these tests."""
    if os.environ.get("DOCKER_HOST") or Path("/var/run/docker.sock").exists():
        yield docker_engine.daemon_host()
        return
    if not shutil.which("dockerd") or os.getuid() != 0:
        pytest.skip("no docker daemon here, and no `dockerd` with root to start one")
    folder = tmp_path_factory.mktemp("dockerd")
    address = f"unix://{folder}/d.sock"
    argv = ["dockerd", "-H", address, "--pidfile", f"{folder}/pid", "--iptables=false"]
    argv += ["--ip6tables=false", "--bridge=none"]
    argv += ["--data-root", str(REAL_CACHE / "dockerd"), "--exec-root", f"{folder}/exec"]
    with (folder / "log").open("w") as log:
        child = subprocess.Popen(argv, stdout=log, stderr=log)
    limit = time.monotonic() + 30
    while not (folder / "d.sock").exists() and time.monotonic() < limit:
        time.sleep(0.1)
    if child.poll() is not None:
        pytest.skip(f"dockerd does not start here: {(folder / 'log').read_text()[-300:]}")
    yield address
    child.terminate()
    child.wait(timeout=30)


@pytest.fixture(scope="module")
def client(daemon: str) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", daemon)
        connected = docker_engine.connect()
        yield connected
        connected.close()


@pytest.fixture(scope="module")
def base_image(client: Any) -> str:
    """A small Debian with a compiler, made by debootstrap: no registry of images is asked."""
    chosen = os.environ.get("OLLAMA_SPEC_TEST_BASE_IMAGE")
    if chosen:
        return chosen
    if not client.images.list(name=BASE):
        if not shutil.which("debootstrap"):
            pytest.skip("no base image: `debootstrap` is missing")
        root = REAL_CACHE / "debootstrap"
        if not (root / "usr/bin/ninja").exists():
            shutil.rmtree(root, ignore_errors=True)
            mirror = os.environ.get("OLLAMA_SPEC_TEST_DEBIAN", "")
            argv = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm"]
            argv += [str(root), *([mirror] if mirror else [])]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"debootstrap failed: {done.stdout[-200:]}")
        packed = subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE)
        repository, _, label = BASE.partition(":")
        client.api.import_image_from_data(packed.stdout, repository=repository, tag=label)
        packed.wait()
    return BASE


@pytest.fixture
def plan(daemon: str, base_image: str, monkeypatch: pytest.MonkeyPatch) -> docker_plan.DockerPlan:
    monkeypatch.setenv("DOCKER_HOST", daemon)
    return docker_plan.make(
        "b10488",
        backend="cpu",
        gpus=GpuReport(),
        jobs=2,
        tools=["llama-server"],
        base_image=base_image,
    )


def project(folder: Path, server: str) -> Path:
    """llama.cpp's shape with our hooks' files replaced: the overlay is not what is tested here."""
    (folder / "common").mkdir(parents=True)
    (folder / "CMakeLists.txt").write_text(CMAKE)
    (folder / "common/server.cpp").write_text(server)
    return folder


@pytest.fixture
def no_overlay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = tmp_path / "runner_src"
    ours.mkdir()
    (ours / "hooks.yaml").write_text("hooks: []\n")
    monkeypatch.setattr(docker_engine, "resource_dir", lambda name: ours)


def nothing_left(client: Any) -> None:
    assert client.containers.list(all=True, filters={"label": "ollama-spec.build"}) == []
    store = ArtefactStore()
    assert store.list() == [] and (not store.root.exists() or list(store.root.iterdir()) == [])


@pytest.mark.usefixtures("no_overlay")
def test_a_compile_error_is_shown_and_the_container_goes(
    plan: docker_plan.DockerPlan, client: Any, tmp_path: Path
) -> None:
    source = project(tmp_path / "src", "int main() { return strng; }")
    with pytest.raises(CompileFailed, match="'strng' was not declared"):
        docker_engine.build_docker(plan, source=str(source))
    nothing_left(client)


@pytest.mark.usefixtures("no_overlay")
def test_a_killed_container_is_one_clear_error(
    plan: docker_plan.DockerPlan, client: Any, tmp_path: Path
) -> None:
    source = project(tmp_path / "src", "int main() {}")
    (source / "CMakeLists.txt").write_text(
        CMAKE + "add_custom_command(OUTPUT step COMMAND sleep 600)\n"
        "add_custom_target(slow DEPENDS step)\nadd_dependencies(llama-server slow)\n"
    )

    def kill() -> None:
        limit = time.monotonic() + 300
        while time.monotonic() < limit:
            for container in client.containers.list(filters={"label": "ollama-spec.build"}):
                time.sleep(2)
                container.kill()
                return
            time.sleep(0.2)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(CompileFailed, match=r"container was killed \(exit code 137\)"):
        docker_engine.build_docker(plan, source=str(source))
    killer.join()
    nothing_left(client)


def test_a_base_image_that_does_not_exist_is_named(
    plan: docker_plan.DockerPlan, client: Any, tmp_path: Path
) -> None:
    wrong = plan.model_copy(update={"dockerfile": "FROM ollama-spec-none:1\n"})
    with pytest.raises(BuildError, match="cannot be made from"), caches():
        docker_engine.build_docker(wrong)
    nothing_left(client)


def test_the_daemon_is_described_and_a_dead_one_refused(
    plan: docker_plan.DockerPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert docker_engine.describe_daemon().startswith(("Docker ", "Podman "))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    with pytest.raises(DockerUnavailable):
        docker_engine.describe_daemon()


@pytest.mark.slow
def test_a_runner_built_in_a_container_runs_on_the_host(
    plan: docker_plan.DockerPlan, client: Any
) -> None:
    with caches():
        artefact = docker_engine.build_docker(plan, use=False)
    manifest = artefact.manifest
    assert (manifest.engine, manifest.backend, manifest.cuda_arch) == ("docker", "cpu", [])
    assert elf.problems(artefact.server.parent) == []
    assert elf.read(artefact.server).runpath == ["$ORIGIN"]
    done = subprocess.run([artefact.server, "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and "10488" in done.stderr
    assert client.containers.list(all=True, filters={"label": "ollama-spec.build"}) == []


def test_docker_is_the_one_we_think(client: Any) -> None:
    assert isinstance(client, docker.DockerClient)
