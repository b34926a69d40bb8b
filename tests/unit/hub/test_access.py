"""Why the hub said no, and the next step (case 28); the token's journey; offline mode."""

from __future__ import annotations

import pytest
from fakes import hub_files
from fakes.hub import FakeHub

from ollama_spec import cli
from ollama_spec.hub import client
from ollama_spec.store import ModelStore

REPO = "me/Secret-GGUF"
PULL = ["pull", f"hf.co/{REPO}:Q4_K_M", "--name", "one"]
TOKEN = "hf_abcdefghijklmnop"


@pytest.fixture
def repo(hub: FakeHub) -> FakeHub:
    hub.put(REPO, "M-Q4_K_M.gguf", hub_files.model())
    return hub


@pytest.mark.parametrize(
    ("access", "token", "code", "words", "next_step"),
    [
        ("401-gated", None, 5, "is gated: the hub must know who you are", "hf auth login"),
        ("403-gated", TOKEN, 5, "has not accepted its terms", f"/{REPO}, then run this again"),
        ("401-token", TOKEN, 5, "rejected your token", "make a new one"),
        ("403", TOKEN, 5, "lacks the scope", "read access"),
        ("500", None, 5, "answered 500", "HF_ENDPOINT"),
    ],
)
def test_case_28_each_refusal_has_its_message(
    repo: FakeHub,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    access: str,
    token: str | None,
    code: int,
    words: str,
    next_step: str,
) -> None:
    repo.faults.access = {REPO: access}
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    assert cli.run(PULL) == code
    err = capsys.readouterr().err
    assert words in err
    assert next_step in err
    assert TOKEN not in err
    assert ModelStore().find("one") is None


@pytest.mark.parametrize("token", [None, TOKEN])
def test_case_28_a_missing_repository_may_be_private(
    repo: FakeHub,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    token: str | None,
) -> None:
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    assert cli.run(["pull", "hf.co/me/Nowhere-GGUF"]) == 4
    err = capsys.readouterr().err
    assert "no such repository, or a private one" in err
    assert ("hf auth login" in err) == (token is None)


def test_a_missing_file_or_revision_is_not_a_missing_repository(
    repo: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["pull", f"hf.co/{REPO}:Q8_0"]) == 4
    assert "it has Q4_K_M" in capsys.readouterr().err
    assert cli.run(["pull", f"hf.co/{REPO}@deadbeef"]) == 4
    assert "no such revision" in capsys.readouterr().err
    assert cli.run(["pull", f"hf.co/{REPO}/other.gguf"]) == 4
    assert "no file other.gguf" in capsys.readouterr().err


def test_case_28_the_token_stays_with_the_hub_and_loses_its_newline(
    repo: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", f"{TOKEN}\n")
    assert cli.run(PULL) == 0
    at_hub = {item.authorization for item in repo.requests if item.origin == "hub"}
    at_storage = {item.authorization for item in repo.requests if item.origin == "cdn"}
    assert at_hub == {f"Bearer {TOKEN}"}
    assert at_storage == {None}


def test_an_empty_token_is_no_token(repo: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "")
    assert cli.run(PULL) == 0
    assert {item.authorization for item in repo.requests} == {None}


def test_case_28_a_mirror_is_named_in_its_faults(
    repo: FakeHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repo.faults.redirect_all_to = "http://127.0.0.1:9"
    assert cli.run(PULL) == 5
    assert f"HF_ENDPOINT={repo.url}" in capsys.readouterr().err
    repo.faults.redirect_all_to = ""
    repo.faults.answer_html = True
    assert cli.run(PULL) == 5
    assert f"HF_ENDPOINT={repo.url} did not answer like a model hub" in capsys.readouterr().err
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert cli.run(PULL) == 5
    assert "HF_ENDPOINT=http://127.0.0.1:9" in capsys.readouterr().err


def test_offline_mode_asks_nobody(
    repo: FakeHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert cli.run(PULL) == 5
    assert "offline mode is on" in capsys.readouterr().err
    assert repo.requests == []


def test_without_an_endpoint_the_public_hub_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    assert client.Hub().endpoint == "https://huggingface.co"
