"""Every test runs in a home of its own; real parts come only through the fixtures of `real.py`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures.real import patched_runner, smollm2, smollm2_drafter, stock_runner

__all__ = ["patched_runner", "smollm2", "smollm2_drafter", "stock_runner"]


# A shell that starts us in the background makes Ctrl-C ignored, and children inherit that; tests
# that interrupt a program would then wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def isolated_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            ours = name.startswith(("OLLAMA_", "LLAMA_ARG_", "SP_"))
            kept = name.startswith("OLLAMA_SPEC_TEST_")
            if (ours and not kept) or name.lower().endswith("_proxy"):
                patch.delenv(name)
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT"):
            patch.delenv(name, raising=False)
        patch.setenv("HOME", str(home))
        for kind in ("CONFIG", "CACHE", "DATA", "STATE"):
            patch.setenv(f"XDG_{kind}_HOME", str(home / kind.lower()))
        patch.setenv("XDG_RUNTIME_DIR", str(home / "run"))
        patch.setenv("HF_HOME", str(home / "hf"))
        yield home
