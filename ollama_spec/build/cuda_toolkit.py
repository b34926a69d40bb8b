"""Find a CUDA toolkit on this machine, in an installer's layout or in that of the Python wheels.

Wheels (nvidia-cuda-nvcc, -crt, nvidia-nvvm, -runtime, -cccl, nvidia-cublas; all below
site-packages/nvidia/cu13) have no lib64/, no libcudart.so without a version, and no stub of the
driver's library. `find` puts a folder of links with those beside our caches and uses that.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ollama_spec import paths
from ollama_spec.build import toolchain
from ollama_spec.errors import BuildError

_USUAL = (Path("/usr/local/cuda"), Path("/opt/cuda"))
_RUNTIME = ("libcudart.so", "libcublas.so", "libcublasLt.so")
_HINT = (
    "install a CUDA toolkit and set CUDA_HOME, take the wheels with nvidia-cuda-nvcc's and name "
    "their nvidia/cu13 folder in CUDA_HOME, or use `--engine docker`"
)


@dataclass(frozen=True)
class Toolkit:
    home: Path  # where it was found
    root: Path  # the same, or our folder of links over it
    text: str  # "13.0.88"

    @property
    def nvcc(self) -> Path:
        return self.root / "bin/nvcc"

    @property
    def version(self) -> tuple[int, int]:
        major, minor = self.text.split(".")[:2]
        return int(major), int(minor)

    def runtime_libraries(self) -> list[Path]:
        """The libraries a runner loads, named as it asks for them (by SONAME), where they lie."""
        # Not those of `root`: links to a cache folder would break when that is emptied.
        folder = self.home / ("lib64" if (self.home / "lib64").is_dir() else "lib")
        return [
            path
            for name in _RUNTIME
            for path in sorted(folder.glob(f"{name}.*"))
            if re.fullmatch(rf"{re.escape(name)}\.\d+", path.name)
        ]


def find() -> Toolkit:
    """The toolkit `home` finds, ready to compile with."""
    place = home()
    if place is None:
        raise BuildError("no CUDA toolkit found here", hint=_HINT)
    root = place if (place / "lib64/libcudart.so").exists() else _completed(place)
    return Toolkit(place, root, _version(root / "bin/nvcc"))


def home() -> Path | None:
    """The first with an nvcc: $CUDA_HOME, $CUDA_PATH, nvcc on PATH, /usr/local/cuda, /opt/cuda."""
    return next((place for place in _places() if (place / "bin/nvcc").is_file()), None)


def _places() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]).expanduser().resolve()
    nvcc = shutil.which("nvcc")
    if nvcc:
        yield Path(nvcc).resolve().parent.parent
    yield from _USUAL


def _version(nvcc: Path) -> str:
    try:
        done = subprocess.run(
            [str(nvcc), "--version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildError(f"{nvcc} does not run here: {error}", hint=_HINT) from error
    match = re.search(r"\bV(\d+\.\d+\.\d+)", done.stdout)
    if not match:
        raise BuildError(f"{nvcc} does not say its version")
    return match.group(1)


def _completed(home: Path) -> Path:
    """A folder with the files of `home` in an installer's layout, and a stub of the driver."""
    missing = [name for name in ("nvvm", "include", "lib") if not (home / name).is_dir()]
    if missing:
        raise BuildError(f"the CUDA toolkit in {home} lacks {', '.join(missing)}/", hint=_HINT)
    name = hashlib.sha256(str(home).encode()).hexdigest()[:8]
    root = paths.cache_dir() / "cuda" / name
    if (root / "complete").is_file():
        return root
    shutil.rmtree(root, ignore_errors=True)
    libraries = paths.ensure(root / "lib64/stubs").parent
    # nvcc takes its own real path for the toolkit's root, so it must not be a link.
    for part in ("bin", "nvvm"):
        shutil.copytree(home / part, root / part)
    (root / "include").symlink_to(home / "include")
    (root / "lib").symlink_to("lib64")
    for path in sorted((home / "lib").glob("lib*")):
        (libraries / path.name).symlink_to(path)
        plain = path.name.partition(".so.")[0] + ".so"
        if ".so." in path.name and not (libraries / plain).exists():
            (libraries / plain).symlink_to(path.name)
    driver_stub(home / "include/cuda.h", libraries / "stubs/libcuda.so")
    (root / "complete").touch()
    return root


def driver_stub(header: Path, target: Path) -> None:
    """A library to link against that names the driver's functions; it is never loaded."""
    text = header.read_text(errors="replace")
    names = set(re.findall(r"\b(cu[A-Z]\w*)\s*\(", text))
    names |= set(re.findall(r"#define\s+cu[A-Z]\w*\s+(cu[A-Z]\w*)", text))
    code = "\n".join(f"int {name}(void) {{ return 34; }}" for name in sorted(names))
    done = subprocess.run(
        [
            toolchain.compiler("CC", ("cc", "gcc", "clang")),
            *("-shared", "-fPIC", "-xc", "-", "-Wl,-soname,libcuda.so.1", "-o", str(target)),
        ],
        input=code,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildError(f"no stub of the CUDA driver could be made: {done.stderr.strip()[-200:]}")
