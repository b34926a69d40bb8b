"""What `detect` reports: Ollamas, the llama.cpp tag, the GPU, and which engines fit."""

from __future__ import annotations

import os
from pathlib import Path

from ollama_spec.build import cuda_toolkit, gpu, ollamas, sources, tags, thin_library, toolchain
from ollama_spec.build.gpu import GpuReport
from ollama_spec.build.ollamas import Binary, Server
from ollama_spec.build.tags import Conclusion
from ollama_spec.errors import BuildError
from ollama_spec.profiles import Strict


class EngineVerdict(Strict):
    engine: str
    works: bool
    reason: str


class Report(Strict):
    server: Server
    binaries: list[Binary]
    chosen: Path | None  # the program whose libraries count
    conclusion: Conclusion
    confirmed: str  # "yes", "no: ...", "not asked", "out of reach"
    gpu: GpuReport
    engines: list[EngineVerdict]
    engine: str  # what `build --engine auto` takes


def detect(*, online: bool = False, assume: bool = False) -> Report:
    """Look at this machine. Only with `online` is anything beyond it asked (and learnt)."""
    server = ollamas.ask_server(ollamas.server_url(os.environ.get("OLLAMA_HOST")))
    binaries = [ollamas.inspect(path, how) for path, how in ollamas.candidates().items()]
    chosen = choose(server, binaries)
    facts = tags.table()
    conclusion = tags.conclude(
        server.version,
        chosen.version if chosen else None,
        chosen.llama if chosen else None,
        facts,
        online=online,
        assume=assume,
    )
    conclusion = tags.with_commit(conclusion, facts)
    confirmed = _confirm(conclusion) if online else "not asked"
    if online and confirmed == "yes" and conclusion.tag and conclusion.commit:
        version = server.version or (chosen.version if chosen else None)
        tags.learn(
            {version: conclusion.tag} if version else {}, {conclusion.tag: conclusion.commit}
        )
    gpus = gpu.report()
    verdicts = judge(chosen, conclusion, gpus)
    return Report(
        server=server,
        binaries=binaries,
        chosen=chosen.path if chosen else None,
        conclusion=conclusion,
        confirmed=confirmed,
        gpu=gpus,
        engines=verdicts,
        engine=pick(verdicts, gpus),
    )


def choose(server: Server, binaries: list[Binary]) -> Binary | None:
    """The program that most likely is the running server; one with libraries beats one without."""

    def rank(item: Binary) -> tuple[bool, bool, bool, bool]:
        return (
            server.version is not None and item.version == server.version,
            "process" in item.found,
            item.llama_server is not None,
            "PATH" in item.found,
        )

    return max(binaries, key=rank, default=None)


def _confirm(conclusion: Conclusion) -> str:
    if conclusion.tag is None:
        return "not asked"
    commit = sources.tag_commit(conclusion.tag)
    if commit is None:
        return "out of reach"
    if conclusion.commit is None or commit.startswith(conclusion.commit):
        return "yes"
    return f"no: {conclusion.tag} is {commit[:9]}, the binary says {conclusion.commit}"


def judge(chosen: Binary | None, conclusion: Conclusion, gpus: GpuReport) -> list[EngineVerdict]:
    """Whether each engine could work here, with the reason either way."""
    return [_judge_thin(chosen, conclusion), _judge_docker(gpus), _judge_native()]


def _judge_thin(chosen: Binary | None, conclusion: Conclusion) -> EngineVerdict:
    if chosen is None or chosen.library is None:
        return EngineVerdict(engine="thin", works=False, reason="no Ollama found")
    if conclusion.tag is None:
        return EngineVerdict(engine="thin", works=False, reason=conclusion.how)
    try:
        thin_library.check(chosen.library, conclusion.tag)
    except BuildError as error:
        return EngineVerdict(engine="thin", works=False, reason=error.message)
    return EngineVerdict(
        engine="thin", works=True, reason=f"links the libraries of {chosen.library}"
    )


def _judge_docker(gpus: GpuReport) -> EngineVerdict:
    from ollama_spec.build.docker_engine import describe_daemon  # docker's library loads slowly

    try:
        words = describe_daemon()
    except BuildError as error:
        return EngineVerdict(engine="docker", works=False, reason=error.message)
    return EngineVerdict(engine="docker", works=True, reason=words)


def _judge_native() -> EngineVerdict:
    for name, fallback in (("CC", ("cc", "gcc", "clang")), ("CXX", ("c++", "g++", "clang++"))):
        try:
            found = toolchain.compiler(name, fallback)
        except BuildError as error:
            return EngineVerdict(engine="native", works=False, reason=error.message)
    home = cuda_toolkit.home()
    return EngineVerdict(
        engine="native", works=True, reason=f"{found}, {f'CUDA in {home}' if home else 'CPU only'}"
    )


def pick(verdicts: list[EngineVerdict], gpus: GpuReport) -> str:
    """thin where Ollama's libraries fit, else docker where a GPU and a daemon are, else native."""
    works = {verdict.engine: verdict.works for verdict in verdicts}
    if works.get("thin"):
        return "thin"
    if works.get("docker") and gpus.gpus:
        return "docker"
    return "native"
