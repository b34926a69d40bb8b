"""Running build tools; their faults are in tests/e2e/build/test_build_faults.py."""

from __future__ import annotations

import os
import threading

import pytest

from ollama_spec.build import compile as compiling
from ollama_spec.build import toolchain
from ollama_spec.errors import BuildError

GCC = """\
FAILED: common/arg.o
/usr/bin/c++ -Werror=x -o common/arg.o -c arg.cpp
In file included from arg.cpp:1:
arg.h:3:5: error: 'strng' does not name a type
arg.cpp:9:1: error: expected ';'
ninja: build stopped: subcommand failed.
"""


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (GCC, "arg.h:3:5: error: 'strng' does not name a type"),
        (
            "CMake Error at CMakeLists.txt:2 (add):\n  no such target\n\nmore",
            "CMake Error at CMakeLists.txt:2 (add): no such target more",
        ),
        ("x.o: in f:\nx.c:1: undefined reference to `g'\n", "x.c:1: undefined reference to `g'"),
        ("something odd\n", "something odd"),
        ("", "it ended without a word"),
    ],
)
def test_the_first_real_error_is_found(text: str, first: str) -> None:
    assert compiling.first_error(text) == first


@pytest.mark.parametrize(
    ("done", "total", "seconds", "text"),
    [
        (0, 300, 1, "0 of 300 (0 %)"),
        (100, 300, 100, "100 of 300 (33 %), about 3 min left"),
        (299, 300, 299, "299 of 300 (99 %), about 1 s left"),
    ],
)
def test_progress_is_described_with_an_estimate(
    done: int, total: int, seconds: float, text: str
) -> None:
    assert compiling.describe(done, total, seconds) == text


def test_interrupts_work_outside_the_main_thread_too() -> None:
    seen: list[str] = []

    def work() -> None:
        with compiling.interruptible():
            seen.append(compiling.run(["sh", "-c", "echo ok"], env=dict(os.environ)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == ["ok\n"]


@pytest.mark.parametrize(
    ("cores", "free", "jobs"), [(2, 24.0, 2), (16, 5.0, 4), (8, 0.5, 1), (64, 256.0, 64)]
)
def test_jobs_follow_cores_and_memory(cores: int, free: float, jobs: int) -> None:
    assert toolchain.fitting_jobs(cores, free) == jobs


def test_zero_jobs_are_refused() -> None:
    with pytest.raises(BuildError, match="--jobs 0"):
        toolchain.jobs(0)
