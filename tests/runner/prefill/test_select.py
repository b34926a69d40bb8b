"""Selection alone: compiled with the sanitisers and run, no model needed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3] / "runner_src"


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_selection(tmp_path: Path) -> None:
    program = tmp_path / "select_test"
    flags = ["-std=c++17", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined"]
    files = [str(SOURCES / "tests" / "select_test.cpp"), str(SOURCES / "select.cpp")]
    build = subprocess.run(
        ["g++", *flags, *files, "-o", str(program)], capture_output=True, text=True
    )
    assert build.returncode == 0, build.stderr
    run = subprocess.run([str(program)], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "0 failures\n"), run.stdout + run.stderr
