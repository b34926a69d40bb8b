"""One process at a time for a thing on disk: the second waits and says for whom."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ollama_spec import output, paths


@contextmanager
def exclusive(path: Path, what: str, doing: str) -> Iterator[None]:
    """Hold an flock on `path` while `what` is being `doing` ("built"); the kernel frees it."""
    paths.ensure(path.parent)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            output.note(f"{what} is being {doing} by process {holder}: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield
