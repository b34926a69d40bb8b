"""`doctor`: everything that has to hold before answers get faster, checked in order."""

from __future__ import annotations

import functools
import re
import shutil
from pathlib import Path

import click

from ollama_spec import config, output, paths, sidecar_api
from ollama_spec.artefacts import ArtefactStore
from ollama_spec.build import overlay
from ollama_spec.build.detect import Report, detect
from ollama_spec.config import Config
from ollama_spec.diagnosis import Finding, as_text, attempt, healthy
from ollama_spec.modelfile import checks
from ollama_spec.resources import resource_dir
from ollama_spec.runner import binary
from ollama_spec.store import ModelRecord, ModelStore

_BUILD_BYTES = 3_000_000_000  # a native source, build tree and artefact take about 2 GB


@click.command("doctor", short_help="Check this installation from Ollama to the last model.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(as_json: bool) -> int:
    """Check settings, Ollama, runner, sidecar and models; exit code 1 when something is broken."""
    settings = config.load()
    report = detect()
    findings = [
        *_ollama(report),
        *_gpu(report),
        *attempt("runner", lambda: _runner(settings, report)),
        *_sidecar(settings),
        *_disk(),
        *attempt("models", _models),
    ]
    if as_json:
        output.result_json(
            {
                "healthy": healthy(findings),
                "findings": [finding.model_dump(mode="json") for finding in findings],
            }
        )
    else:
        output.result(as_text(findings))
    return 0 if healthy(findings) else 1


def _ollama(report: Report) -> list[Finding]:
    server = report.server
    program = next((item for item in report.binaries if item.path == report.chosen), None)
    if server.version is None and program is None:
        return [
            Finding(
                check="ollama",
                verdict="warn",
                text="none found; our own models are served without it",
                hint="install Ollama, or set OLLAMA_HOST to where it listens",
            )
        ]
    if server.version is None:
        return [
            Finding(
                check="ollama",
                verdict="warn",
                text=f"{server.url} does not answer; its models cannot be passed through",
                hint="start it with `ollama serve`, or set OLLAMA_HOST to where it listens",
            )
        ]
    if program and program.version and program.version != server.version:
        return [
            Finding(
                check="ollama",
                verdict="warn",
                text=f"the server runs {server.version}, the program is {program.version}",
                hint="restart Ollama so that both are the same",
            )
        ]
    tag = report.conclusion.tag or "an unknown llama.cpp"
    return [Finding(check="ollama", verdict="ok", text=f"{server.version} with {tag}")]


def _gpu(report: Report) -> list[Finding]:
    gpus = report.gpu
    if not gpus.gpus:
        return [Finding(check="gpu", verdict="ok", text=gpus.note or "none")]
    names = ", ".join(f"{gpu.name} (compute {gpu.compute_capability})" for gpu in gpus.gpus)
    text = f"{names}, driver {gpus.driver}, CUDA up to {gpus.cuda_limit or 'unknown'}"
    artefact = ArtefactStore().current()
    if artefact is None or artefact.manifest.backend != "cuda":
        return [Finding(check="gpu", verdict="ok", text=text)]
    built = artefact.manifest.cuda_arch
    lacking = [gpu.name for gpu in gpus.gpus if not _runs_on(gpu.compute_capability, built)]
    text += f"; the runner is built for {', '.join(built)}"
    if not lacking:
        return [Finding(check="gpu", verdict="ok", text=text)]
    hint = f"{lacking[0]} is not among them: run `ollama-spec build`"
    return [Finding(check="gpu", verdict="fail", text=text, hint=hint)]


def _runs_on(capability: str | None, built: list[str]) -> bool:
    """Machine code runs on its own generation, from its own minor number on ("86" on 8.9)."""
    if capability is None:
        return True
    wanted = int(capability.replace(".", ""))
    archs = [int(re.sub(r"\D", "", arch)) for arch in built]
    return any(arch // 10 == wanted // 10 and arch <= wanted for arch in archs)


def _runner(settings: Config, report: Report) -> list[Finding]:
    found = binary.find(settings)
    if not found.relaxed:
        return [
            Finding(
                check="runner",
                verdict="warn",
                text=f"{found.path} is not ours: lossless drafting only",
                hint="run `ollama-spec build`",
            )
        ]
    artefact = None if settings.runner else ArtefactStore().current()
    if artefact is None:
        return [Finding(check="runner", verdict="ok", text=f"{found.build} ({found.path})")]
    manifest, tag = artefact.manifest, report.conclusion.tag
    if tag and manifest.tag != tag:
        problem = f"built at {manifest.tag}, Ollama carries {tag}"
    elif manifest.overlay != overlay.digest(resource_dir("runner_src")):
        problem = "built from an older version of our sources"
    else:
        return [Finding(check="runner", verdict="ok", text=manifest.key)]
    return [
        Finding(
            check="runner",
            verdict="warn",
            text=f"{manifest.key}: {problem}",
            hint="run `ollama-spec build`",
        )
    ]


def _sidecar(settings: Config) -> list[Finding]:
    state = sidecar_api.state(settings)
    if not state["running"]:
        return [
            Finding(
                check="sidecar",
                verdict="warn",
                text=state["problem"],
                hint="start it with `ollama-spec serve`, or for good with `service install`",
            )
        ]
    found = [
        Finding(
            check="sidecar",
            verdict="ok",
            text=f"{sidecar_api.url(settings)}, {len(state['models'])} models loaded",
        )
    ]
    for model in state["models"]:
        problem = (model.get("spec") or {}).get("problem")
        if problem:
            text = f"{model['name']} runs without drafting: {problem}"
            found.append(Finding(check="sidecar", verdict="warn", text=text))
    return found


def _disk() -> list[Finding]:
    return [_free("data", paths.data_dir()), _free("cache", paths.cache_dir())]


def _free(name: str, folder: Path) -> Finding:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(there).free
    text = f"{folder}: {output.human_size(free)} free"
    if free >= _BUILD_BYTES:
        return Finding(check=name, verdict="ok", text=text)
    need = output.human_size(_BUILD_BYTES)
    return Finding(check=name, verdict="warn", text=text, hint=f"a build takes up to {need}")


def _models() -> list[Finding]:
    records, damaged = ModelStore().survey()
    found = [
        Finding(check="models", verdict="fail", text=error.message, hint=error.hint)
        for error in damaged
    ]
    for record in records:
        found += attempt(record.name, functools.partial(_model, record))
    return found or [
        Finding(
            check="models",
            verdict="warn",
            text="none of ours",
            hint="`ollama-spec pull NAME` (`list --available` names them), or `create`",
        )
    ]


def _model(record: ModelRecord) -> list[Finding]:
    """Every file is there, and the pair fits the runner in use."""
    speculator = record.profile.prefill.speculator
    files = [record.target, record.drafter, record.projector, speculator]
    for path in (file.path for file in files if file):
        if not path.is_file():
            text = f"{path} is gone"
            hint = "put it back, or `pull` or `create` the model again"
            return [Finding(check=record.name, verdict="fail", text=text, hint=hint)]
    artefact = ArtefactStore().current()
    pair = checks.check_pair(
        record.target.path,
        record.drafter.path if record.drafter else None,
        speculator=speculator.path if speculator else None,
        tag=artefact.manifest.tag if artefact else None,
    )
    if not pair.ok:
        advice = pair.hints[0] if pair.hints else None
        return [Finding(check=record.name, verdict="fail", text=pair.problems[0], hint=advice)]
    text = f"target and drafter fit, {pair.spec_type}" if record.drafter else "no drafter"
    return [Finding(check=record.name, verdict="ok", text=text)]
