"""Lexical form of a Modelfile: instructions with their raw values and line numbers (contract 5.1).

A value runs to the end of its line. One that starts with `"` or `\"""` goes on until a line end at
which the whole text collected so far ends with the same quotes; there are no escapes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ollama_spec.errors import ModelfileError

INSTRUCTIONS = (
    "from",
    "license",
    "template",
    "system",
    "adapter",
    "draft",
    "renderer",
    "parser",
    "parameter",
    "message",
    "requires",
)
ROLES = ("system", "user", "assistant")
_START = re.compile(r"([A-Za-z]+)(.?)")
_NAMED = re.compile(r"[ \t]*([A-Za-z0-9_]+)[ \t]+")


@dataclass(frozen=True)
class Instruction:
    """`key` is the parameter's name or the message's role; empty for the other kinds."""

    kind: str
    key: str
    value: str
    line: int


def decode(data: bytes) -> str:
    """Text of a Modelfile: UTF-8, or UTF-16 where a byte order mark says so."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16")
    return data.decode("utf-8-sig")


def scan(text: str, file: str) -> list[Instruction]:
    """All instructions in order; raises ModelfileError with file, line and text."""
    lines = re.split(r"\r\n|\r|\n", text)
    found: list[Instruction] = []
    at = 0
    while at < len(lines):
        line = lines[at].lstrip(" \t")
        if not line or line.startswith("#"):
            at += 1
            continue
        instruction, at = _instruction(lines, at, line, file)
        found.append(instruction)
    return found


def _instruction(lines: list[str], at: int, line: str, file: str) -> tuple[Instruction, int]:
    number = at + 1
    match = _START.match(line)
    kind = match.group(1).lower() if match else ""
    if kind not in INSTRUCTIONS:
        wanted = ", ".join(f'"{name}"' for name in INSTRUCTIONS[:-1])
        raise fail(
            file, number, lines[at], f'command must be one of {wanted}, or "{INSTRUCTIONS[-1]}"'
        )
    assert match is not None
    if match.group(2) not in (" ", "\t"):
        raise fail(file, number, lines[at], f"{kind.upper()} needs a space and a value")
    rest, key = line[match.end() :], ""
    if kind in ("parameter", "message"):
        named = _NAMED.match(rest)
        if named is None:
            what = "a name and a value" if kind == "parameter" else "a role and a text"
            raise fail(file, number, lines[at], f"{kind.upper()} needs {what}")
        key, rest = named.group(1), rest[named.end() :]
        if kind == "message" and key not in ROLES:
            raise fail(
                file,
                number,
                lines[at],
                'message role must be one of "system", "user", or "assistant"',
            )
    value, end = _value(lines, at, printable(rest).strip(" \t"), file)
    return Instruction(kind, key, value, number), end


def printable(text: str) -> str:
    """Without the characters Ollama's reader drops: control, format and odd space characters."""
    return "".join(char for char in text if char in "\n\t" or char.isprintable())


def _value(lines: list[str], at: int, first: str, file: str) -> tuple[str, int]:
    for quote in ('"""', '"'):
        if not first.startswith(quote):
            continue
        text = first
        for end in range(at, len(lines)):
            if end > at:
                text += "\n" + printable(lines[end])
            closed = text.rstrip(" \t")
            if len(closed) >= 2 * len(quote) and closed.endswith(quote):
                return closed[len(quote) : -len(quote)], end + 1
        raise fail(file, at + 1, lines[at], "unexpected end of file: the quotes never close")
    return first, at + 1


def fail(file: str, line: int, text: str, problem: str) -> ModelfileError:
    shown = text.strip()
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return ModelfileError(f"{file}:{line}: {problem}: {shown!r}", hint="mend that line")
