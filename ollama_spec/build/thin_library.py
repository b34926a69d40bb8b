"""Whether the libraries an Ollama installed can be linked with sources of one llama.cpp tag.

Their SONAMEs never change, so nothing but these checks stops a wrong pair.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from ollama_spec.build import elf, llama_version, tags
from ollama_spec.build.gpu import GpuReport
from ollama_spec.errors import BuildError

LIBRARIES = ("libllama", "libmtmd", "libggml", "libggml-base")
_INTERPOSED = "_ZN18llama_batch_allocr4init"
_API = re.compile(r"#define\s+GGML_BACKEND_API_VERSION\s+(\d+)")
# ggml_backend_init() returns a registration; its first member is the interface's version.
_ASK = """
import ctypes, sys
from pathlib import Path
for folder in (Path(sys.argv[1]), Path(sys.argv[1]).parent):
    if (folder / "libggml-base.so.0").exists():
        ctypes.CDLL(str(folder / "libggml-base.so.0"), ctypes.RTLD_GLOBAL)
        break
init = ctypes.CDLL(sys.argv[2]).ggml_backend_init
init.restype = ctypes.c_void_p
print(ctypes.c_int.from_address(init()).value)
"""


def check(library: Path, tag: str) -> str:
    """Raise BuildError unless `library` fits sources of `tag`; returns its commit or "unknown"."""
    missing = [name for name in LIBRARIES if not (library / f"{name}.so.0").exists()]
    if missing:
        raise BuildError(f"{library} lacks {', '.join(f'{name}.so.0' for name in missing)}")
    version = llama_version.of_binary(library / "llama-server", library)
    if version is None:
        raise BuildError(f"the llama-server in {library} does not say its version")
    check_version(version, tag, library)
    check_interposable(library / "libllama.so.0")
    return version.commit or "unknown"


def check_version(version: llama_version.LlamaVersion, tag: str, library: Path) -> None:
    """Build number and commit both decide; where neither is told nor known, nothing can object."""
    known, commit = tags.table().commits, version.commit
    other = [name for name, its in known.items() if commit and tags.same_commit(its, commit)]
    named = version.tag or (other[0] if other else None)
    if named and named != tag:
        raise BuildError(
            f"the libraries in {library} are of llama.cpp {named}, not {tag}",
            hint=f"build with `--tag {named}`, or use `--engine native`",
        )
    if commit and tag in known and not tags.same_commit(known[tag], commit):
        raise BuildError(
            f"the libraries in {library} are of commit {commit}, but {tag} is {known[tag][:9]}",
            hint="they are of a changed llama.cpp: use `--engine native`",
        )


def check_interposable(libllama: Path) -> None:
    """libllama must call its batch allocator through the PLT and export it."""
    for flags, wanted, what in (
        ("-rW", "JUMP_SLO", "calls its batch allocator directly (-Bsymbolic or LTO)"),
        ("--dyn-syms", " FUNC ", "does not export its batch allocator"),
    ):
        lines = [line for line in _readelf(libllama, flags) if _INTERPOSED in line]
        if not any(wanted in line and " UND " not in line for line in lines):
            raise BuildError(f"{libllama} {what}")


def check_backend_api(library: Path, src: Path) -> None:
    """The modules must speak the version of ggml's backend interface that the sources declare.

    A module that cannot be loaded here (no driver, say) is believed.
    """
    match = _API.search((src / "ggml/src/ggml-backend-impl.h").read_text())
    if match is None:
        return
    wanted = int(match.group(1))
    for module in sorted(library.glob("**/libggml-*.so")):
        found = api_version(module)
        if found is not None and found != wanted:
            raise BuildError(
                f"{module} speaks version {found} of ggml's backend interface, "
                f"the sources speak {wanted}",
                hint="the libraries are of several releases: reinstall Ollama",
            )


def api_version(module: Path) -> int | None:
    """What `module` answers, asked in a process of its own; None when it cannot be loaded here."""
    argv = [sys.executable, "-c", _ASK, str(module.parent), str(module)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip().isdigit() else None


def check_floor(library: Path) -> None:
    """Every library must find its glibc and libstdc++ on this machine."""
    folders = [library, *(path for path in library.iterdir() if path.is_dir())]
    problems = [problem for folder in folders for problem in elf.problems(folder, "libggml-*.so*")]
    problems += elf.problems(library, "lib*.so.0*")
    if problems:
        raise BuildError(f"Ollama's libraries in {library} do not fit this machine: {problems[0]}")


def has_compat(library: Path) -> bool:
    """Whether this libllama holds Ollama's compat layer: by the variable that turns it off."""
    return b"OLLAMA_LLAMA_CPP_COMPAT" in (library / "libllama.so.0").read_bytes()


def gpu_folder(names: list[str], gpus: GpuReport) -> str | None:
    """The folder of GPU modules that fits this machine, by Ollama's names for them.

    CUDA 13 serves compute capability 7.5 and newer and needs a driver of its own major version.
    """
    limit = _numbers(gpus.cuda_limit)
    capabilities = [_numbers(gpu.compute_capability) for gpu in gpus.gpus]
    if gpus.platform.startswith("jetson-"):
        wanted = [f"cuda_jetpack{gpus.platform[-1]}"]
    elif gpus.gpus:
        modern = limit >= (13, 0) and all(item >= (7, 5) for item in capabilities if item)
        wanted = [*(["cuda_v13"] if modern else []), "cuda_v12"]
    else:
        wanted = []
    return next((name for name in wanted if name in names), None)


def _numbers(version: str | None) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version or ""))


def _readelf(file: Path, flags: str) -> list[str]:
    try:
        done = subprocess.run(
            ["readelf", "--wide", flags, str(file)], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(
            f"cannot read {file}: {error}", hint="install binutils (readelf)"
        ) from error
    return done.stdout.splitlines()
