"""Everything the docker engine is going to do, worked out without a daemon."""

from __future__ import annotations

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ollama_spec.build import cuda_plan, steps
from ollama_spec.build.gpu import GpuReport
from ollama_spec.build.overlay import tag_number
from ollama_spec.errors import BuildError
from ollama_spec.profiles import Strict
from ollama_spec.resources import resource_dir

UID = 1000
BACKENDS = ("cpu", "cuda", "vulkan")
_IMAGES = {
    "cpu": "rockylinux:8",
    "cuda": cuda_plan.DEFAULT_IMAGE,
    "vulkan": "ubuntu:24.04",  # the oldest with glslc
}
_PACKAGES = {"cpu": [], "cuda": [], "vulkan": ["libvulkan-dev", "glslc", "spirv-headers"]}
_BACKEND_OPTIONS = {
    "cpu": {},
    "cuda": {
        **steps.CUDA,
        "CMAKE_CUDA_COMPILER": "/usr/local/cuda/bin/nvcc",
    },
    "vulkan": {"GGML_VULKAN": "ON"},
}


class DockerPlan(Strict):
    tag: str
    backend: str
    base_image: str
    image: str  # name of the toolchain image made from it
    cuda: cuda_plan.CudaPlan | None
    jobs: int
    dockerfile: str
    script: str
    tools: list[str]
    in_container: bool = False  # the result runs in the image, not on the host


def make(
    tag: str,
    *,
    backend: str,
    gpus: GpuReport,
    jobs: int,
    tools: list[str],
    commit: str = "unknown",
    cuda_arch: str | None = None,
    base_image: str | None = None,
    mirror: str | None = None,
    in_container: bool = False,
) -> DockerPlan:
    """Render Dockerfile and build script. `mirror` goes before the names of images of ours."""
    if backend not in BACKENDS:
        raise BuildError(f"--backend {backend!r}: one of {', '.join(BACKENDS)}")
    if cuda_arch and backend != "cuda":
        raise BuildError("--cuda-arch is for --backend cuda")
    base = base_image or _IMAGES[backend]
    if mirror and not base_image:
        base = f"{mirror.rstrip('/')}/{base}"
    cuda = _cuda(gpus, cuda_arch, base) if backend == "cuda" else None
    defines = {
        **steps.MODULES,
        **_BACKEND_OPTIONS[backend],
        "LLAMA_BUILD_NUMBER": str(tag_number(tag)),
        "LLAMA_BUILD_COMMIT": commit[:9],
    }
    if cuda:
        defines["CMAKE_CUDA_ARCHITECTURES"] = ";".join(cuda.archs)
    environment = Environment(
        loader=FileSystemLoader(resource_dir("templates")),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # shell text, with values of our own making only
    )
    dockerfile = environment.get_template("Dockerfile.j2").render(
        base_image=base, packages=_PACKAGES[backend], uid=UID
    )
    script = environment.get_template("build.sh.j2").render(
        backend=backend, defines=_quoted(defines), jobs=jobs, tools=tools
    )
    return DockerPlan(
        tag=tag,
        backend=backend,
        base_image=base,
        image=f"ollama-spec-toolchain-{backend}",
        cuda=cuda,
        jobs=jobs,
        dockerfile=dockerfile,
        script=script,
        tools=tools,
        in_container=in_container,
    )


def _cuda(gpus: GpuReport, wanted: str | None, image: str) -> cuda_plan.CudaPlan:
    return cuda_plan.plan(gpus, wanted, cuda_plan.toolkit_of(image), image)


def _quoted(defines: dict[str, str]) -> dict[str, str]:
    """Values stand between double quotes in the script."""
    special = str.maketrans({character: "\\" + character for character in '\\"$`'})
    return {name: value.translate(special) for name, value in defines.items()}
