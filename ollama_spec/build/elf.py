"""Link checks of built files by `readelf`: no build-machine paths, no NCCL, a glibc old enough."""

from __future__ import annotations

import ctypes
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
    glibcxx: str | None = None  # newest GLIBCXX_x.y.z asked for


def parse(dynamic: str, versions: str) -> Links:
    """From the text of `readelf -dW` and `readelf -VW`."""
    needed = re.findall(r"\(NEEDED\).*\[(.*?)\]", dynamic)
    paths = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*?)\]", dynamic)
    return Links(
        needed=needed,
        runpath=[part for text in paths for part in text.split(":")],
        glibc=_newest("GLIBC", versions),
        glibcxx=_newest("GLIBCXX", versions),
    )


def _newest(name: str, text: str) -> str | None:
    found = re.findall(rf"\b{name}_(\d+(?:\.\d+)+)", text)
    return max(found, key=_key, default=None)


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


def complaints(name: str, links: Links, glibc: str | None, glibcxx: str | None = None) -> list[str]:
    """What would keep this file from running on a host with that `glibc` ("2.36") and libstdc++."""
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
    for what, asked, has in (
        ("glibc", links.glibc, glibc),
        ("libstdc++ with GLIBCXX", links.glibcxx, glibcxx),
    ):
        if asked and has and _key(asked) > _key(has):
            found.append(
                f"{name} needs {what} {asked}, this host has {has}: build on an older --base-image"
            )
    return found


def problems(folder: Path, pattern: str = "*", *, on_host: bool = True) -> list[str]:
    """Complaints about every ELF file in `folder` whose name fits `pattern`.

    Without `on_host` it does not matter what C and C++ libraries this host has.
    """
    glibc, glibcxx = (platform.libc_ver()[1], host_glibcxx()) if on_host else (None, None)
    found: list[str] = []
    for path in sorted(folder.glob(pattern)):
        if not path.is_symlink() and path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
            found += complaints(path.name, read(path), glibc, glibcxx)
    return found


def host_glibcxx() -> str | None:
    """The newest GLIBCXX version of this host's libstdc++; None where there is no such library."""
    try:
        ctypes.CDLL("libstdc++.so.6")
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    match = re.search(r"\S*/libstdc\+\+\.so\.6\S*", maps)
    text = Path(match.group(0)).read_bytes().decode("latin-1") if match else ""
    return _newest("GLIBCXX", text)


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
