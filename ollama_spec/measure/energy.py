"""Energy of the NVIDIA GPUs, where the optional package `nvidia-ml-py` can read it."""

from __future__ import annotations

import functools
import importlib
from typing import Any


@functools.cache
def _counters() -> tuple[Any, list[Any]] | None:
    """NVML and the GPUs that count energy; None where there is no library, driver or such GPU."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        gpus = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        for gpu in gpus:
            nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
    except ImportError:
        return None
    except Exception:  # NVML's own error class exists only where the library does
        return None
    return (nvml, gpus) if gpus else None


def joules() -> float | None:
    """Energy of all GPUs since their driver was loaded, or None where nothing counts it."""
    found = _counters()
    if found is None:
        return None
    nvml, gpus = found
    return float(sum(nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) for gpu in gpus)) / 1000


def since(before: float | None) -> float | None:
    now = joules()
    return None if before is None or now is None else now - before
