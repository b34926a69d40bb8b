"""From a record or a Modelfile to text that reads back as the same thing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ollama_spec.errors import ModelfileError
from ollama_spec.modelfile.parser import Modelfile
from ollama_spec.modelfile.syntax import printable
from ollama_spec.store import ModelRecord


def write(modelfile: Modelfile) -> str:
    """Modelfile text; raises ModelfileError for a value the language cannot hold."""
    lines = [f"FROM {quoted(item.value, 'FROM')}" for item in modelfile.froms]
    lines += [f"DRAFT {quoted(item.value, 'DRAFT')}" for item in modelfile.drafts]
    if modelfile.adapter:
        lines.append(f"ADAPTER {quoted(modelfile.adapter.value, 'ADAPTER')}")
    return _rest(
        lines,
        texts={
            "TEMPLATE": modelfile.template,
            "SYSTEM": modelfile.system,
            "RENDERER": modelfile.renderer,
            "PARSER": modelfile.parser,
            "REQUIRES": modelfile.requires,
        },
        parameters=modelfile.parameters,
        licenses=modelfile.licenses,
        messages=modelfile.messages,
    )


def of_record(record: ModelRecord) -> str:
    """The Modelfile of one of our models: absolute paths, as Ollama's `show --modelfile` prints."""
    lines = [f"FROM {_path(record.target.path)}"]
    if record.drafter:
        lines.append(f"DRAFT {_path(record.drafter.path)}")
    if record.projector:
        lines.append(f"FROM {_path(record.projector.path)}")
    return _rest(
        lines,
        texts={
            "TEMPLATE": record.template,
            "SYSTEM": record.system,
            "RENDERER": record.renderer,
            "PARSER": record.parser,
            "REQUIRES": record.requires,
        },
        parameters=record.parameters,
        licenses=tuple(record.license),
        messages=tuple((message.role, message.content) for message in record.messages),
    )


def _path(path: Path) -> str:
    return quoted(str(path), "a path")


def _rest(
    lines: list[str],
    *,
    texts: dict[str, str | None],
    parameters: dict[str, Any],
    licenses: tuple[str, ...],
    messages: tuple[tuple[str, str], ...],
) -> str:
    for kind, text in texts.items():
        if text is not None:
            lines.append(f"{kind} {quoted(text, kind)}")
    for name, value in parameters.items():
        for item in value if isinstance(value, list) else [value]:
            lines.append(f"PARAMETER {name} {quoted(scalar(item), f'PARAMETER {name}')}")
    lines += [f"LICENSE {quoted(text, 'LICENSE')}" for text in licenses]
    lines += [f"MESSAGE {role} {quoted(text, f'MESSAGE {role}')}" for role, text in messages]
    return "\n".join(lines) + "\n"


def scalar(value: Any) -> str:
    """A parameter's value as Go prints it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def quoted(text: str, what: str) -> str:
    """`text` in the lightest form that reads back unchanged."""
    lost = next((char for char in text if char not in printable(char)), None)
    if lost is not None:
        raise ModelfileError(
            f"{what}: the character U+{ord(lost):04X} cannot be written in a Modelfile: "
            "Ollama's reader drops it",
            hint="remove it from the text",
        )
    plain = "\n" not in text and text == text.strip(" \t") and not text.startswith('"')
    if plain and text:
        return text
    # Ollama's own order, so that its `show` and ours look alike.
    for quote in ('"""', '"') if '"' in text else ('"', '"""'):
        if _closes_only_at_end(text, quote):
            return f"{quote}{text}{quote}"
    raise ModelfileError(
        f"{what}: no quoting of a Modelfile can hold this text: {text[:60]!r}",
        hint='a line of it ends with """; reword it',
    )


def _closes_only_at_end(text: str, quote: str) -> bool:
    """Whether `quote`+text+`quote` reads back as `text`: no earlier line end closes it."""
    whole = f"{quote}{text}{quote}"
    if quote == '"' and whole.startswith('"""'):
        return False
    lines = whole.split("\n")
    for end in range(1, len(lines)):
        sofar = "\n".join(lines[:end]).rstrip(" \t")
        if len(sofar) >= 2 * len(quote) and sofar.endswith(quote):
            return False
    return True
