"""Contract tests: the whole sidecar on real sockets above a scripted llama-server process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fakes.sidecar import FakeRunner, Sidecar, add_model, sidecar


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeRunner:
    folder = tmp_path / "fake"
    folder.mkdir()
    monkeypatch.setenv("FAKE_DIR", str(folder))
    return FakeRunner(folder)


@pytest.fixture
async def front(fake: FakeRunner, tmp_path: Path) -> AsyncIterator[Sidecar]:
    """A sidecar that serves one pair, called `pair`."""
    add_model(tmp_path)
    async with sidecar(fake) as running:
        yield running
