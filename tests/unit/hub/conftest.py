from __future__ import annotations

from collections.abc import Iterator

import pytest
from fakes.hub import FakeHub
from huggingface_hub.utils import close_session

from ollama_spec.hub import download


@pytest.fixture
def hub(isolated_home: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A running hub that HF_ENDPOINT points at; no Ollama is there."""
    server = FakeHub()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("OLLAMA_SPEC_UPSTREAM", "http://127.0.0.1:9")
    monkeypatch.setattr(download, "RETRY_SECONDS", 0.01)
    yield server
    close_session()
    server.close()
