"""One build at a time per folder: the second waits and says for whom."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ollama_spec import output, paths


@contextmanager
def exclusive(path: Path, what: str) -> Iterator[None]:
    """Hold an flock on `path`; the kernel frees it however the holder ends."""
    paths.ensure(path.parent)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            output.note(f"{what} is being built by process {holder}: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield
