"""`build check` on real llama.cpp trees: oldest and newest supported tag, and a broken anchor."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fixtures.real import caches

from ollama_spec import paths
from ollama_spec.build import check
from ollama_spec.build import overlay as overlays
from ollama_spec.resources import resource_dir


@pytest.mark.timeout(600)
@pytest.mark.parametrize("tag", ["b9409", "b11434"])
def test_the_overlay_applies_and_compiles_at_both_ends(tag: str) -> None:
    with caches():
        found = check.check_tag(tag)
    assert found.error is None
    assert (found.checked_as, found.applies, found.compiles) == (tag, True, True)
    assert found.files >= 5


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_overlay_fits_every_pin_of_ollama() -> None:
    """16 source trees and about five CPU-minutes: a job of its own, `pytest -m slow`."""
    with caches():
        found = [check.check_tag(tag) for tag in check.resolve_tags("all")]
    assert [(item.tag, item.error) for item in found if item.error] == []
    assert all(item.applies and item.compiles for item in found)
    # b9452 has no source package; the nearest that has one is checked instead, and it says so.
    assert next(item.checked_as for item in found if item.tag == "b9452") == "b9453"


@pytest.mark.timeout(600)
def test_a_broken_anchor_is_named_with_the_nearest_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = tmp_path / "runner_src"
    shutil.copytree(resource_dir("runner_src"), ours)
    hooks = ours / "hooks.yaml"
    hook = next(h for h in overlays.load(ours).hooks if h.id == "arg.add")
    hooks.write_text(hooks.read_text().replace("'    return ctx_arg;'", "'return ctx_arguments;'"))
    monkeypatch.setattr(check, "resource_dir", lambda name: ours)
    with caches():
        found = check.check_tag("b9409", compile_=False)
    assert found.applies is False and found.error is not None
    for word in ("hook arg.add", hook.file, "b9409", "0 lines", "return ctx_arg;"):
        assert word in found.error


def test_the_command_ends_with_code_7_when_a_tag_does_not_fit(tmp_path: Path) -> None:
    """A tree of llama.cpp's shape without any of the lines the hooks look for."""
    for file in {hook.file for hook in overlays.load(resource_dir("runner_src")).hooks}:
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n")
    killed = paths.cache_dir() / "check/.scratch-999999999"  # no process has this number
    killed.mkdir(parents=True)
    argv = [sys.executable, "-m", "ollama_spec", "build", "check", "--tags", "b9000", "--json"]
    done = subprocess.run(
        [*argv, "--source", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 7 and "the overlay does not fit b9000" in done.stderr
    (found,) = json.loads(done.stdout)
    assert found["applies"] is False and "hook " in found["error"]
    assert scratch() == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_check_leaves_nothing(number: signal.Signals) -> None:
    with caches():
        tree = check.pristine("b9409", None)
    argv = [sys.executable, "-m", "ollama_spec", "build", "check", "--tags", "b9409"]
    child = subprocess.Popen([*argv, "--source", str(tree)], stderr=subprocess.PIPE, text=True)
    limit = time.monotonic() + 60
    while not scratch() and time.monotonic() < limit:
        time.sleep(0.05)
    child.send_signal(number)
    _, err = child.communicate(timeout=300)
    assert child.returncode == 7 and "error: the check was interrupted" in err
    assert scratch() == []


def scratch() -> list[Path]:
    return list((paths.cache_dir() / "check").glob(".scratch-*"))
