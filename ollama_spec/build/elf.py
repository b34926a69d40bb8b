"""Link checks of built files by `readelf`: no build-machine paths, no NCCL, a glibc old enough."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path

from ollama_spec.errors import BuildError
from ollama_spec.profiles import Strict


class Links(Strict):
    needed: list[str]
    runpath: list[str]
    glibc: str | None  # newest GLIBC_x.y symbol version asked for


def parse(dynamic: str, versions: str) -> Links:
    """From the text of `readelf -dW` and `readelf -VW`."""
    needed = re.findall(r"\(NEEDED\).*\[(.*?)\]", dynamic)
    paths = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*?)\]", dynamic)
    asked = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_(\d+(?:\.\d+)+)", versions)}
    newest = max(asked, default=None)
    return Links(
        needed=needed,
        runpath=[part for text in paths for part in text.split(":")],
        glibc=".".join(map(str, newest)) if newest else None,
    )


def read(path: Path) -> Links:
    try:
        dynamic, versions = (
            subprocess.run(
                ["readelf", flag, str(path)],
                capture_output=True,
                text=True,
                errors="replace",
                check=True,
                env={**os.environ, "LC_ALL": "C"},
            ).stdout
            for flag in ("-dW", "-VW")
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(
            f"cannot read {path}: {error}", hint="install binutils (readelf)"
        ) from error
    return parse(dynamic, versions)


def complaints(name: str, links: Links, host_glibc: str) -> list[str]:
    """What would keep this file from running on a host with `host_glibc` ("2.36")."""
    found = [
        f"{name} looks for libraries in {part!r}, a path of the build machine"
        for part in links.runpath
        if part and not part.startswith("$ORIGIN")
    ]
    found += [
        f"{name} needs {library}, which hosts do not have"
        for library in links.needed
        if library.startswith(("libnccl", "libgomp"))
    ]
    if links.glibc and _key(links.glibc) > _key(host_glibc):
        found.append(
            f"{name} needs glibc {links.glibc}, this host has {host_glibc}: "
            "build on an older --base-image"
        )
    return found


def problems(folder: Path) -> list[str]:
    """Complaints about every ELF file in `folder`."""
    host = platform.libc_ver()[1] or "0"
    found: list[str] = []
    for path in sorted(folder.iterdir()):
        if not path.is_symlink() and path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
            found += complaints(path.name, read(path), host)
    return found


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
