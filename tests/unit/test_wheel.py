"""The wheel holds everything a user needs: a package called `build` is easily lost on the way."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import ollama_spec

ROOT = Path(ollama_spec.__file__).parents[1]


def test_the_wheel_holds_every_package_and_the_data_folders(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(tmp_path), "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    sources = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "ollama_spec").rglob("*")
        if path.suffix in {".py", ".yaml", ".typed"} and "__pycache__" not in path.parts
    }
    for folder in ("runner_src", "templates"):
        sources |= {
            f"ollama_spec/_data/{path.relative_to(ROOT)}"
            for path in (ROOT / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts and path.name != ".gitkeep"
        }
    assert "ollama_spec/build/__init__.py" in sources
    assert sources - held == set()
