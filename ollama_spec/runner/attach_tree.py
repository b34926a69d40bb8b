"""A private Ollama tree with our runner in it (DESIGN 1.3). The installed Ollama is never changed.

<data>/attach/<identity>/bin/ollama            hard link, or a copy across file systems
                         lib/ollama/*          links to the installed libraries
                         lib/ollama/llama-server   our launcher, which adds a model's flags
                         launcher.json         runner, and flags by path of the model's blob
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from ollama_spec import paths
from ollama_spec.errors import NotFoundError

_LAUNCHER = Path(__file__).with_name("attach_launcher.py")
_SERVER = "llama-server"


@dataclass(frozen=True)
class Installed:
    """An installed Ollama: its program and the folder with its llama-server and libraries."""

    program: Path
    libraries: Path

    @property
    def identity(self) -> str:
        """Changes when Ollama is updated."""
        facts = [self.program.stat(), (self.libraries / _SERVER).stat()]
        text = ",".join(f"{item.st_size}:{item.st_mtime_ns}" for item in facts)
        return hashlib.sha256(f"{self.program}:{text}".encode()).hexdigest()[:12]


def find_installed(program: Path | None = None) -> Installed:
    """The given `ollama`, else the one on PATH; NotFoundError when it or its runner is missing."""
    found = shutil.which(program or "ollama")
    if not found:
        raise NotFoundError(
            f"no Ollama found ({program or 'ollama is not on PATH'})",
            hint="install Ollama or name its program with --ollama",
        )
    real = Path(found).resolve()
    folder = real.parent
    for candidate in (folder.parent / "lib" / "ollama", folder / "lib" / "ollama", folder):
        if (candidate / _SERVER).is_file():
            return Installed(real, candidate)
    raise NotFoundError(
        f"{real} has no llama-server beside it",
        hint="attach needs Ollama v0.30.0 or newer, which brings a llama-server",
    )


def root() -> Path:
    return paths.data_dir() / "attach"


def build(installed: Installed, runner: Path, flags: dict[str, list[str]]) -> Path:
    """Make (or renew) the tree; trees of an Ollama that has changed since are removed."""
    tree = root() / installed.identity
    for old in root().glob("*"):
        if old != tree:
            shutil.rmtree(old, ignore_errors=True)
    libraries = paths.ensure(tree / "lib" / "ollama")
    program = paths.ensure(tree / "bin") / "ollama"
    if not program.exists():
        try:
            os.link(installed.program, program)
        except OSError:
            shutil.copy2(installed.program, program)
    for entry in installed.libraries.iterdir():
        link = libraries / entry.name
        if entry.name != _SERVER and not link.is_symlink():
            link.symlink_to(entry)
    settings = {"runner": str(runner), "models": flags}
    paths.atomic_write(tree / "launcher.json", json.dumps(settings, indent=2).encode())
    text = f"#!{sys.executable} -IS\n" + _LAUNCHER.read_text()
    paths.atomic_write(libraries / _SERVER, text.encode())
    (libraries / _SERVER).chmod(0o755)
    return tree


def describe(tree: Path) -> list[str]:
    """One line per entry, links with what they point at."""
    lines = [str(tree)]
    for path in sorted(tree.rglob("*")):
        shown = f"  {path.relative_to(tree)}"
        lines.append(f"{shown} -> {path.readlink()}" if path.is_symlink() else shown)
    return lines


def remove() -> bool:
    """Remove every tree; False when there was none."""
    if not root().exists():
        return False
    shutil.rmtree(root())
    return True
