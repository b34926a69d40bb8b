"""Settings: flag > `OLLAMA_SPEC_*` > file > default.

The file is `$OLLAMA_SPEC_CONFIG` or `config.yaml` in the config folder. An unknown key is an error
that names the nearest known one.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from ollama_spec import paths
from ollama_spec.errors import ConfigError
from ollama_spec.profiles import Strict


class Config(Strict):
    """All settings, with the values that hold when nobody sets them."""

    host: str = Field(default="127.0.0.1:11435", description="where `serve` listens")
    upstream: str = Field(
        default="http://127.0.0.1:11434", description="the real Ollama; empty: there is none"
    )
    origins: list[str] = Field(default_factory=list, description="allowed besides localhost (CORS)")
    keep_alive: str = Field(default="5m", description="as Ollama's OLLAMA_KEEP_ALIVE")
    max_loaded_models: int = Field(default=1, ge=1)
    max_queue: int = Field(default=512, ge=1)
    num_parallel: int = Field(default=1, ge=1)
    context_length: int = Field(default=0, ge=0, description="0: chosen by memory, as Ollama does")
    load_timeout: float = Field(default=300, gt=0, description="seconds without a sign of life")
    stream_idle_timeout: float = Field(default=0, ge=0, description="seconds; 0: never")
    max_request_bytes: int = Field(default=512 * 1024 * 1024, ge=1024)
    compare_every: int = Field(
        default=0, ge=0, description="compare speed with Ollama every N requests; 0: never"
    )
    attached: str = Field(
        default="", description="address of `attach`: models that Ollama renders itself go there"
    )
    runner: str | None = Field(default=None, description="llama-server to use instead of ours")
    llama_tag: str = Field(default="b10488", description="built when nothing else says")


def config_path() -> Path:
    chosen = os.environ.get("OLLAMA_SPEC_CONFIG")
    return Path(chosen) if chosen else paths.config_dir() / "config.yaml"


def load(**flags: Any) -> Config:
    """Read the settings; `flags` that are not None win over everything."""
    values = _from_file(config_path())
    values |= _from_environment()
    values |= {key: value for key, value in flags.items() if value is not None}
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(
            f"setting {key}: {first['msg']}", hint=f"settings come from {config_path()}"
        ) from error


def _from_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text()
    except FileNotFoundError:
        if os.environ.get("OLLAMA_SPEC_CONFIG"):
            raise ConfigError(f"no such settings file: {path}") from None
        return {}
    try:
        values = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path} must hold `key: value` lines")
    for key in values:
        if key not in Config.model_fields:
            near = difflib.get_close_matches(str(key), list(Config.model_fields), 1)
            raise ConfigError(
                f"{path}: unknown setting {key!r}",
                hint=f"did you mean {near[0]!r}?" if near else None,
            )
    return values


def _from_environment() -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in Config.model_fields:
        text = os.environ.get(f"OLLAMA_SPEC_{name.upper()}")
        if text is not None:
            values[name] = text.split(",") if name == "origins" else text
    return values
