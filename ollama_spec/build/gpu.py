"""What GPU is here and what its driver can run; never by reading nvidia-smi's banner.

The driver library is asked in a child process with a time-out, because loading it can hang.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from pydantic import Field

from ollama_spec.profiles import Strict

_WSL = Path("/usr/lib/wsl/lib")
_QUERY = "index,name,compute_cap,driver_version,memory.total"
# Attributes 75 and 76 of cuDeviceGetAttribute: compute capability, major and minor.
_PROBE = """
import ctypes, json, sys
lib = ctypes.CDLL(sys.argv[1])
def number(call, *args):
    value = ctypes.c_int()
    return value.value if call(ctypes.byref(value), *args) == 0 else None
if lib.cuInit(0) != 0:
    sys.exit("cuInit failed")
limit, count = number(lib.cuDriverGetVersion), number(lib.cuDeviceGetCount) or 0
caps = []
for i in range(count):
    caps.append([number(lib.cuDeviceGetAttribute, a, i) for a in (75, 76)])
print(json.dumps({"limit": limit, "caps": caps}))
"""


class Gpu(Strict):
    name: str
    compute_capability: str | None = None  # "8.9"
    memory_mib: int | None = None


class GpuReport(Strict):
    gpus: list[Gpu] = Field(default_factory=list)
    driver: str | None = None
    cuda_limit: str | None = None  # newest CUDA the driver serves, "12.8"
    platform: str = "plain"  # plain, wsl, jetson-5, jetson-6
    note: str | None = None


def report() -> GpuReport:
    platform = _platform()
    smi = shutil.which("nvidia-smi") or _existing(_WSL / "nvidia-smi")
    gpus, driver = parse_smi(_run([smi, f"--query-gpu={_QUERY}", *_CSV])) if smi else ([], None)
    probe = _driver_probe()
    if probe and not gpus:
        gpus = [Gpu(name="NVIDIA GPU") for _ in probe.caps]
    if probe:
        gpus = [_with_capability(*pair) for pair in zip(gpus, probe.caps, strict=False)]
    limit = probe.limit if probe else None
    return GpuReport(
        gpus=gpus,
        driver=driver,
        cuda_limit=f"{limit // 1000}.{limit % 1000 // 10}" if limit else None,
        platform=platform,
        note=None if gpus else "no NVIDIA GPU found",
    )


_CSV = ["--format=csv,noheader,nounits"]


def parse_smi(text: str) -> tuple[list[Gpu], str | None]:
    """Rows of the query above; columns a driver does not know read "[N/A]" or similar."""
    gpus, driver = [], None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != 5 or not cells[0].isdigit():
            continue
        _, name, capability, driver, memory = cells
        gpus.append(
            Gpu(
                name=name,
                compute_capability=capability if capability[:1].isdigit() else None,
                memory_mib=int(memory) if memory.isdigit() else None,
            )
        )
    return gpus, driver


def _with_capability(gpu: Gpu, capability: list[int | None]) -> Gpu:
    if gpu.compute_capability or None in capability:
        return gpu
    return gpu.model_copy(update={"compute_capability": f"{capability[0]}.{capability[1]}"})


class _Probe(Strict):
    limit: int | None  # 12080 means CUDA 12.8
    caps: list[list[int | None]]  # [[8, 9], ...]


def _driver_probe() -> _Probe | None:
    library = _existing(_WSL / "libcuda.so.1") or "libcuda.so.1"
    text = _run([sys.executable, "-c", _PROBE, library])
    return _Probe.model_validate_json(text) if text.startswith("{") else None


def _existing(path: Path) -> str | None:
    return str(path) if path.exists() else None


def _platform() -> str:
    if Path("/dev/dxg").exists():
        return "wsl"
    release = Path("/etc/nv_tegra_release")
    if release.exists():
        text = release.read_text()
        return "jetson-5" if " R35 " in text or "R35 (" in text else "jetson-6"
    return "plain"


def _run(argv: list[str]) -> str:
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=15, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
