"""systemd units: the sidecar as a service, and `--takeover` of Ollama's own address.

A takeover moves the real Ollama to another port by a drop-in of its unit and puts the sidecar at
the old address, so that clients need no new setting. Taking the service out removes both files.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jinja2
from pydantic import Field

from ollama_spec import paths
from ollama_spec.errors import ConfigError, OllamaSpecError
from ollama_spec.profiles import Strict
from ollama_spec.resources import resource_dir

UNIT = "ollama-spec.service"
TIMER = "ollama-spec-follow.timer"
FOLLOW = "ollama-spec-follow.service"  # what the timer starts: `build follow`, once
MARKER = "written by `ollama-spec service install`; `ollama-spec service uninstall` removes it"
SYSTEM_FOLDER = Path("/etc/systemd/system")
# Drop-ins are read in the order of their names and the last one wins: after `override.conf`.
DROP_IN = Path("ollama.service.d") / "zz-ollama-spec.conf"
DEFAULT_LISTEN = "127.0.0.1:11434"
MOVED = "127.0.0.1:11436"


class Plan(Strict):
    """Files to write and commands to run after that, in order."""

    files: dict[Path, str]
    commands: list[list[str]]
    notes: list[str] = Field(default_factory=list)


def plan_install(
    folder: Path,
    *,
    user: str | None = None,
    takeover: bool = False,
    listen: str = DEFAULT_LISTEN,
    gpu: Path | None = None,
    follow: bool = False,
) -> Plan:
    """What an installation does. `user` None is a unit of one's own, else one of the system.

    `folder` is where units lie; `listen` (HOST:PORT) is where Ollama listens before a takeover;
    `gpu` is the device node to wait for (CASES 39), None where there is no GPU; `follow` adds a
    timer that builds anew when Ollama has changed.
    """
    systemctl = _systemctl(user)
    values: dict[str, object] = {
        "marker": MARKER,
        "program": sys.executable,
        "user": user,
        "takeover": takeover,
        "listen": listen,
        "moved": MOVED,
        "gpu": gpu,
    }
    files = {folder / UNIT: _render("ollama-spec.service.j2", values)}
    commands = [[*systemctl, "daemon-reload"]]
    if takeover:
        files[folder / DROP_IN] = _render("ollama-takeover.conf.j2", values)
        commands.append([*systemctl, "restart", "ollama.service"])
    commands.append([*systemctl, "enable", "--now", UNIT])
    if follow:
        for name in (FOLLOW, TIMER):
            files[folder / name] = _render(f"{name}.j2", values)
        commands.append([*systemctl, "enable", "--now", TIMER])
    notes = [] if user else ["to start it at boot without a login: loginctl enable-linger"]
    return Plan(files=files, commands=commands, notes=notes)


def plan_uninstall(folder: Path, *, user: str | None = None) -> Plan:
    """The commands that take the service out; `files` names what goes (their text is empty)."""
    names = (UNIT, DROP_IN, TIMER, FOLLOW)
    ours = [folder / name for name in names if _is_ours(folder / name)]
    systemctl = _systemctl(user)
    commands = [[*systemctl, "daemon-reload"]]
    if folder / DROP_IN in ours:
        commands.append([*systemctl, "restart", "ollama.service"])
    return Plan(files=dict.fromkeys(ours, ""), commands=commands)


def install(plan: Plan) -> None:
    """Write and run; when a command fails, everything written goes again."""
    foreign = [path for path in plan.files if path.exists() and not _is_ours(path)]
    if foreign:
        raise ConfigError(
            f"{foreign[0]} exists and is not ours", hint="move it away, or keep using that unit"
        )
    before = {path: path.read_bytes() if path.exists() else None for path in plan.files}
    try:
        for path, text in plan.files.items():
            paths.atomic_write(path, text.encode())
            path.chmod(0o644)
        for command in plan.commands:
            _run(command)
    except BaseException:
        for name in (path.name for path in plan.files if path.suffix in (".service", ".timer")):
            _try([*plan.commands[0][:-1], "disable", "--now", name])
        for path, content in before.items():
            if content is None:
                path.unlink(missing_ok=True)
            else:
                paths.atomic_write(path, content)
        for command in plan.commands:
            if "enable" not in command:  # systemd and Ollama have to see the old files again
                _try(command)
        raise


def uninstall(plan: Plan, *, user: str | None = None) -> None:
    """Stop and disable service and timer, remove their files, tell systemd."""
    for name in (TIMER, UNIT):
        if any(path.name == name for path in plan.files):
            _run([*_systemctl(user), "disable", "--now", name])
    for path in plan.files:
        path.unlink()
        if path.parent.name.endswith(".d") and not any(path.parent.iterdir()):
            path.parent.rmdir()
    for command in plan.commands:
        _run(command)


def ollama_listens() -> str:
    """Where the installed Ollama service listens, HOST:PORT, from its unit's environment."""
    try:
        text = _run(["systemctl", "show", "--property=Environment", "--value", "ollama.service"])
    except OllamaSpecError:
        return DEFAULT_LISTEN
    for word in text.split():
        name, _, value = word.strip('"').partition("=")
        if name == "OLLAMA_HOST" and value != MOVED:
            return _address(value)
    return DEFAULT_LISTEN


def _address(ollama_host: str) -> str:
    """HOST:PORT of an `OLLAMA_HOST` as Ollama's server reads it; either may be missing."""
    host = ollama_host.split("://")[-1].split("/")[0]
    if not re.search(r":\d+$", host):
        host += ":11434"
    return f"0.0.0.0{host}" if host.startswith(":") else host


def gpu_node() -> Path | None:
    """The device node of an NVIDIA GPU, if this machine has one (WSL has another)."""
    nodes = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
    return next((node for node in nodes if node.exists()), None)


def user_folder() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "systemd" / "user"


def _systemctl(user: str | None) -> list[str]:
    return ["systemctl"] if user else ["systemctl", "--user"]


def _is_ours(path: Path) -> bool:
    return path.is_file() and MARKER in path.read_text()


def _render(name: str, values: dict[str, object]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resource_dir("templates")),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    return environment.get_template(name).render(values)


def _try(command: list[str]) -> None:
    with contextlib.suppress(OllamaSpecError):
        _run(command)


def _run(command: list[str]) -> str:
    if not shutil.which(command[0]):
        raise OllamaSpecError(
            f"{command[0]} not found: this system is not run by systemd",
            hint="let your own service manager run `ollama-spec serve`",
        )
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-400:]
        raise OllamaSpecError(f"`{' '.join(command)}` failed: {said}", hint="nothing was left")
    return done.stdout
