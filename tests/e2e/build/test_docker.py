"""The docker engine with a real dockerd: build, faults, and nothing left behind.

Needs `docker` reachable, or root with `dockerd` and `debootstrap` (Debian: docker.io, debootstrap).
`pytest -m docker` runs it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from fixtures.real import REAL_CACHE, caches
from fixtures.servers import chat, server

from ollama_spec.artefacts import ArtefactStore
from ollama_spec.build import docker_engine, docker_plan, elf
from ollama_spec.build.gpu import GpuReport
from ollama_spec.errors import BuildError, CompileFailed, DockerUnavailable

pytestmark = [pytest.mark.docker, pytest.mark.timeout(3600)]
BASE = "ollama-spec-test-base:bookworm"
LABEL = "ollama-spec.build"
PACKAGES = "g++,cmake,ninja-build,ccache,binutils"
CMAKE = """\
cmake_minimum_required(VERSION 3.14)
project(llama CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
add_executable(llama-server common/server.cpp)
"""


class Daemon:
    """A dockerd of our own; or the one in use here, left as it is (`folder` is None)."""

    def __init__(self, address: str, folder: Path | None = None) -> None:
        self.address, self.folder = address, folder
        self.child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        argv = ["dockerd", "-H", self.address, "--pidfile", f"{self.folder}/pid"]
        argv += ["--iptables=false", "--ip6tables=false", "--bridge=none"]
        argv += ["--data-root", str(REAL_CACHE / "dockerd"), "--exec-root", f"{self.folder}/exec"]
        with Path(f"{self.folder}/log").open("a") as log:
            self.child = subprocess.Popen(argv, stdout=log, stderr=log)
        limit = time.monotonic() + 60
        while self.child.poll() is None and time.monotonic() < limit:
            if (
                subprocess.run(
                    ["docker", "-H", self.address, "info"], capture_output=True
                ).returncode
                == 0
            ):
                return
            time.sleep(0.2)
        pytest.skip(f"dockerd does not start here: {Path(f'{self.folder}/log').read_text()[-300:]}")

    def stop(self) -> None:
        if self.child:
            self.child.terminate()
            self.child.wait(timeout=60)


@pytest.fixture(scope="module")
def dockerd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    if os.environ.get("DOCKER_HOST") or Path("/var/run/docker.sock").exists():
        yield Daemon(docker_engine.daemon_host())
        return
    if not shutil.which("dockerd") or os.getuid() != 0:
        pytest.skip("no docker daemon here, and no `dockerd` with root to start one")
    folder = tmp_path_factory.mktemp("dockerd")
    ours = Daemon(f"unix://{folder}/d.sock", folder)
    ours.start()
    yield ours
    ours.stop()


@pytest.fixture(scope="module")
def daemon(dockerd: Daemon) -> str:
    return dockerd.address


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
        repository, _, label = BASE.partition(":")
        argv = ["tar", "-C", str(root), "-c", "."]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as packed:
            client.api.import_image_from_data(packed.stdout, repository=repository, tag=label)
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


def slow_project(folder: Path) -> Path:
    project(folder, "int main() {}")
    (folder / "CMakeLists.txt").write_text(
        CMAKE + "add_custom_command(OUTPUT step COMMAND sleep 600)\n"
        "add_custom_target(slow DEPENDS step)\nadd_dependencies(llama-server slow)\n"
    )
    return folder


@pytest.fixture
def no_overlay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = tmp_path / "runner_src"
    ours.mkdir()
    (ours / "hooks.yaml").write_text("hooks: []\n")
    monkeypatch.setattr(docker_engine, "resource_dir", lambda name: ours)


def nothing_left(client: Any) -> None:
    assert client.containers.list(all=True, filters={"label": LABEL}) == []
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
    source = slow_project(tmp_path / "src")

    def kill() -> None:
        limit = time.monotonic() + 300
        while time.monotonic() < limit:
            for container in client.containers.list(filters={"label": LABEL}, ignore_removed=True):
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


BUILD = """\
import sys
from pathlib import Path
from ollama_spec.build import docker_engine, docker_plan
docker_engine.resource_dir = lambda name: Path(sys.argv[1])
plan = docker_plan.DockerPlan.model_validate_json(sys.argv[2])
docker_engine.build_docker(plan, source=sys.argv[3])
"""


@pytest.mark.usefixtures("no_overlay")
def test_a_daemon_restart_ends_the_build_and_the_next_one_tidies_up(
    plan: docker_plan.DockerPlan, dockerd: Daemon, client: Any, tmp_path: Path
) -> None:
    if dockerd.folder is None:
        pytest.skip("the daemon here is not ours to restart")
    source = slow_project(tmp_path / "src")
    argv = [sys.executable, "-c", BUILD, tmp_path / "runner_src", plan.model_dump_json(), source]
    child = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    limit = time.monotonic() + 300
    while (
        not client.containers.list(filters={"label": LABEL}, ignore_removed=True)
        and time.monotonic() < limit
    ):
        time.sleep(0.2)
    time.sleep(2)
    dockerd.stop()
    _, err = child.communicate(timeout=120)
    dockerd.start()
    assert child.returncode != 0
    assert "BuildError: the docker daemon went away during the build" in err
    broken = project(tmp_path / "broken", "int main() { return strng; }")
    with pytest.raises(CompileFailed, match="'strng' was not declared"):
        docker_engine.build_docker(plan, source=str(broken))
    nothing_left(client)


@pytest.mark.usefixtures("no_overlay")
def test_a_base_image_that_does_not_exist_is_named(
    plan: docker_plan.DockerPlan, client: Any, tmp_path: Path
) -> None:
    wrong = plan.model_copy(update={"dockerfile": "FROM ollama-spec-none:1\n"})
    source = project(tmp_path / "src", "int main() {}")
    with pytest.raises(BuildError, match="cannot be made from"):
        docker_engine.build_docker(wrong, source=str(source))
    nothing_left(client)


def test_the_daemon_is_described_and_a_dead_one_refused(
    plan: docker_plan.DockerPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert docker_engine.describe_daemon().startswith(("Docker ", "Podman "))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    with pytest.raises(DockerUnavailable):
        docker_engine.describe_daemon()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_runs_in_its_image_ends_with_its_caller(
    daemon: str,
    base_image: str,
    client: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", daemon)
    box, out = tmp_path / "box", tmp_path / "out/started"
    box.mkdir()
    out.parent.mkdir()
    program = box / "llama-server"
    program.write_text(
        "#!/bin/sh\ntrap 'echo yes > \"$2.ended\"; exit 0' TERM\n"
        'echo yes > "$2"\nwhile :; do sleep 0.1; done\n'
    )
    program.chmod(0o755)
    argv = [sys.executable, "-m", "ollama_spec.build.boxed", base_image, "cpu", str(box)]
    child = subprocess.Popen([*argv, "llama-server", "--out", str(out)])
    wait_for(out)
    child.send_signal(number)
    assert child.wait(timeout=60) == -number
    wait_for(out.with_name("started.ended"))
    limit = time.monotonic() + 60
    while client.containers.list(all=True, ignore_removed=True) and time.monotonic() < limit:
        time.sleep(0.2)
    assert client.containers.list(all=True, ignore_removed=True) == []


def wait_for(path: Path) -> None:
    limit = time.monotonic() + 60
    while not path.exists() and time.monotonic() < limit:
        time.sleep(0.1)
    assert path.exists()


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_a_runner_built_in_a_container_runs_on_the_host(
    plan: docker_plan.DockerPlan, client: Any, smollm2: Path, tmp_path: Path
) -> None:
    with caches():
        artefact = docker_engine.build_docker(plan, use=False)
    manifest = artefact.manifest
    assert (manifest.engine, manifest.backend, manifest.cuda_arch) == ("docker", "cpu", [])
    assert elf.problems(artefact.server.parent) == []
    assert elf.read(artefact.server).runpath == ["$ORIGIN"]
    argv = [str(artefact.server), "--model", str(smollm2), "--ctx-size", "512", "--threads", "1"]
    with server(argv, tmp_path) as (runner, _):
        chat(runner, "Say hello.", max_tokens=8)
    assert client.containers.list(all=True, filters={"label": LABEL}) == []


def test_docker_is_the_one_we_think(client: Any) -> None:
    assert isinstance(client, docker.DockerClient)
