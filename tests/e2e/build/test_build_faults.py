"""Faults of a build, seen through the command line with real CMake, Ninja and compiler.

The source is a small project of llama.cpp's shape, so that each fault takes seconds; the build that
succeeds is the one behind the fixtures `stock_runner` and `patched_runner`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from ollama_spec import paths
from ollama_spec.artefacts import ArtefactStore, Manifest

CMAKE = """\
cmake_minimum_required(VERSION 3.14)
project(llama CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
add_executable(llama-server common/server.cpp)
add_executable(llama-quantize common/quantize.cpp)
"""
# 2^18 instantiations: whatever the compiler, it is busy for seconds.
LONG = """\
template <int N, int M> struct tree {
    static const int v = tree<N - 1, 2 * M>::v + tree<N - 1, 2 * M + 1>::v;
};
template <int M> struct tree<0, M> { static const int v = 1; };
int main() { return tree<18, 0>::v; }
"""
# A disk of its own, gone with the process: no root needed.
SMALL_DISK = """\
mkdir -p "$XDG_CACHE_HOME" && mount -t tmpfs -o size=320m none "$XDG_CACHE_HOME" || exit 99
"$@"; code=$?
du -sm "$XDG_CACHE_HOME"; exit $code
"""
STEP = """\
add_custom_command(OUTPUT step COMMAND %s)
add_custom_target(slow DEPENDS step)
add_dependencies(llama-server slow)
"""


def project(folder: Path, server: str = "int main() { return 0; }", step: str = "") -> Path:
    (folder / "common").mkdir(parents=True)
    (folder / "CMakeLists.txt").write_text(CMAKE + (STEP % step if step else ""))
    (folder / "common/server.cpp").write_text(server)
    (folder / "common/quantize.cpp").write_text("int main() { return 0; }")
    return folder


@pytest.fixture
def good() -> str:
    """The key of a runner already in use."""
    store = ArtefactStore()
    manifest = Manifest(key="b1-good", tag="b1", commit="c", source="s", overlay=None,
                        engine="native", flags=[])  # fmt: skip
    store.use(store.publish(store.staging("b1-good"), manifest))
    return "b1-good"


def build(source: Path, *before: str, **popen: object) -> subprocess.Popen[str]:
    argv = [*before, sys.executable, "-m", "ollama_spec", "build", "--tag", "b5", "--stock"]
    return subprocess.Popen(
        [*argv, "--source", str(source), "--jobs", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **popen,  # type: ignore[call-overload]
    )


def check_clean(good: str) -> None:
    """The good runner is in use and whole, and nothing half-made lies about."""
    store = ArtefactStore()
    current = store.current()
    assert current is not None and current.manifest.key == good
    assert sorted(path.name for path in store.root.iterdir()) == [good, "current"]
    partial = [p for p in paths.cache_dir().rglob("*") if ".partial" in p.name]
    assert partial == []


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


def test_the_first_compiler_error_is_shown_and_the_good_runner_stays(
    tmp_path: Path, good: str
) -> None:
    source = project(tmp_path / "src", server="int main() { return strng; }\nint x = y;\n")
    child = build(source)
    out, err = child.communicate(timeout=100)
    assert (child.returncode, out) == (7, "")
    errors = [line for line in err.splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and "'strng' was not declared" in errors[0]
    assert "hint:" in err and "Traceback" not in err
    check_clean(good)


def test_a_full_disk_is_called_that_and_gives_the_space_back(tmp_path: Path, good: str) -> None:
    child = build(project(tmp_path / "src", step="cat /proc/self/status > /dev/full"))
    _, err = child.communicate(timeout=100)
    assert child.returncode == 7 and "error: the disk is full" in err
    assert not (paths.cache_dir() / "build/b5/native").exists()
    check_clean(good)


def test_a_disk_that_fills_up_during_the_build(tmp_path: Path, good: str) -> None:
    """The compiler's file is the one that does not fit; the build folder then makes room."""
    within = ["unshare", "--user", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*within, "true"]).returncode:
        pytest.skip("no user namespaces here (`unshare --user --mount`)")
    fill = "dd if=/dev/zero of=fill bs=1M status=none || true"
    source = project(tmp_path / "src", step=fill)
    with (source / "CMakeLists.txt").open("a") as file:
        file.write("add_dependencies(llama-quantize slow)\n")
    child = build(source, *within, "sh", "-c", SMALL_DISK, "sh")
    out, err = child.communicate(timeout=100)
    assert child.returncode == 7, err
    assert len([line for line in err.splitlines() if line.startswith("error:")]) == 1
    assert "error: the disk is full" in err
    assert int(out.split()[0]) < 10  # MB, of 320
    check_clean(good)


def test_a_killed_compiler_is_called_that(tmp_path: Path, good: str) -> None:
    env = {**os.environ, "CCACHE_DISABLE": "1"}  # ccache would start a second compiler
    child = build(project(tmp_path / "src", server=LONG), env=env)
    limit = time.monotonic() + 60
    while not (compilers := compiling(child.pid)) and time.monotonic() < limit:
        time.sleep(0.05)
    compilers[0].kill()
    _, err = child.communicate(timeout=100)
    assert child.returncode == 7
    assert "error: the compiler was killed, most likely for lack of memory" in err
    check_clean(good)


def compiling(pid: int) -> list[psutil.Process]:
    """What compiles the server: GCC's inner program, or Clang's."""
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        inner = "cc1plus" in " ".join(words[:1]) or "-cc1" in words[1:2]
        if inner and any(word.endswith("common/server.cpp") for word in words):
            found.append(process)
    return found


def test_a_runner_that_fails_its_self_test_is_not_published(tmp_path: Path, good: str) -> None:
    child = build(project(tmp_path / "src"))
    _, err = child.communicate(timeout=100)
    assert child.returncode == 7 and "prints no version" in err
    check_clean(good)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_compilers_and_leaves_no_debris(
    tmp_path: Path, good: str, number: signal.Signals
) -> None:
    pid_file = tmp_path / "pid"
    child = build(project(tmp_path / "src", step=f"echo $$$$ > {pid_file} && exec sleep 60"))
    limit = time.monotonic() + 60
    while not (pid_file.exists() and pid_file.read_text().strip()) and time.monotonic() < limit:
        time.sleep(0.05)
    child.send_signal(number)
    _, err = child.communicate(timeout=100)
    assert child.returncode == 7
    assert err.count("error: the build was interrupted") == 1 and "Traceback" not in err
    assert gone(pid_file.read_text().strip())
    check_clean(good)


def test_no_compiler_is_one_clear_error(tmp_path: Path, good: str) -> None:
    env = {name: value for name, value in os.environ.items() if name not in ("CC", "CXX")}
    child = build(project(tmp_path / "src"), env={**env, "PATH": str(tmp_path)})
    _, err = child.communicate(timeout=100)
    assert child.returncode == 7 and "error: no C compiler found" in err
    check_clean(good)


def test_two_builds_at_once_wait_for_each_other(tmp_path: Path, good: str) -> None:
    source = project(tmp_path / "src", step="sleep 8")
    first = build(source)
    lock = paths.cache_dir() / "build/b5.lock"
    while not (lock.exists() and lock.read_text()):
        time.sleep(0.02)
    second = build(source)
    _, err = second.communicate(timeout=100)
    first.communicate(timeout=100)
    assert f"llama.cpp b5 is being built by process {first.pid}: waiting for it" in err
    check_clean(good)


def test_choosing_removing_and_rolling_back(good: str) -> None:
    def cli(*argv: str) -> subprocess.CompletedProcess[str]:
        argv = (sys.executable, "-m", "ollama_spec", "build", *argv)
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    store = ArtefactStore()
    manifest = store.get(good).manifest.model_copy(update={"key": "b2-new"})
    store.publish(store.staging("b2-new"), manifest)
    assert cli("rollback").returncode == 4  # nothing was in use before
    assert cli("use", "b2").returncode == 0
    assert "b2-new" in cli("list").stdout and '"current"' in cli("list", "--json").stdout
    assert cli("remove", "b2-new").returncode == 7  # in use
    assert cli("rollback").returncode == 0
    current = store.current()
    assert current is not None and current.manifest.key == good
    assert cli("remove", "b2-new").returncode == 0
    assert cli("use", "b2").returncode == 4
