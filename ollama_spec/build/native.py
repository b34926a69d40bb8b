"""The native engine: compile llama-server with this machine's own compiler (and CUDA toolkit)."""

from __future__ import annotations

import shutil
from pathlib import Path

from ollama_spec import output, paths
from ollama_spec.artefacts import Artefact, Manifest
from ollama_spec.build import compat as compats
from ollama_spec.build import (
    cuda_plan,
    cuda_toolkit,
    elf,
    gpu,
    overlay,
    publish,
    sources,
    steps,
    tags,
    toolchain,
)
from ollama_spec.errors import ArtefactUnusable, BuildError
from ollama_spec.resources import resource_dir

BACKENDS = ("cpu", "cuda")


def build_native(
    tag: str,
    *,
    stock: bool = False,
    source: str | None = None,
    jobs: int | None = None,
    use: bool = True,
    layer: Path | None = None,
    backend: str = "cpu",
    cuda_arch: str | None = None,
) -> Artefact:
    """Build llama.cpp `tag` with our overlay (or as it comes, with `stock`) and publish it.

    `layer` is the folder of Ollama's compat layer, which then goes on first. `cuda_arch` names
    architectures ("86;120"); without it they are those of the GPUs here.

    Returns at once when the same artefact exists. With `use` it becomes the runner in use, unless
    it is a stock build and another is already in use. Raises BuildError and its subclasses.
    """
    overlay.tag_number(tag)
    if backend not in BACKENDS:
        raise BuildError(
            f"--backend {backend}: the native engine builds {' and '.join(BACKENDS)}",
            hint=f"`--engine docker --backend {backend}`",
        )
    cuda = _Cuda(cuda_arch) if backend == "cuda" else None
    layer = None if stock else layer
    key = artefact_key(tag, stock=stock, source=source, layer=layer, cuda=cuda)

    def make(staged: Path) -> Manifest:
        return _make(staged, key, tag, stock, source, jobs, layer, cuda)

    return publish.produce(key, tag, make, use=use)


class _Cuda:
    """Toolkit and architectures of a CUDA build."""

    def __init__(self, wanted: str | None) -> None:
        self.toolkit = cuda_toolkit.find()
        self.gpus = gpu.report()
        self.plan = cuda_plan.plan(self.gpus, wanted, self.toolkit.version, str(self.toolkit.home))
        self.archs = self.plan.archs
        self.word = "_".join(arch.removesuffix("-real") for arch in self.archs)

    def options(self) -> dict[str, str]:
        return {
            **steps.MODULES,
            **steps.CUDA,
            # One CPU module, for this CPU: modules cannot be built with GGML_NATIVE.
            "GGML_CPU_ALL_VARIANTS": "OFF",
            "CMAKE_C_FLAGS": "-march=native",
            "CMAKE_CXX_FLAGS": "-march=native",
            "CMAKE_CUDA_ARCHITECTURES": ";".join(self.archs),
            "CMAKE_CUDA_COMPILER": str(self.toolkit.nvcc),
            "CUDAToolkit_ROOT": str(self.toolkit.root),
        }


def artefact_key(
    tag: str,
    *,
    stock: bool,
    source: str | None,
    layer: Path | None = None,
    cuda: _Cuda | None = None,
) -> str:
    """Names tag, kind, CPU or GPU, compat layer and, for the user's own folder, its content."""
    parts = [tag, "stock" if stock else f"spec-{overlay.digest(resource_dir('runner_src'))}"]
    parts += ["native", *(["cuda", cuda.word] if cuda else ["cpu"]), toolchain.host_id()]
    if layer:
        parts.append(f"compat-{compats.digest(layer)}")
    return "-".join([*parts, *sources.key_part(source)])


def _make(
    staged: Path,
    key: str,
    tag: str,
    stock: bool,
    source: str | None,
    jobs: int | None,
    layer: Path | None,
    cuda: _Cuda | None,
) -> Manifest:
    tools = toolchain.find()
    root = paths.cache_dir() / "build" / tag
    tree, info = steps.prepare_tree(root, tag, source)
    ours = resource_dir("runner_src")
    wanted = list(steps.TARGETS)
    if stock:
        tree.make_stock()
    else:
        tree.apply(ours, tag, layer)
        wanted += [tool.name for tool in overlay.load(ours).tools]
    build = root / (f"native-cuda-{cuda.word}" if cuda else "native")
    commit = tags.table().commits.get(tag, info.commit)
    for warning in cuda.plan.warnings if cuda else ():
        output.note(f"warning: {warning}")
    options = cuda.options() if cuda else None
    steps.compile_tree(tree.src, build, tag, commit, tools, wanted, jobs, options)
    for name in wanted:
        shutil.copy2(build / "bin" / name, staged / "bin" / name)
    if cuda:
        _add_modules(build / "bin", staged / "bin", cuda)
    publish.copy_licence(tree.src, staged, tag)
    return Manifest(
        key=key,
        tag=tag,
        commit=commit,
        source=f"{info.origin} ({info.identity})",
        overlay=None if stock else overlay.digest(ours),
        engine="native",
        backend="cuda" if cuda else "cpu",
        cuda_arch=cuda.archs if cuda else [],
        compat=layer is not None,
        flags=[],
        compiler=tools.compiler + (f", CUDA {cuda.toolkit.text}" if cuda else ""),
    )


def _add_modules(built: Path, target: Path, cuda: _Cuda) -> None:
    """Our libraries are copied; CUDA's (hundreds of MB, stable ABI) are linked where they lie."""
    for path in sorted(built.glob("*.so*")):
        shutil.copy2(path, target / path.name, follow_symlinks=False)
    for path in cuda.toolkit.runtime_libraries():
        (target / path.name).symlink_to(path)
    problems = elf.problems(target)
    if problems:
        raise ArtefactUnusable(f"the built runner is linked wrongly: {problems[0]}")
    if not cuda.gpus.gpus:
        output.note("no NVIDIA GPU or driver here: the runner computes on the CPU until there is")
