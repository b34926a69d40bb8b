"""The docker engine: build in a toolchain container, copy the result out.

The API cannot do BuildKit, and a bind mount means nothing to a remote daemon. So: a plain image
with the toolchain, a container without network or privileges, sources put in and results taken out
as tar streams, ccache in a named volume. The same calls work with Podman's socket.
"""

from __future__ import annotations

import hashlib
import io
import os
import shlex
import shutil
import socket
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker
import requests
from docker import errors as docker_errors

from ollama_spec import output, paths
from ollama_spec.artefacts import Artefact, Manifest
from ollama_spec.build import compat as compats
from ollama_spec.build import compile as compiling
from ollama_spec.build import elf, overlay, publish, sources, steps, tags
from ollama_spec.build.docker_plan import UID, DockerPlan
from ollama_spec.errors import (
    ArtefactUnusable,
    BuildError,
    CompileFailed,
    DockerPermission,
    DockerUnavailable,
)
from ollama_spec.resources import resource_dir

_VOLUME = "ollama-spec-ccache"
_LABEL = "ollama-spec.build"
_OLDEST_API = (1, 41)


def connect() -> Any:
    """A client of the daemon that DOCKER_HOST or the current docker context names."""
    host = daemon_host()
    try:
        _probe(host)
        # Uploads of sources can take longer than the default 60 s.
        client = docker.from_env(timeout=600)
        client.ping()
    except (docker_errors.DockerException, requests.RequestException, OSError) as error:
        raise unreachable(error, host) from error
    version = client.version().get("ApiVersion", "0.0")
    if tuple(int(part) for part in version.split(".")) < _OLDEST_API:
        raise DockerUnavailable(
            f"the docker daemon speaks API {version}; 1.41 is the least", hint="update the daemon"
        )
    return client


def daemon_host() -> str:
    """Where the daemon is: DOCKER_HOST, else the current context of the docker command."""
    chosen = os.environ.get("DOCKER_HOST")
    if chosen:
        return chosen
    context = docker.ContextAPI.get_current_context()
    return str(context.Host) if context and context.Host else "unix:///var/run/docker.sock"


def _probe(host: str) -> None:
    """Fail early and plainly on a dead local socket: docker's own error for it says little."""
    if host.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(5)
            probe.connect(host.removeprefix("unix://"))


def unreachable(error: Exception, host: str) -> BuildError:
    text = str(error)
    if "too old" in text or "too new" in text:
        return DockerUnavailable(
            f"the docker daemon at {host} does not speak our API: {text}", hint="update the daemon"
        )
    if "Permission denied" in text or "PermissionError" in text:
        return DockerPermission(
            f"no permission to use the docker daemon at {host}",
            hint="join the group `docker`, or use a rootless daemon (docker or Podman)",
        )
    return DockerUnavailable(
        f"no docker daemon answers at {host}",
        hint="start it (`systemctl start docker`), set DOCKER_HOST, or use `--engine native`",
    )


def describe_daemon() -> str:
    """E.g. "Docker 28.2.2, with the nvidia runtime"; raises when no daemon can be used."""
    client = connect()
    try:
        version, info = client.version(), client.info()
    finally:
        client.close()
    parts = [part.get("Name", "") for part in version.get("Components") or []]
    name = "Podman" if any("Podman" in part for part in parts) else "Docker"
    nvidia = "nvidia" in (info.get("Runtimes") or {})
    return f"{name} {version.get('Version')}" + (", with the nvidia runtime" if nvidia else "")


def build_docker(
    plan: DockerPlan, *, source: str | None = None, use: bool = True, layer: Path | None = None
) -> Artefact:
    """Carry out `plan` and publish the artefact. Raises BuildError and its subclasses.

    `layer` is the folder of Ollama's compat layer, which then goes on first.
    """
    parts = [plan.tag, f"spec-{overlay.digest(resource_dir('runner_src'))}", "docker", plan.backend]
    if plan.cuda:
        parts.append("_".join(arch.removesuffix("-real") for arch in plan.cuda.archs))
    if plan.in_container:
        parts.append("boxed")
    if layer:
        parts.append(f"compat-{compats.digest(layer)}")
    parts.append(hashlib.sha256(plan.base_image.encode()).hexdigest()[:8])
    key = "-".join([*parts, *sources.key_part(source)])
    return publish.produce(key, plan.tag, lambda to: _make(to, key, plan, source, layer), use=use)


def _make(
    staged: Path, key: str, plan: DockerPlan, source: str | None, layer: Path | None
) -> Manifest:
    client = connect()
    built = paths.ensure(staged / "box") if plan.in_container else staged / "bin"
    try:
        root = paths.cache_dir() / "build" / plan.tag
        tree, info = steps.prepare_tree(root, plan.tag, source)
        tree.apply(resource_dir("runner_src"), plan.tag, layer)
        with _daemon_errors():
            image = _toolchain(client, plan)
            _compile(client, plan, image.id, tree.src, built)
    finally:
        client.close()
    publish.copy_licence(tree.src, staged, plan.tag)
    problems = elf.problems(built, on_host=not plan.in_container)
    if problems:
        raise ArtefactUnusable(f"the built runner cannot leave its container: {problems[0]}")
    if plan.in_container:
        for tool in plan.tools:
            _write_wrapper(staged / "bin" / tool, image.id, gpus=plan.backend == "cuda")
    return Manifest(
        key=key,
        tag=plan.tag,
        commit=tags.table().commits.get(plan.tag, info.commit),
        source=f"{info.origin} ({info.identity})",
        overlay=overlay.digest(resource_dir("runner_src")),
        engine="docker",
        backend=plan.backend,
        cuda_arch=plan.cuda.archs if plan.cuda else [],
        compat=layer is not None,
        flags=[],
        compiler=f"in {plan.base_image} ({image.id[:19]})",
    )


def _write_wrapper(path: Path, image: str, *, gpus: bool) -> None:
    """A program in place of the built one that runs it in `image` (boxed.py)."""
    words = [
        sys.executable,
        "-P",
        "-m",
        "ollama_spec.build.boxed",
        image,
        "gpus" if gpus else "cpu",
    ]
    box = '"$(dirname "$(readlink -f "$0")")/../box"'
    path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} {box} {path.name} "$@"\n')
    path.chmod(0o755)


@contextmanager
def _daemon_errors() -> Iterator[None]:
    try:
        yield
    except docker_errors.ImageNotFound as error:
        raise BuildError(
            f"no such image: {error.explanation}", hint="name another with --base-image or --mirror"
        ) from error
    except docker_errors.APIError as error:
        raise BuildError(f"the docker daemon refused: {error.explanation or error}") from error
    except (docker_errors.DockerException, requests.RequestException) as error:
        raise BuildError(
            f"the docker daemon went away during the build: {type(error).__name__}",
            hint="the runner in use before stays in use; start the daemon and build again",
        ) from error


def _toolchain(client: Any, plan: DockerPlan) -> Any:
    """Build the toolchain image; the daemon's own layer cache makes a second time quick."""
    output.note(f"toolchain image from {plan.base_image}")
    context = _tar({"Dockerfile": plan.dockerfile.encode()})
    kept: list[str] = []
    stream = client.api.build(
        fileobj=context, custom_context=True, tag=plan.image, rm=True, forcerm=True, decode=True
    )
    for event in stream:
        text = str(event.get("stream") or event.get("status") or "").rstrip()
        kept.append(text)
        if "error" in event:
            log = compiling.first_error("\n".join([*kept, str(event["error"])]))
            raise BuildError(
                f"the toolchain image cannot be made from {plan.base_image}: {log}",
                hint="see --dry-run for its Dockerfile; --base-image and --mirror change its base",
            )
    return client.images.get(plan.image)


def _compile(client: Any, plan: DockerPlan, image: str, src: Path, built: Path) -> None:
    _sweep(client)
    container = client.containers.create(
        image,
        ["sh", "/work/build.sh"],
        user=f"{UID}:{UID}",
        network_mode="none",
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        volumes={_VOLUME: {"bind": "/ccache", "mode": "rw"}},
        labels={_LABEL: f"{os.uname().nodename}:{os.getpid()}"},
    )
    try:
        _upload(container, src, plan.script)
        container.start()
        log = _follow(container)
        code = int(container.wait()["StatusCode"])
        if code != 0:
            raise _failure(container, code, log)
        _download(container, built)
    finally:
        try:
            container.remove(force=True, v=False)
        except (docker_errors.DockerException, requests.RequestException):
            output.note(f"container {container.short_id} could not be removed")


def _failure(container: Any, code: int, log: str) -> BuildError:
    if compiling.NO_SPACE in log.lower():
        return compiling.disk_full("the container's storage is full")
    container.reload()
    if code in (137, 143) or container.attrs["State"].get("OOMKilled"):
        return CompileFailed(
            f"the build container was killed (exit code {code})",
            hint="if it ran out of memory, build with fewer jobs: --jobs 1",
        )
    return CompileFailed(
        f"the build in the container failed (exit code {code}): {compiling.first_error(log)}",
        hint="the runner in use before stays in use",
    )


def _sweep(client: Any) -> None:
    """Remove containers of builds on this machine whose process is gone."""
    for container in client.containers.list(
        all=True, filters={"label": _LABEL}, ignore_removed=True
    ):
        host, _, pid = container.labels.get(_LABEL, "").partition(":")
        if host == os.uname().nodename and not Path(f"/proc/{pid}").exists():
            container.remove(force=True)


def _follow(container: Any) -> str:
    """Stream the log into a progress display; returns what is not a Ninja step."""
    progress, kept, rest = compiling.Progress("compiling in the container"), [], b""
    try:
        for chunk in container.logs(stream=True, follow=True, stdout=True, stderr=True):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                text = line.decode(errors="replace")
                if not compiling.advance(progress, text):
                    kept.append(text)
    finally:
        progress.close()
    return "\n".join([*kept, rest.decode(errors="replace")])


def _upload(container: Any, src: Path, script: str) -> None:
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w") as tar:
            tar.add(src, "src", filter=_owned)
            data = script.encode()
            info = tarfile.TarInfo("build.sh")
            info.size = len(data)
            tar.addfile(_owned(info), io.BytesIO(data))
        file.seek(0)
        container.put_archive("/work", file)


def _owned(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = UID
    info.uname = info.gname = ""
    return info


def _tar(files: dict[str, bytes]) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    buffer.seek(0)
    return buffer


def _download(container: Any, target: Path) -> None:
    chunks, _ = container.get_archive("/work/out/bin")
    with tempfile.TemporaryFile() as file:
        for chunk in chunks:
            file.write(chunk)
        file.seek(0)
        with tarfile.open(fileobj=file) as tar:
            unpack_flat(tar, target)


def unpack_flat(tar: tarfile.TarFile, target: Path) -> None:
    """Plain files and links to siblings, all directly into `target`; anything else is refused."""
    for member in tar:
        name = Path(member.name).name
        if member.isdir():
            continue
        if member.issym() and "/" not in member.linkname and member.linkname not in (".", ".."):
            (target / name).symlink_to(member.linkname)
        elif member.isfile():
            packed = tar.extractfile(member)
            assert packed is not None  # isfile() was true
            with packed, (target / name).open("wb") as plain:
                shutil.copyfileobj(packed, plain)
            (target / name).chmod(0o755)
        else:
            raise ArtefactUnusable(f"the container returned {member.name!r}, which is no file")
