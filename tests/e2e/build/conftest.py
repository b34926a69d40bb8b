"""Builds that take many minutes run only when asked for: `pytest -m slow`, `-m docker`, ..."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("-m"):
        return
    here = Path(__file__).parent
    slow = [item for item in items if item.get_closest_marker("slow")]
    left_out = [item for item in slow if here in item.path.parents]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
