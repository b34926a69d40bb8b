"""Read `llama-server --version` in every format seen.

"version: 10380 (5a1b2c3d)", "version: 1 (5a1b2c3d)" (Ollama's depth-1 clone: build 1), and from
b10488 on "version: 0.1.2-dev (build 10488, commit 5a1b2c3d)".
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from ollama_spec.profiles import Strict

_OLD = re.compile(r"^version:\s*(\d+)\s*\(([^)]*)\)", re.MULTILINE)
_NEW = re.compile(r"^version:\s*(\S+)\s*\(build\s+(\d+),\s*commit\s+([^)]*)\)", re.MULTILINE)


class LlamaVersion(Strict):
    text: str
    build: int | None = None  # None: not told ("build 1" comes from a depth-1 clone)
    commit: str | None = None

    @property
    def tag(self) -> str | None:
        return f"b{self.build}" if self.build else None


def parse(text: str) -> LlamaVersion | None:
    """None when `text` holds no version line at all."""
    new, old = _NEW.search(text), _OLD.search(text)
    if new:
        line, build, commit = new.group(0), int(new.group(2)), new.group(3)
    elif old:
        line, build, commit = old.group(0), int(old.group(1)), old.group(2)
    else:
        found = re.search(r"^version:.*$", text, re.MULTILINE)
        return LlamaVersion(text=found.group(0)) if found else None
    commit = commit.strip()
    return LlamaVersion(
        text=line,
        build=build if build > 1 else None,
        commit=commit if re.fullmatch(r"[0-9a-f]{6,40}", commit) else None,
    )


def of_binary(server: Path, library: Path | None = None) -> LlamaVersion | None:
    """Run `server --version` (libraries of `library` on its path); None when it does not run."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("LLAMA_ARG_")}
    if library:
        env["LD_LIBRARY_PATH"] = str(library)
    try:
        done = subprocess.run(
            [str(server), "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            env=env,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse(done.stdout + done.stderr)
