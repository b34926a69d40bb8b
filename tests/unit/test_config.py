"""Settings: order of strength, and errors that name the key and the nearest known one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ollama_spec import config
from ollama_spec.errors import ConfigError


def _write(text: str) -> Path:
    path = config.config_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_flag_beats_environment_beats_file_beats_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config.load().keep_alive == "5m"
    _write("keep_alive: 1m\n")
    assert config.load().keep_alive == "1m"
    monkeypatch.setenv("OLLAMA_SPEC_KEEP_ALIVE", "2m")
    assert config.load().keep_alive == "2m"
    assert config.load(keep_alive="3m").keep_alive == "3m"
    assert config.load(keep_alive=None).keep_alive == "2m"


def test_unknown_key_names_the_nearest() -> None:
    _write("keep_alivee: 1m\n")
    with pytest.raises(ConfigError, match="keep_alivee") as caught:
        config.load()
    assert caught.value.hint == "did you mean 'keep_alive'?"


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [\n"])
def test_a_file_that_is_not_a_mapping_is_refused(text: str) -> None:
    path = _write(text)
    with pytest.raises(ConfigError, match=str(path)):
        config.load()


def test_wrong_type_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_SPEC_NUM_PARALLEL", "many")
    with pytest.raises(ConfigError, match="num_parallel"):
        config.load()


def test_a_named_file_must_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OLLAMA_SPEC_CONFIG", str(tmp_path / "none.yaml"))
    with pytest.raises(ConfigError, match="no such settings file"):
        config.load()


def test_origins_from_the_environment_are_a_comma_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_SPEC_ORIGINS", "https://a,https://b")
    assert config.load().origins == ["https://a", "https://b"]
