"""Run CMake and Ninja: progress with an estimate, the first real error, and no stray compilers."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ollama_spec import output
from ollama_spec.errors import BuildError, CompileFailed

_STEP = re.compile(r"^\[(\d+)/(\d+)\] ?(.*)")
_ERROR = re.compile(r"(^|\s)(fatal )?error:|undefined reference|cannot find -l|CMake Error", re.I)
_PLAIN_SECONDS = 10.0
NO_SPACE = "no space left on device"


class Progress:
    """Counts Ninja's steps: a bar on a terminal, else a line every ten seconds."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._start = self._last = time.monotonic()
        self._bar: tqdm[Any] | None = None

    def step(self, done: int, total: int) -> None:
        if output.is_tty():
            bar: tqdm[Any] = self._bar or tqdm(
                total=total, desc=self._what, unit="step", leave=False
            )
            self._bar = bar
            bar.total = total
            bar.update(done - bar.n)
            return
        now = time.monotonic()
        if now - self._last >= _PLAIN_SECONDS:
            self._last = now
            output.note(f"{self._what}: {describe(done, total, now - self._start)}")

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def advance(progress: Progress | None, line: str) -> bool:
    """Whether `line` is one of Ninja's "[3/25] ..." lines; if so the display follows it."""
    step = _STEP.match(line)
    if step and progress:
        progress.step(int(step.group(1)), int(step.group(2)))
    return step is not None


def describe(done: int, total: int, seconds: float) -> str:
    """E.g. "45 of 325 (14 %), about 5 min left"; the estimate supposes steps of equal cost."""
    text = f"{done} of {total} ({100 * done // max(total, 1)} %)"
    if not done:
        return text
    left = seconds * (total - done) / done
    return f"{text}, about {f'{left / 60:.0f} min' if left >= 90 else f'{left:.0f} s'} left"


def first_error(text: str) -> str:
    """The compiler's or linker's first complaint; the last line when none looks like one."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    for index, line in enumerate(lines):
        if _ERROR.search(line):
            more = lines[index + 1 : index + 3] if line.startswith("CMake Error") else []
            return " ".join([line.strip(), *(item.strip() for item in more)])
    return lines[-1].strip() if lines else "it ended without a word"


def run(argv: list[str], *, env: dict[str, str], progress: Progress | None = None) -> str:
    """Run a build tool to its end and return its output; its whole group dies if we are stopped."""
    child = subprocess.Popen(
        argv,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    kept: list[str] = []
    with _ended(child):
        assert child.stdout is not None
        for line in child.stdout:
            if not advance(progress, line):
                kept.append(line)
        child.wait()
    text = "".join(kept)
    if child.returncode != 0:
        raise _failure(Path(argv[0]).name, child.returncode, text)
    return text


def disk_full(what: str) -> BuildError:
    return BuildError(
        f"the disk is full: {what}",
        hint="a build needs about 300 MB below the cache folder and 40 MB below the data folder; "
        "free some space, or point XDG_CACHE_HOME at another disk",
    )


def _failure(tool: str, code: int, text: str) -> BuildError:
    if NO_SPACE in text.lower():
        return disk_full("the compiler had no space left")
    if "Killed signal" in text or "signal terminated program" in text:
        return CompileFailed(
            "the compiler was killed, most likely for lack of memory",
            hint="build with fewer jobs: `ollama-spec build --jobs 1`",
        )
    return CompileFailed(
        f"{tool} failed (exit code {code}): {first_error(text)}",
        hint="the runner in use before stays in use; -v shows the whole output",
    )


@contextmanager
def _ended(child: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        _kill_group(child)
        raise
    finally:
        if child.stdout is not None:
            child.stdout.close()


def _kill_group(child: subprocess.Popen[str]) -> None:
    for number, seconds in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        try:
            os.killpg(child.pid, number)
            child.wait(timeout=seconds)
            return
        except ProcessLookupError:
            child.wait()
            return
        except subprocess.TimeoutExpired:
            continue


@contextmanager
def interruptible(what: str = "build") -> Iterator[None]:
    """Ctrl-C, TERM and HUP during `what` become one BuildError after the children are gone."""

    def stop(number: int, _frame: object) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGTERM, signal.SIGHUP) if main else ()
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    except KeyboardInterrupt as error:
        raise BuildError(
            f"the {what} was interrupted; the runner in use before stays in use",
            hint="run it again: it goes on where it stopped",
        ) from error
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise disk_full(f"{error.filename or 'a file'} could not be written") from error
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
