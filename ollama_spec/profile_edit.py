"""Change a profile by dotted keys (`spec.accept.mode=relaxed`); values are YAML, checked whole."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from ollama_spec.errors import ConfigError
from ollama_spec.profiles import Profile

_SPECULATOR = "prefill.speculator"


def parse(assignments: Iterable[str]) -> dict[str, Any]:
    """`KEY=VALUE` texts to dotted key → value."""
    changes: dict[str, Any] = {}
    for text in assignments:
        key, separator, value = text.partition("=")
        if not separator:
            raise ConfigError(
                f"{text!r} is no setting", hint="write KEY=VALUE, e.g. spec.accept.mode=relaxed"
            )
        try:
            changes[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ConfigError(f"{key}: {value!r} is not a value of YAML") from error
    return changes


def changed(profile: Profile, changes: Mapping[str, Any]) -> Profile:
    """The profile with these keys set; ConfigError names an unknown key's nearest relative."""
    values = profile.model_dump()
    for key, value in changes.items():
        _set(values, key, _speculator(value) if key == _SPECULATOR else value)
    try:
        return Profile.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{key}: {first['msg']}", hint="nothing was changed") from error


def keys(profile: Profile) -> list[str]:
    """All dotted keys that can be set."""
    return list(_leaves(profile.model_dump()))


def as_yaml(profile: Profile) -> str:
    text: str = yaml.safe_dump(profile.model_dump(mode="json"), sort_keys=False)
    return text.rstrip()


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    known = list(_leaves(values))
    if key not in known:
        near = difflib.get_close_matches(key, known, 1, cutoff=0.5)
        raise ConfigError(
            f"a profile has no {key!r}",
            hint=f"did you mean {near[0]}?" if near else f"it has: {', '.join(known)}",
        )
    *path, last = key.split(".")
    for part in path:
        values = values[part]
    values[last] = value


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterable[str]:
    for name, value in values.items():
        key = f"{prefix}{name}"
        # Curves (prefill.keep) have numbers for keys and are set whole; so is a weight file.
        inner = isinstance(value, dict) and key not in ("prefill.keep", _SPECULATOR)
        yield from _leaves(value, f"{key}.") if inner else [key]


def _speculator(value: Any) -> Any:
    """A path becomes the record of that file."""
    if not isinstance(value, str):
        return value
    path = Path(value).expanduser().resolve()
    if not path.is_file():
        raise ConfigError(f"{_SPECULATOR}: no such file: {path}")
    return {"path": path, "size": path.stat().st_size}
