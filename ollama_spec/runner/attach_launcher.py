"""Stands as `llama-server` in the private tree: our runner, with the flags of the model at hand.

Ollama starts it as its own; whatever it asks (also `--list-devices`) goes to the runner unchanged,
except that a model with a profile of ours gets that profile's flags at the end, where they win.
Only the standard library, as it runs outside our environment.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def command(argv: list[str], settings: dict[str, object]) -> list[str]:
    """The runner's command line for Ollama's."""
    models = settings["models"]
    assert isinstance(models, dict)
    model = argv[argv.index("--model") + 1] if "--model" in argv[:-1] else ""
    return [str(settings["runner"]), *argv, *models.get(model, [])]


def main() -> None:
    here = Path(__file__).parent
    settings = json.loads((here.parent.parent / "launcher.json").read_text())
    whole = command(sys.argv[1:], settings)
    os.execv(whole[0], whole)


if __name__ == "__main__":
    main()
