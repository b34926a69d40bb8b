"""Where things live: platformdirs, overridden by systemd's `*_DIRECTORY` when a unit sets them.

config   config.yaml
data     models/ (our records), artefacts/ (built runners), weights/ (what `pull` fetched)
cache    sources/, build trees, demo weights: safe to delete at any time
state    pid records, logs, the last good build
runtime  Unix sockets and locks, mode 0700
"""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path

import platformdirs

APP = "ollama-spec"


def _dir(systemd_variable: str, fallback: str) -> Path:
    # systemd allows several folders separated by ":"; the first is ours.
    override = os.environ.get(systemd_variable, "").split(":")[0]
    return Path(override) if override else Path(fallback)


def config_dir() -> Path:
    return _dir("CONFIGURATION_DIRECTORY", platformdirs.user_config_dir(APP))


def data_dir() -> Path:
    override = os.environ.get("OLLAMA_SPEC_DATA")
    return Path(override) if override else Path(platformdirs.user_data_dir(APP))


def cache_dir() -> Path:
    return _dir("CACHE_DIRECTORY", platformdirs.user_cache_dir(APP))


def state_dir() -> Path:
    return _dir("STATE_DIRECTORY", platformdirs.user_state_dir(APP))


def runtime_dir() -> Path:
    """Folder for sockets and locks; kept short because a Unix socket path holds 107 bytes."""
    with warnings.catch_warnings():
        # A runtime folder that others can read is refused by platformdirs, rightly and loudly.
        warnings.simplefilter("ignore")
        folder = _dir("RUNTIME_DIRECTORY", platformdirs.user_runtime_dir(APP))
    if len(str(folder)) > 60:
        folder = Path(tempfile.gettempdir()) / f"{APP}-{os.getuid()}"
    return folder


def ensure(folder: Path, mode: int = 0o755) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=mode)
    return folder


def atomic_write(path: Path, data: bytes) -> None:
    """Write `data` so that `path` holds either the old or the whole new content, never a part."""
    ensure(path.parent)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
