"""Find `runner_src/` and `templates/`: inside an installed wheel, else in the checkout."""

from __future__ import annotations

from pathlib import Path

from ollama_spec.errors import OllamaSpecError

_PACKAGE = Path(__file__).parent


def resource_dir(name: str) -> Path:
    """Folder `name` ("runner_src" or "templates"); raises if neither place has it."""
    for candidate in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise OllamaSpecError(
        f"this installation lacks its folder {name}",
        hint="reinstall ollama-spec; the package was built incompletely",
    )
