"""Which llama.cpp tag each Ollama release carries, and how a tag is concluded."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import yaml
from pydantic import Field

from ollama_spec import paths
from ollama_spec.build.llama_version import LlamaVersion
from ollama_spec.errors import BuildError
from ollama_spec.profiles import Strict

_PIN_URL = "https://raw.githubusercontent.com/ollama/ollama/v{version}/LLAMA_CPP_VERSION"
FIRST_PINNED = (0, 30, 0)


class TagTable(Strict):
    releases: dict[str, str] = Field(description="Ollama version -> llama.cpp tag")
    commits: dict[str, str] = Field(description="llama.cpp tag -> commit (short or full)")
    sdists: list[int] = Field(description="llama.cpp build numbers the registry had an sdist of")


class Conclusion(Strict):
    tag: str | None
    how: str
    commit: str | None = None
    commit_by: str = "llama-server"  # or "table of tags"
    warning: str | None = None


def learnt_path() -> Path:
    return paths.data_dir() / "tags.yaml"


def table() -> TagTable:
    """The shipped facts, plus what `detect --refresh` learnt on this machine."""
    shipped = yaml.safe_load(Path(__file__).with_name("tags.yaml").read_text())
    path = learnt_path()
    if path.is_file():
        learnt = yaml.safe_load(path.read_text()) or {}
        for part in ("releases", "commits"):
            shipped[part] = {**shipped[part], **learnt.get(part, {})}
    return TagTable.model_validate(shipped)


def learn(releases: dict[str, str], commits: dict[str, str]) -> None:
    """Add facts to the user's own table."""
    path = learnt_path()
    known = yaml.safe_load(path.read_text()) if path.is_file() else {}
    merged = {
        "releases": {**known.get("releases", {}), **releases},
        "commits": {**known.get("commits", {}), **commits},
    }
    paths.atomic_write(path, yaml.safe_dump(merged).encode())


def known_sdists() -> list[int]:
    return table().sdists


def pins(facts: TagTable) -> list[str]:
    """Every tag a release from v0.30.0 on has carried, oldest first."""
    found = {
        tag
        for version, tag in facts.releases.items()
        if "-" not in version and version_key(version) >= FIRST_PINNED
    }
    return sorted(found, key=lambda tag: int(tag[1:]))


def nearest_sdist(tag: str, facts: TagTable) -> str:
    number = int(tag[1:])
    return f"b{min(facts.sdists, key=lambda known: abs(known - number))}"


def version_key(version: str) -> tuple[int, ...]:
    """Release numbers only: 0.32.15-rc2 sorts as 0.32.15."""
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("-")[0])[:3])


def pin_of_release(version: str) -> str | None:
    """LLAMA_CPP_VERSION of that release out of Ollama's repository; None when out of reach."""
    try:
        reply = httpx.get(_PIN_URL.format(version=version.removeprefix("v")), timeout=10)
    except httpx.HTTPError:
        return None
    text = reply.text.strip()
    return text if reply.status_code == 200 and re.fullmatch(r"b\d+", text) else None


def conclude(
    server: str | None,
    binary: str | None,
    llama: LlamaVersion | None,
    facts: TagTable,
    *,
    online: bool = False,
    assume: bool = False,
) -> Conclusion:
    """The tag, by the strongest evidence: the binary's own words > release table > repository.

    `server` and `binary` are Ollama versions; where they differ the running server's decides,
    because it is what loads models (both are named in the warning).
    """
    differ = bool(server and binary and server != binary)
    warning = (
        f"the running server is {server} but the program found is {binary}; the server decides"
        if differ
        else None
    )
    commit = llama.commit if llama else None
    if llama and not differ:
        if llama.tag:
            return Conclusion(tag=llama.tag, how="llama-server's build number", commit=commit)
        for tag, known in facts.commits.items():
            if commit and same_commit(known, commit):
                return Conclusion(tag=tag, how="llama-server's commit", commit=commit)
    version = (server or binary or "").removeprefix("v")
    if not version:
        return Conclusion(tag=None, how="no Ollama found")
    commit = None if differ else commit
    if version in facts.releases:
        how = f"release table: Ollama {version}"
        return Conclusion(tag=facts.releases[version], how=how, commit=commit, warning=warning)
    pin = pin_of_release(version) if online else None
    if pin:
        how = f"LLAMA_CPP_VERSION of Ollama v{version}"
        return Conclusion(tag=pin, how=how, commit=commit, warning=warning)
    if assume:
        lower = [v for v in facts.releases if version_key(v) <= version_key(version)]
        if lower:
            near = max(lower, key=lambda v: (version_key(v), "-" not in v))
            how = f"assumed: {near} is the nearest lower release known"
            return Conclusion(tag=facts.releases[near], how=how, commit=commit, warning=warning)
    return Conclusion(
        tag=None,
        how=f"Ollama {version} is in no table here",
        commit=commit,
        warning="`detect --refresh` asks its repository; `--assume` takes the nearest lower one",
    )


def with_commit(conclusion: Conclusion, facts: TagTable) -> Conclusion:
    """Fill in the commit from the table where the binary does not tell one."""
    if conclusion.commit or conclusion.tag not in facts.commits:
        return conclusion
    commit = facts.commits[conclusion.tag]
    return conclusion.model_copy(update={"commit": commit, "commit_by": "table of tags"})


def same_commit(one: str, other: str) -> bool:
    """Whether two commits, either of them shortened, are the same."""
    length = min(len(one), len(other))
    return one[:length] == other[:length]


def require(conclusion: Conclusion) -> str:
    if conclusion.tag is None:
        raise BuildError(
            f"no llama.cpp tag could be concluded: {conclusion.how}",
            hint=conclusion.warning or "install Ollama, or say `--tag b10488`",
        )
    return conclusion.tag
