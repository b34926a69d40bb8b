"""Which CUDA architectures to compile: always explicit, checked against toolkit and driver first.

Toolkit lists are what each nvcc's ptxas prints (BUILD notes in CONTRIBUTING). "native" is never
used: inside a container without a GPU it turns into garbage.
"""

from __future__ import annotations

import re

from ollama_spec.build.gpu import GpuReport
from ollama_spec.errors import BuildError
from ollama_spec.profiles import Strict

DEFAULT_IMAGE = "nvidia/cuda:12.8.1-devel-rockylinux8"  # glibc 2.28
_OLD = ["50", "52", "53", "60", "61", "62", "70", "72", "75", "80", "86", "87", "89", "90"]
_SUPPORTED: list[tuple[tuple[int, int], list[str]]] = [  # from this version on
    ((12, 0), _OLD),
    ((12, 8), [*_OLD, "100", "101", "120"]),
    ((12, 9), [*_OLD, "100", "101", "103", "120", "121"]),
    ((13, 0), ["75", "80", "86", "87", "88", "89", "90", "100", "103", "110", "120", "121"]),
]
# ggml compiles with -compress-mode from 12.8 on, which older drivers cannot read.
_DRIVER_FLOOR = 550


class CudaPlan(Strict):
    toolkit: str  # "12.8"
    archs: list[str]  # CMake's words: "89-real"
    warnings: list[str]


def supported(toolkit: tuple[int, int]) -> list[str]:
    fitting = [archs for since, archs in _SUPPORTED if toolkit >= since]
    if not fitting:
        raise BuildError(f"CUDA {toolkit[0]}.{toolkit[1]} is too old: 12.0 is the least")
    return fitting[-1]


def toolkit_of(image: str) -> tuple[int, int]:
    """The CUDA version a tag such as nvidia/cuda:12.8.1-devel-rockylinux8 names."""
    match = re.search(r":(\d+)\.(\d+)", image)
    if match is None:
        raise BuildError(
            f"the image {image!r} does not name its CUDA version",
            hint="use a tag that begins with the version, e.g. nvidia/cuda:12.8.1-devel-...",
        )
    return int(match.group(1)), int(match.group(2))


def plan(gpus: GpuReport, wanted: str | None, toolkit: tuple[int, int], where: str) -> CudaPlan:
    """Architectures for the GPUs here, or those `wanted` ("86;120"), as real code only.

    `toolkit` is the version of the one in `where`: an image's name, or a folder.
    """
    numbers = _wanted(wanted) if wanted else _of_gpus(gpus)
    known, version = supported(toolkit), f"{toolkit[0]}.{toolkit[1]}"
    missing = [number for number in numbers if number not in known]
    if missing:
        need = _first_with(missing[0])
        raise BuildError(
            f"CUDA {version} ({where}) cannot compile for architecture {', '.join(missing)}",
            hint=f"architecture {missing[0]} needs CUDA {need}; choose another toolkit "
            "(docker: --base-image)"
            if need
            else f"CUDA {version} knows {', '.join(known)}",
        )
    return CudaPlan(
        toolkit=version, archs=[_real(number) for number in numbers], warnings=_warn(gpus, toolkit)
    )


def _wanted(text: str) -> list[str]:
    numbers = [part.strip() for part in re.split(r"[;,\s]+", text) if part.strip()]
    plain = [re.sub(r"[af]?(-real)?$", "", number).replace(".", "") for number in numbers]
    wrong = [given for given, number in zip(numbers, plain, strict=True) if not number.isdigit()]
    if wrong or not plain:
        raise BuildError(
            f"--cuda-arch {text!r}: not a list of architectures", hint='for example "86;120"'
        )
    return list(dict.fromkeys(plain))


def _of_gpus(gpus: GpuReport) -> list[str]:
    found = [gpu.compute_capability for gpu in gpus.gpus if gpu.compute_capability]
    if not found:
        raise BuildError(
            "no GPU here says its compute capability, so the architecture is unknown",
            hint="name it: `--cuda-arch 89` (compute capability 8.9)",
        )
    return sorted({capability.replace(".", "") for capability in found}, key=int)


def _real(number: str) -> str:
    """Blackwell's consumer chips need their own feature set ("a"), as ggml asks for it too."""
    return f"{number}a-real" if number in ("120", "121") else f"{number}-real"


def _first_with(number: str) -> str | None:
    for since, archs in _SUPPORTED:
        if number in archs:
            return f"{since[0]}.{since[1]} or newer"
    return None


def _warn(gpus: GpuReport, toolkit: tuple[int, int]) -> list[str]:
    warnings = []
    major = int((gpus.driver or "0").split(".")[0] or 0)
    if major and toolkit >= (12, 8) and major < _DRIVER_FLOOR:
        warnings.append(
            f"driver {gpus.driver} is older than {_DRIVER_FLOOR}: it cannot run what CUDA "
            f"{toolkit[0]}.{toolkit[1]} compiles; update the driver"
        )
    return warnings
