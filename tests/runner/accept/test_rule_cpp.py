"""The pure C++ parts of the overlay, each compiled with nothing but its own sources."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3] / "runner_src"
TESTS = {
    "rule_test.cpp": ["ospec-rule.cpp"],
    "policy_test.cpp": ["ospec-depth.cpp", "ospec-thinking.cpp"],
}


@pytest.mark.parametrize("test", TESTS)
def test_cpp(test: str, tmp_path: Path) -> None:
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    assert compiler, "a C++ compiler is needed, as for building the runner"
    program = tmp_path / "program"
    files = [str(SOURCES / "tests" / test), *(str(SOURCES / name) for name in TESTS[test])]
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{SOURCES}"]
    subprocess.run([compiler, *flags, *files, "-o", str(program)], check=True)
    run = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
