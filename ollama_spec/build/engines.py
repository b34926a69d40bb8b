"""Choose tag and engine, then build: what `build`, `build follow` and others call."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ollama_spec import config
from ollama_spec.artefacts import Artefact
from ollama_spec.build import compat, cuda_toolkit, docker_plan, gpu, overlay, tags, thin, toolchain
from ollama_spec.build.detect import Report, detect, pick
from ollama_spec.build.native import build_native
from ollama_spec.build.steps import TARGETS
from ollama_spec.errors import BuildError
from ollama_spec.resources import resource_dir

ENGINES = ("auto", "thin", "docker", "native")
_OPTIONS_OF = {
    "stock": ("native",),
    "library": ("thin",),
    "cuda_arch": ("native", "docker"),
    "base_image": ("docker",),
    "mirror": ("docker",),
    "in_container": ("docker",),
}


@dataclass(frozen=True)
class Request:
    """What the user asked for; None means "you choose"."""

    tag: str | None = None
    engine: str = "auto"
    source: str | None = None
    jobs: int | None = None
    stock: bool = False
    use: bool = True
    library: Path | None = None  # thin: Ollama's lib/ollama
    compat: str = "auto"  # native, docker: auto, none, git, or a folder with Ollama's source
    backend: str | None = None  # native, docker
    cuda_arch: str | None = None
    base_image: str | None = None
    mirror: str | None = None
    in_container: bool = False


@dataclass(frozen=True)
class Choice:
    tag: str
    engine: str
    library: Path | None
    ollama: str | None  # version, for Ollama's own source
    why: str


def choose(request: Request) -> Choice:
    """Tag and engine of `request`; looks at this machine only where the request leaves a choice."""
    if request.engine not in ENGINES:
        raise BuildError(f"--engine {request.engine!r}: one of {', '.join(ENGINES)}")
    if request.stock or (request.tag and request.engine in ("native", "docker")):
        engine = request.engine if request.engine != "auto" else "native"
        choice = Choice(request.tag or config.load().llama_tag, engine, None, None, "as asked")
    else:
        choice = decide(request, detect())
    _refuse_strangers(request, choice.engine)
    return choice


def _refuse_strangers(request: Request, engine: str) -> None:
    """An option that `engine` does not know would do nothing: say so before compiling."""
    for name, engines in _OPTIONS_OF.items():
        if getattr(request, name) and engine not in engines:
            raise BuildError(
                f"--{name.replace('_', '-')} is for the engine {' or '.join(engines)}; "
                f"this build takes {engine}",
                hint=f"add `--engine {engines[-1]}`, or leave the option out",
            )


def decide(request: Request, report: Report) -> Choice:
    """The pure part of `choose`."""
    version = report.server.version
    chosen = next((item for item in report.binaries if item.path == report.chosen), None)
    if version is None and chosen is not None:
        version = chosen.version
    found = report.conclusion.tag
    if request.tag is None and found is None and chosen is not None:
        tags.require(report.conclusion)  # an Ollama whose tag is unknown: say so, do not guess
    tag = request.tag or found or config.load().llama_tag
    why = f"by {report.conclusion.how}" if tag == found else "as asked or configured"
    library = request.library or (chosen.library if chosen else None)
    engine = request.engine
    if engine == "auto":
        engine = report.engine
        if engine == "thin" and tag != found:  # Ollama's libraries are of another tag
            engine = pick([item for item in report.engines if item.engine != "thin"], report.gpu)
        if request.backend not in (None, "cpu") and engine != "thin":
            engine = _for_backend(request.backend, report)
    if engine == "thin" and library is None:
        raise BuildError(
            "the thin engine needs Ollama's libraries and no Ollama was found",
            hint="name its folder with `--library /usr/local/lib/ollama`, or use --engine native",
        )
    return Choice(tag, engine, library, version, why)


def _for_backend(backend: str | None, report: Report) -> str:
    """docker compiles every backend; native CUDA only, where a toolkit is and no daemon."""
    works = {verdict.engine: verdict.works for verdict in report.engines}
    native = backend == "cuda" and not works.get("docker") and cuda_toolkit.home() is not None
    return "native" if native else "docker"


def native_backend(request: Request) -> str:
    """What the native engine builds: as asked, else CUDA where both a GPU and a toolkit are."""
    if request.backend:
        return request.backend
    return "cuda" if gpu.report().gpus and cuda_toolkit.home() else "cpu"


def plan_docker(request: Request, choice: Choice) -> docker_plan.DockerPlan:
    """Everything the docker engine would do; needs no daemon."""
    gpus = gpu.report()
    tools = [*TARGETS, *(tool.name for tool in overlay.load(resource_dir("runner_src")).tools)]
    return docker_plan.make(
        choice.tag,
        backend=request.backend or ("cuda" if gpus.gpus else "cpu"),
        gpus=gpus,
        jobs=toolchain.jobs(request.jobs),
        tools=tools,
        commit=tags.table().commits.get(choice.tag, "unknown"),
        cuda_arch=request.cuda_arch,
        base_image=request.base_image,
        mirror=request.mirror,
        in_container=request.in_container,
    )


def build(request: Request, choice: Choice | None = None) -> Artefact:
    """Build (or find) the runner `request` asks for. Raises BuildError and its subclasses."""
    choice = choice or choose(request)
    if choice.engine == "thin":
        assert choice.library is not None  # decide() refused otherwise
        return thin.build_thin(
            choice.tag,
            choice.library,
            source=request.source,
            jobs=request.jobs,
            use=request.use,
        )
    layer = None
    if not request.stock:
        layer = compat.choose(request.compat, choice.tag, choice.ollama)
    if choice.engine == "docker":
        from ollama_spec.build.docker_engine import build_docker  # docker's library loads slowly

        plan = plan_docker(request, choice)
        return build_docker(plan, source=request.source, use=request.use, layer=layer)
    return build_native(
        choice.tag,
        stock=request.stock,
        source=request.source,
        jobs=request.jobs,
        use=request.use,
        layer=layer,
        backend=native_backend(request),
        cuda_arch=request.cuda_arch,
    )
