"""Apply `runner_src/hooks.yaml` to a llama.cpp source tree: one-line call sites, nothing more.

Anchors are looked up in the pristine text only, so hooks never see each other's lines and applying
twice gives the same text. Every new text is made before the first file is written: either all hooks
apply or none does.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from ollama_spec.errors import OverlayError
from ollama_spec.profiles import Strict

FOLDER = "ollama-spec"  # our sources' place inside the tree, so that ccache sees relative paths
_CODE = (".c", ".cc", ".cpp", ".h", ".hpp", ".inc")

ReadText = Callable[[str], str | None]


class OnlyIf(Strict):
    """The hook counts only in trees whose `file` exists and, if given, holds `contains`."""

    file: str
    contains: str | None = None
    absent: bool = Field(default=False, description="turn the condition round")


class Hook(Strict):
    id: str
    file: str
    anchor: str | None = Field(default=None, description="substring of exactly one line")
    action: Literal["before", "after", "replace", "append"]
    line: str
    tags: str | None = Field(default=None, description='e.g. ">=b10435" or ">=b9840,<b10435"')
    only_if: OnlyIf | None = None

    @model_validator(mode="after")
    def _anchored(self) -> Hook:
        if (self.anchor is None) != (self.action == "append"):
            raise ValueError(f"hook {self.id}: an anchor is for before, after and replace")
        return self


class Source(Strict):
    file: str
    target: str = Field(description="CMake target the file is compiled into")
    tags: str | None = None


class Tool(Strict):
    name: str
    sources: list[str]


class Overlay(Strict):
    hooks: list[Hook]
    sources: list[Source] = Field(default_factory=list)
    tools: list[Tool] = Field(default_factory=list)


def load(folder: Path) -> Overlay:
    """Read `folder`/hooks.yaml."""
    path = folder / "hooks.yaml"
    try:
        return Overlay.model_validate(yaml.safe_load(path.read_text()))
    except OSError as error:
        raise OverlayError(f"{path}: {error.strerror}", hint="reinstall ollama-spec") from error
    except (ValidationError, yaml.YAMLError) as error:
        raise OverlayError(f"{path} is not a valid list of hooks: {error}") from error


def code_files(folder: Path) -> list[Path]:
    """Our own source files, sorted: what is copied into the tree."""
    return sorted(path for path in folder.iterdir() if path.suffix in _CODE)


def digest(folder: Path) -> str:
    """12 hex digits that change whenever the overlay's effect may change."""
    if not (folder / "hooks.yaml").is_file():
        raise OverlayError(f"{folder} holds no hooks.yaml", hint="reinstall ollama-spec")
    total = hashlib.sha256()
    for path in [folder / "hooks.yaml", *code_files(folder)]:
        total.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()[:12]


def tag_number(tag: str) -> int:
    match = re.fullmatch(r"b(\d+)", tag)
    if not match:
        raise OverlayError(
            f"{tag!r} is not a llama.cpp tag",
            hint="tags look like b10488; see `ollama-spec detect`",
        )
    return int(match.group(1))


def tag_matches(tag: str, condition: str | None) -> bool:
    """Whether `tag` satisfies every comma-separated part of `condition` (None: always)."""
    number = tag_number(tag)
    for part in (condition or "").split(","):
        if not part.strip():
            continue
        match = re.fullmatch(r"\s*(>=|<=|<|>|=)\s*b(\d+)\s*", part)
        if not match:
            raise OverlayError(f"cannot read the tag condition {part!r}")
        sign, limit = match.group(1), int(match.group(2))
        holds = {
            ">=": number >= limit,
            "<=": number <= limit,
            "<": number < limit,
            ">": number > limit,
            "=": number == limit,
        }[sign]
        if not holds:
            return False
    return True


def plan(overlay: Overlay, tag: str, read: ReadText) -> dict[str, str]:
    """New text of every file the overlay changes; `read` gives a pristine text or None."""
    by_file: dict[str, list[Hook]] = defaultdict(list)
    for hook in overlay.hooks:
        if tag_matches(tag, hook.tags) and _holds(hook.only_if, read):
            by_file[hook.file].append(hook)
    texts: dict[str, str] = {}
    for file, hooks in by_file.items():
        pristine = read(file)
        if pristine is None:
            raise OverlayError(f"hook {hooks[0].id}: {tag} has no file {file}", hint=_HINT)
        texts[file] = apply_hooks(pristine, hooks, tag)
    for file, addition in _cmake_additions(overlay, tag, by_file, read).items():
        text = texts.get(file) or read(file) or ""
        texts[file] = text.rstrip("\n") + "\n" + addition
    return texts


_HINT = "this llama.cpp moved on: stay on a tag `ollama-spec build check` passes, or fix the hook"


def _holds(condition: OnlyIf | None, read: ReadText) -> bool:
    if condition is None:
        return True
    text = read(condition.file)
    found = text is not None and (condition.contains is None or condition.contains in text)
    return found != condition.absent


def apply_hooks(text: str, hooks: Iterable[Hook], tag: str) -> str:
    """`text` with every hook applied; all anchors refer to `text` as it is given."""
    lines = text.removesuffix("\n").split("\n")
    before: dict[int, list[str]] = defaultdict(list)
    after: dict[int, list[str]] = defaultdict(list)
    changed = dict(enumerate(lines))
    tail: list[str] = []
    for hook in hooks:
        if hook.action == "append":
            tail.append(hook.line)
            continue
        at = _locate(hook, lines, tag)
        if hook.action == "replace":
            anchor = str(hook.anchor)
            if anchor not in changed[at]:
                raise OverlayError(
                    f"hook {hook.id}: another hook already replaced its anchor in {hook.file}"
                )
            changed[at] = changed[at].replace(anchor, hook.line)
        else:
            (before if hook.action == "before" else after)[at].append(_indented(hook, lines[at]))
    result: list[str] = []
    for index in range(len(lines)):
        result += [*before[index], changed[index], *after[index]]
    return "\n".join([*result, *tail]) + "\n"


def _indented(hook: Hook, anchor_line: str) -> str:
    line = hook.line.rstrip("\n")
    if line.startswith((" ", "\t", "#")):
        return line
    return anchor_line[: len(anchor_line) - len(anchor_line.lstrip())] + line


def _locate(hook: Hook, lines: list[str], tag: str) -> int:
    anchor = str(hook.anchor)
    hits = [index for index, line in enumerate(lines) if anchor in line]
    if len(hits) == 1 and lines[hits[0]].count(anchor) == 1:
        return hits[0]
    what = f"hook {hook.id}: anchor {anchor.strip()!r} is on {len(hits)} lines of {hook.file}"
    if hits:
        near = [f"{index + 1}: {lines[index].strip()}" for index in hits[:3]]
    else:
        near = _nearest(anchor, lines)
    raise OverlayError(f"{what} at {tag}, not on one; nearest: {' | '.join(near)}", hint=_HINT)


def _nearest(anchor: str, lines: list[str]) -> list[str]:
    numbered = {line.strip(): index for index, line in reversed(list(enumerate(lines, 1)))}
    close = difflib.get_close_matches(anchor.strip(), list(numbered), n=3, cutoff=0.3)
    return [f"{numbered[line]}: {line}" for line in close] or ["nothing like it"]


def _cmake_additions(
    overlay: Overlay, tag: str, by_file: dict[str, list[Hook]], read: ReadText
) -> dict[str, str]:
    """Lines to append to the CMakeLists of each folder the overlay reaches into."""
    lines: dict[str, list[str]] = defaultdict(list)
    for source in overlay.sources:
        if tag_matches(tag, source.tags):
            home = _target_home(source.target, read, tag)
            path = f"{_ours(home)}/{source.file}"
            lines[home].append(f"target_sources({source.target} PRIVATE {path})")
    for file in by_file:
        near = _cmake_home(file, read)
        if near is None:
            continue
        if file.endswith((".c", ".cpp")):
            # Per file, not per target: everything else in the target keeps its objects.
            name = PurePosixPath(file).relative_to(PurePosixPath(near).parent)
            lines[near].append(
                f"set_property(SOURCE {name} APPEND PROPERTY INCLUDE_DIRECTORIES {_ours(near)})"
            )
        elif near == _SERVER:
            line = f"target_include_directories(server-context PUBLIC {_ours(near)})"
            if line not in lines[near]:
                lines[near].append(line)
    for tool in overlay.tools:
        paths = " ".join(f"{_ours(_SERVER)}/{name}" for name in tool.sources)
        lines[_SERVER] += [
            f"add_executable({tool.name} {paths})",
            f"target_link_libraries({tool.name} PRIVATE llama-common llama)",
            f"target_compile_features({tool.name} PRIVATE cxx_std_17)",
        ]
    return {file: "\n".join(["", *items, ""]) for file, items in lines.items()}


_SERVER = "tools/server/CMakeLists.txt"
_HOMES = {
    "llama": "src/CMakeLists.txt",
    "llama-common": "common/CMakeLists.txt",
    "server-context": _SERVER,
    "llama-server-impl": _SERVER,
    "llama-server": _SERVER,
    "mtmd": "tools/mtmd/CMakeLists.txt",
}


def _target_home(target: str, read: ReadText, tag: str) -> str:
    home = _HOMES.get(target)
    if home is None or read(home) is None:
        raise OverlayError(f"{tag} has no CMake target {target} that the overlay knows")
    return home


def _cmake_home(file: str, read: ReadText) -> str | None:
    for parent in PurePosixPath(file).parents:
        candidate = str(parent / "CMakeLists.txt")
        if read(candidate) is not None:
            return candidate
    return None


def _ours(cmake_file: str) -> str:
    up = "/".join([".."] * (len(PurePosixPath(cmake_file).parts) - 1))
    return "${CMAKE_CURRENT_LIST_DIR}/" + f"{up}/{FOLDER}"
