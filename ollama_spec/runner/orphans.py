"""Records of running children, and the sweep that ends those whose sidecar died.

A record holds pid, start time, executable and socket. A process is ended only when all of what
can be compared matches: pids are reused.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from pathlib import Path

import psutil
from pydantic import ValidationError

from ollama_spec import paths
from ollama_spec.profiles import Strict

log = logging.getLogger(__name__)


class PidRecord(Strict):
    pid: int
    started: float  # seconds since the epoch, from the kernel
    executable: str
    socket: str
    model: str
    owner: int  # pid of the sidecar
    owner_started: float


def _folder() -> Path:
    return paths.state_dir() / "children"


def write(pid: int, executable: Path, socket: str, model: str) -> Path | None:
    """Note a child; None when it has already ended."""
    try:
        started = psutil.Process(pid).create_time()
        owner = psutil.Process()
        record = PidRecord(
            pid=pid,
            started=started,
            executable=str(executable),
            socket=socket,
            model=model,
            owner=owner.pid,
            owner_started=owner.create_time(),
        )
    except psutil.Error:
        return None
    path = _folder() / f"{pid}.json"
    paths.atomic_write(path, record.model_dump_json().encode())
    return path


def sweep(grace: float = 3.0) -> list[int]:
    """End the children of dead sidecars: TERM, then KILL, to the group. Returns their pids."""
    ended = []
    for path in sorted(_folder().glob("*.json")):
        try:
            record = PidRecord.model_validate_json(path.read_bytes())
        except (ValidationError, OSError, json.JSONDecodeError):
            path.unlink(missing_ok=True)
            continue
        if _alive(record.owner, record.owner_started):
            continue
        if _is_ours(record):
            log.warning("ending llama-server %d left by a sidecar that died", record.pid)
            _end_group(record.pid, grace)
            ended.append(record.pid)
        path.unlink(missing_ok=True)
        if record.socket.startswith("/"):
            Path(record.socket).unlink(missing_ok=True)
    return ended


def _alive(pid: int, started: float) -> bool:
    try:
        return abs(psutil.Process(pid).create_time() - started) < 0.05
    except psutil.Error:
        return False


def _is_ours(record: PidRecord) -> bool:
    if not _alive(record.pid, record.started):
        return False
    try:
        command = psutil.Process(record.pid).cmdline()
    except psutil.Error:
        return False
    return record.executable in command and any(record.socket in part for part in command)


def _end_group(pid: int, grace: float) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(pid, number)
        except (ProcessLookupError, PermissionError):
            return
        deadline = time.monotonic() + grace
        while time.monotonic() < deadline:
            if not psutil.pid_exists(pid):
                return
            time.sleep(0.05)
