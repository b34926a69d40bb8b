"""`ollama-spec demo`, as a user runs it; the runner and the model come from the test cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fixtures.real import caches

pytestmark = [pytest.mark.real_runner, pytest.mark.timeout(1800)]


def _demo(*flags: str) -> subprocess.CompletedProcess[str]:
    with caches():
        return subprocess.run(
            [sys.executable, "-m", "ollama_spec", "demo", *flags],
            capture_output=True,
            text=True,
            env=dict(os.environ),
            timeout=1700,
            check=False,
        )


def test_answer_and_receipt_as_json(patched_runner: Path) -> None:
    done = _demo("--json", "--relaxed")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert "Paris" in shown["answer"]
    strict, relaxed = shown["runs"]
    for run in (strict, relaxed):
        assert run["spec"]["drafted"] > run["spec"]["accepted"] > 0
    assert strict["spec"]["lossless"] is True
    assert strict["spec"]["relaxed"] == 0
    assert relaxed["spec"]["lossless"] is False


def test_text_output_names_answer_and_receipt(patched_runner: Path) -> None:
    done = _demo()
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout
    assert "receipt: {" in done.stdout
