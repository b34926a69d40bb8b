"""What a build needs from this machine: compilers, CMake, Ninja, ccache, and how many jobs fit."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from ollama_spec import output, paths
from ollama_spec.errors import BuildError

# The largest C++ units of llama.cpp (server-context, arg) peak near this with -O3.
_GIB_PER_JOB = 1.0
_GIB_RESERVED = 1.0


@dataclass(frozen=True)
class Toolchain:
    cc: str
    cxx: str
    cmake: str
    ninja: str
    ccache: str | None
    compiler: str  # first line of `c++ --version`


def find() -> Toolchain:
    """Locate everything; CMake and Ninja come from Python packages when they are not installed."""
    cc = compiler("CC", ("cc", "gcc", "clang"))
    cxx = compiler("CXX", ("c++", "g++", "clang++"))
    version = subprocess.run([cxx, "--version"], capture_output=True, text=True, check=False)
    lines = version.stdout.splitlines()
    return Toolchain(
        cc, cxx, _tool("cmake"), _tool("ninja"), shutil.which("ccache"), lines[0] if lines else cxx
    )


def compiler(variable: str, names: tuple[str, ...]) -> str:
    chosen = os.environ.get(variable)
    for name in (chosen,) if chosen else names:
        found = shutil.which(name)
        if found:
            return found
    wanted = chosen or ", ".join(names)
    raise BuildError(
        f"no {'C++' if variable == 'CXX' else 'C'} compiler found (looked for {wanted})",
        hint="install one: `apt install g++`, `dnf install gcc-c++` or `xcode-select --install`",
    )


def _tool(name: str) -> str:
    found = shutil.which(name)
    return found or str(_packaged(name))


def _packaged(name: str) -> Path:
    """The tool out of its Python package, in an environment of its own below the cache."""
    folder = paths.cache_dir() / "tools"
    path = folder / "bin" / name
    if path.exists():
        return path
    output.note(f"{name} is not installed: taking the Python package {name}")
    steps = [
        [sys.executable, "-m", "venv", "--without-pip", str(folder)],
        [sys.executable, "-m", "pip", "--python", str(folder), "install", "--quiet", name],
    ]
    for argv in steps:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            reason = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            raise BuildError(
                f"{name} is not installed and its Python package cannot be had: {' '.join(reason)}",
                hint=f"install {name} with your system's packages",
            )
    return path


def jobs(wanted: int | None = None) -> int:
    """`wanted`, else as many as both cores and free memory allow (at least one)."""
    if wanted is not None:
        if wanted < 1:
            raise BuildError(f"--jobs {wanted}: at least one job is needed")
        return wanted
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return fitting_jobs(cores or 1, psutil.virtual_memory().available / 2**30)


def fitting_jobs(cores: int, free_gib: float) -> int:
    return max(1, min(cores, int((free_gib - _GIB_RESERVED) / _GIB_PER_JOB)))


def environment(tools: Toolchain, root: Path) -> dict[str, str]:
    """Environment of the build: plain, untranslated compiler messages; ccache by relative paths.

    `root` holds both source and build folder, so that ccache sees the same paths wherever it lies.
    """
    env = {**os.environ, "LC_ALL": "C", "CC": tools.cc, "CXX": tools.cxx}
    env["PATH"] = os.pathsep.join([str(Path(tools.ninja).parent), env.get("PATH", "")])
    if tools.ccache:
        env.setdefault("CCACHE_NOHASHDIR", "1")
        env["CCACHE_BASEDIR"] = str(root)
    return env


def host_id() -> str:
    """Changes with the instruction set: a runner tuned for one CPU can be illegal on another."""
    text = platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith(("flags", "Features")):
                text += " ".join(sorted(line.partition(":")[2].split()))
                break
    return hashlib.sha256(text.encode()).hexdigest()[:8]
