"""The tests of this folder at an older and a newer tag, and with each guard taken out.

They compile llama.cpp and run for an hour or so, so they are asked for by name:
`pytest -m slow tests/runner/accept`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures.real import TAG, caches

from ollama_spec.build import native

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * 3600)]

HERE = Path(__file__).parent
RUNNER_SRC = HERE.parents[2] / "runner_src"
WITHOUT = "OSPEC_TEST_WITHOUT"


def _suite(
    stock: Path, patched: Path, *selected: str, without: str = ""
) -> subprocess.CompletedProcess[str]:
    """Other tests of this folder against these two runners."""
    env = os.environ | {
        "OLLAMA_SPEC_TEST_STOCK_RUNNER": str(stock),
        "OLLAMA_SPEC_TEST_PATCHED_RUNNER": str(patched),
        WITHOUT: without,
    }
    # A compiler may share the machine, so what is usually too long is not too long here.
    command = [sys.executable, "-m", "pytest", "-q", "--timeout=3600"]
    return subprocess.run(
        [*command, *(str(HERE / name) for name in selected)],
        env=env,
        cwd=HERE.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("tag", ["b9840", "b11434"])
def test_the_whole_folder_at_another_tag(tag: str) -> None:
    with caches():
        stock = native.build_native(tag, stock=True, use=False).server
        patched = native.build_native(tag, use=False).server
    done = _suite(stock, patched, "")
    assert done.returncode == 0, done.stdout[-4000:]


# Each guard and the test that must miss it. Those of ospec-refusal.h go by the verdict they return.
SAMPLING = "test_guards.py::test_sampling_the_raw_logits_do_not_show"
GUARDS = {
    "penalties": SAMPLING,
    "dry": SAMPLING,
    "mirostat": SAMPLING,
    "xtc": SAMPLING,
    "adaptive-p": SAMPLING,
    "logprobs": SAMPLING,
    "n-gram": "test_guards.py::test_drafts_copied_from_the_prompt",
    "backend": "test_guards.py::test_backend_sampled_rows",
    "control": "test_guards.py::test_control_and_end_tokens",
    "scope": "test_relaxed.py::test_scope_thinking_relaxes_only_between_the_markers",
    "rule": "test_relaxed.py::test_every_emitted_token_keeps_the_rule",
    "digit": "test_guards.py::test_digits",
    "repetition": "test_guards.py::test_repetition",
    "budget": "test_relaxed.py::test_budget_caps_the_regret",
    "grammar": "test_guards.py::test_grammar",
}
# The rest: what to look for in which file, and what to put there.
ELSEWHERE = {
    "reasoning budget": (
        "test_guards.py::test_reasoning_budget",
        ("ospec-guard.inc", "if (smpl->rbudget) {", "if (smpl->rbudget && {strong}) {{"),
    ),
    "grammar rules": (
        "test_guards.py::test_lazy_grammar_after_its_trigger",
        (
            "ospec-guard.inc",
            "if (grammar_should_apply(smpl)) {",
            "if (grammar_should_apply(smpl) && {strong}) {{",
        ),
    ),
    "banned tokens": (
        "test_guards.py::test_banned_tokens_stay_banned",
        ("ospec-guard.inc", '"logit-bias") == 0', '"logit-bias") == 0 && {strong}'),
    ),
    "window": (
        "test_relaxed.py::test_window_needs_the_next_tokens_to_match",
        (
            "ospec-refusal.h",
            "if (at + window >= draft.size()) {",
            "if (!{strong}) {{ return true; }} if (at + window >= draft.size()) {{",
        ),
    ),
    "replay": (
        "test_drafting.py::test_a_replay_takes_its_whole_draft",
        ("ospec-verify.h", "if (state.forced) {", "if (state.forced && {strong}) {{"),
    ),
}
REFUSE = re.compile(r"\{ return (\"[^\"]+\"|why); \}")
STRONG = f"""inline bool strong(const std::string & guard) {{
    const char * without = std::getenv("{WITHOUT}");
    return without == nullptr || guard != without;
}}
"""


def test_no_guard_is_forgotten_here() -> None:
    text = (RUNNER_SRC / "ospec-refusal.h").read_text()
    assert set(re.findall(r"return \"([a-z-]+)\"; \}", text)) == set(GUARDS)


@pytest.fixture(scope="module")
def weakened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A runner without the guard that the environment variable WITHOUT names."""
    ours = tmp_path_factory.mktemp("weakened") / "runner_src"
    shutil.copytree(RUNNER_SRC, ours)
    file = ours / "ospec-guard.h"
    head, found, tail = file.read_text().partition("namespace ospec {\n")
    assert found
    file.write_text(f"#include <cstdlib>\n#include <string>\n{head}{found}{STRONG}{tail}")
    file = ours / "ospec-refusal.h"
    file.write_text(REFUSE.sub(r"{ if (strong(\1)) { return \1; } }", file.read_text()))
    for guard, (_, (name, old, new)) in ELSEWHERE.items():
        text = (ours / name).read_text()
        assert text.count(old) == 1, (name, old)
        (ours / name).write_text(text.replace(old, new.format(strong=f'strong("{guard}")')))
    with caches(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "resource_dir", lambda _: ours)
        yield native.build_native(TAG, use=False).server


def _tests() -> dict[str, str]:
    return GUARDS | {guard: test for guard, (test, _) in ELSEWHERE.items()}


def test_with_all_guards_nothing_is_missed(weakened: Path, stock_runner: Path) -> None:
    done = _suite(stock_runner, weakened, *sorted(set(_tests().values())))
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.parametrize("guard", _tests())
def test_a_guard_is_missed(weakened: Path, stock_runner: Path, guard: str) -> None:
    done = _suite(stock_runner, weakened, _tests()[guard], without=guard)
    assert done.returncode == 1, f"nothing notices that {guard} is gone:\n{done.stdout[-2000:]}"
    assert re.search(r"^FAILED ", done.stdout, re.MULTILINE), done.stdout[-2000:]
