"""Running build tools: what of their output reaches the user, and that none outlives us."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ollama_spec.build import compile as compiling
from ollama_spec.build import toolchain
from ollama_spec.errors import BuildError, CompileFailed
from ollama_spec.exclusive import exclusive

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


@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        ("echo 'a.c:1:1: error: bad'; exit 1", CompileFailed, "exit code 1): a.c:1:1: error: bad"),
        ("cat /proc/self/status > /dev/full", BuildError, "disk is full"),
        (
            "echo 'c++: fatal error: Killed signal terminated program cc1plus'; exit 1",
            CompileFailed,
            "killed, most likely for lack of memory",
        ),
    ],
)
def test_failures_are_told_apart(script: str, error: type[BuildError], words: str) -> None:
    with pytest.raises(error) as caught:
        compiling.run(["sh", "-c", script], env=dict(os.environ, LC_ALL="C"))
    assert words in caught.value.message and caught.value.hint


def gone(pid: str) -> bool:
    """Whether the process ends soon; on a busy machine the kernel takes a moment to bury it."""
    limit = time.monotonic() + 10
    while time.monotonic() < limit:
        try:
            if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_an_interrupt_ends_the_whole_group(tmp_path: Path) -> None:
    """A SIGTERM to a real process of ours: the grandchild must be gone, the error one of ours."""
    code = (
        "import os, sys\n"
        "from ollama_spec.build import compile as c\n"
        "from ollama_spec.errors import BuildError\n"
        "try:\n"
        "    with c.interruptible():\n"
        "        c.run(['sh', '-c', 'sleep 60 & echo $! > pid; wait'], env=dict(os.environ))\n"
        "except BuildError as error:\n"
        "    sys.exit(error.exit_code)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    pid_file = tmp_path / "pid"
    limit = time.monotonic() + 60
    while not (pid_file.exists() and pid_file.read_text().strip()) and time.monotonic() < limit:
        time.sleep(0.02)
    child.terminate()
    assert child.wait(timeout=60) == 7
    assert gone(pid_file.read_text().strip())


def test_a_second_build_waits_and_names_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "b1.lock"
    code = (
        "import sys, time; from pathlib import Path; from ollama_spec.exclusive import exclusive\n"
        "with exclusive(Path(sys.argv[1]), 'b1', 'built'): "
        "print('held', flush=True); time.sleep(0.7)"
    )
    argv = [sys.executable, "-c", code, str(lock)]
    first = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None and first.stdout.readline() == "held\n"
    with exclusive(lock, "llama.cpp b1", "built"):
        assert lock.read_text() == str(os.getpid())
    note = f"llama.cpp b1 is being built by process {first.pid}: waiting for it\n"
    assert capsys.readouterr().err == note
    first.communicate(timeout=10)


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


def test_a_missing_compiler_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(BuildError, match="no C compiler found") as caught:
        toolchain.find()
    assert "apt install" in str(caught.value.hint)


def test_zero_jobs_are_refused() -> None:
    with pytest.raises(BuildError, match="--jobs 0"):
        toolchain.jobs(0)
