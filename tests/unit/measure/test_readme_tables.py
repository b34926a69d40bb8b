"""README's measured tables are those of bench/results."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tables", ROOT / "bench" / "readme_tables.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_readme_is_in_step_with_the_results(tables: ModuleType) -> None:
    text = (ROOT / "README.md").read_text()
    assert tables.filled(text) == text, "run `python bench/readme_tables.py`"


def test_a_changed_figure_is_noticed(tables: ModuleType) -> None:
    text = "a\n<!-- table: tune -->\nold\n<!-- end -->\nb\n"
    made = tables.filled(text)
    assert made.startswith("a\n<!-- table: tune -->\n| pair |") and made.endswith(
        "<!-- end -->\nb\n"
    )
    assert tables.filled(made) == made != text
