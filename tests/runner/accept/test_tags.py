"""The tests of this folder at an older and a newer tag, and with each guard taken out.

They compile llama.cpp and run for an hour or so, so they are asked for by name:
`pytest -m slow tests/runner/accept`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures.real import TAG, caches

from ollama_spec.build import native

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * 3600)]

HERE = Path(__file__).parent
RUNNER_SRC = HERE.parents[2] / "runner_src"
REFUSE = re.compile(r"\{ return (\"[^\"]+\"|why); \}")
WITHOUT = "OSPEC_TEST_WITHOUT"


def _suite(
    stock: Path, patched: Path, *selected: Path, without: str = ""
) -> subprocess.CompletedProcess[str]:
    """Other tests of this folder against these two runners."""
    env = os.environ | {
        "OLLAMA_SPEC_TEST_STOCK_RUNNER": str(stock),
        "OLLAMA_SPEC_TEST_PATCHED_RUNNER": str(patched),
        WITHOUT: without,
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", *map(str, selected)]
    return subprocess.run(
        command, env=env, cwd=HERE.parents[2], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("tag", ["b9840", "b11434"])
def test_the_whole_folder_at_another_tag(tag: str) -> None:
    with caches():
        stock = native.build_native(tag, stock=True, use=False).server
        patched = native.build_native(tag, use=False).server
    done = _suite(stock, patched, HERE)
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.fixture(scope="module")
def weakened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A runner whose guard named by the environment variable WITHOUT never says no."""
    ours = tmp_path_factory.mktemp("weakened") / "runner_src"
    shutil.copytree(RUNNER_SRC, ours)
    file = ours / "ospec-refusal.h"
    text, count = REFUSE.subn(r"{ if (!weakened(\1)) { return \1; } }", file.read_text())
    assert count >= 12
    helper = f"""inline bool weakened(const char * guard) {{
    const char * without = std::getenv("{WITHOUT}");
    return without && std::string(without) == guard;
}}

// One drafted token"""
    file.write_text(text.replace("// One drafted token", helper, 1))
    with caches(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "resource_dir", lambda _: ours)
        yield native.build_native(TAG, use=False).server


def _guards() -> list[str]:
    """Names of all guards, from the source, so that a new one cannot be forgotten here."""
    text = (RUNNER_SRC / "ospec-refusal.h").read_text()
    return sorted(set(re.findall(r"return \"([a-z-]+)\"; \}", text)))


@pytest.mark.parametrize("guard", _guards())
def test_a_guard_is_missed(weakened: Path, stock_runner: Path, guard: str) -> None:
    done = _suite(
        stock_runner, weakened, HERE / "test_guards.py", HERE / "test_relaxed.py", without=guard
    )
    assert done.returncode == 1, f"nothing notices that {guard} is gone"
