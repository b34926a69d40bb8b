"""From Modelfile text to a typed Modelfile (contract 5.2)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from ollama_spec.errors import ModelfileError
from ollama_spec.modelfile.syntax import Instruction, fail, scan

INT = frozenset(
    [
        "num_ctx",
        "num_batch",
        "num_gpu",
        "main_gpu",
        "num_thread",
        "draft_num_predict",
        "num_keep",
        "seed",
        "num_predict",
        "top_k",
        "repeat_last_n",
    ]
)
FLOAT = frozenset(
    [
        "top_p",
        "min_p",
        "typical_p",
        "temperature",
        "repeat_penalty",
        "presence_penalty",
        "frequency_penalty",
    ]
)
BOOL = frozenset({"use_mmap"})
LISTS = frozenset({"stop"})
DEPRECATED = frozenset(
    [
        "penalize_newline",
        "low_vram",
        "f16_kv",
        "logits_all",
        "vocab_only",
        "use_mlock",
        "mirostat",
        "mirostat_tau",
        "mirostat_eta",
    ]
)
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
_SEMVER = re.compile(r"v?(\d+)(\.\d+){0,2}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")


@dataclass(frozen=True)
class Modelfile:
    """What the text says, nothing resolved: paths and model names are as written."""

    froms: tuple[Instruction, ...]
    drafts: tuple[Instruction, ...] = ()
    adapter: Instruction | None = None
    template: str | None = None
    system: str | None = None
    renderer: str | None = None
    parser: str | None = None
    requires: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    licenses: tuple[str, ...] = ()
    messages: tuple[tuple[str, str], ...] = ()  # (role, text)
    warnings: tuple[str, ...] = ()


def parse(text: str, file: str = "Modelfile") -> Modelfile:
    """Read a Modelfile; raises ModelfileError naming file, line and text."""
    found = scan(text, file)
    froms = tuple(item for item in found if item.kind == "from")
    if not froms:
        raise ModelfileError(f"{file}: no FROM line", hint="say which model to start from: FROM …")
    for item in found:
        if item.kind in ("from", "draft", "adapter") and not item.value:
            raise fail(file, item.line, item.kind.upper(), f"{item.kind.upper()} needs a value")
    last = {item.kind: item for item in found}
    parameters, warnings = _parameters(found, file)
    return Modelfile(
        froms=froms,
        drafts=tuple(item for item in found if item.kind == "draft"),
        adapter=last.get("adapter"),
        template=_text(last, "template"),
        system=_text(last, "system"),
        renderer=_text(last, "renderer"),
        parser=_text(last, "parser"),
        requires=_requires(last.get("requires"), file),
        parameters=parameters,
        licenses=tuple(item.value for item in found if item.kind == "license"),
        messages=tuple((item.key, item.value) for item in found if item.kind == "message"),
        warnings=tuple(warnings),
    )


def _text(last: dict[str, Instruction], kind: str) -> str | None:
    return last[kind].value if kind in last else None


def _requires(item: Instruction | None, file: str) -> str | None:
    if item is None:
        return None
    if not _SEMVER.fullmatch(item.value):
        raise fail(
            file,
            item.line,
            f"REQUIRES {item.value}",
            "requires must be a valid semver (e.g. 0.14.0)",
        )
    return item.value.removeprefix("v")


def _parameters(found: list[Instruction], file: str) -> tuple[dict[str, Any], list[str]]:
    values: dict[str, Any] = {}
    warnings: list[str] = []
    for item in found:
        if item.kind != "parameter":
            continue
        name = item.key.lower()
        if name in DEPRECATED:
            warnings.append(f"{file}:{item.line}: parameter {name} is deprecated")
        elif name in LISTS:
            values.setdefault(name, []).append(item.value)
        else:
            values[name] = _typed(name, item, file)
    return values, warnings


def _typed(name: str, item: Instruction, file: str) -> Any:
    where = f"PARAMETER {item.key} {item.value}"
    if name in INT:
        try:
            return int(item.value)
        except ValueError:
            raise fail(file, item.line, where, f"invalid int value [{item.value}]") from None
    if name in FLOAT:
        try:
            return float(item.value)
        except ValueError:
            raise fail(file, item.line, where, f"invalid float value [{item.value}]") from None
    if name in BOOL:
        if item.value in _TRUE | _FALSE:
            return item.value in _TRUE
        raise fail(file, item.line, where, f"invalid bool value [{item.value}]")
    raise fail(file, item.line, where, f"unknown parameter '{name}'")
