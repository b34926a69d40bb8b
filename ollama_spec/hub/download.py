"""Bring one file here, whole: resumed, shared between processes, and hashed before it has a name.

weights/OWNER/REPO/COMMIT/path/name.gguf               complete, hash checked
weights/OWNER/REPO/COMMIT/path/name.gguf.SHA.partial   the start of that very content
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import time
from pathlib import Path
from typing import Any

from huggingface_hub import constants, hf_hub_download

from ollama_spec import output, paths
from ollama_spec.errors import HubError, IntegrityError, OllamaSpecError, PairingError, SpaceError
from ollama_spec.exclusive import exclusive
from ollama_spec.gguf import check_magic
from ollama_spec.hub.client import Hub, HubFile, Listing
from ollama_spec.hub.failures import TRANSPORT_ERROR, explain, explained
from ollama_spec.hub.progress import Progress
from ollama_spec.profiles import WeightFile
from ollama_spec.store import weights_dir

RETRIES = 5
RETRY_SECONDS = 1.0
_BLOCK = 1 << 20
# Above this size the hub serves a file through Xet only, which the library must fetch.
XET_ONLY_BYTES = constants.MAX_HTTP_DOWNLOAD_SIZE


def place(listing: Listing, file: HubFile) -> Path:
    """Where a file of this commit lies once it is whole."""
    return weights_dir() / listing.repo / listing.revision[:12] / file.path


def here(listing: Listing, file: HubFile) -> bool:
    path = place(listing, file)
    return path.is_file() and path.stat().st_size == file.size


def still_to_fetch(listing: Listing, file: HubFile) -> int:
    """Bytes that a download would transfer now."""
    if here(listing, file):
        return 0
    partial = _partial(listing, file)
    return max(file.size - (partial.stat().st_size if partial.is_file() else 0), 0)


def fetch(hub: Hub, listing: Listing, file: HubFile) -> WeightFile:
    """Download a file, or wait for the process that already does.

    Raises IntegrityError (nothing stays) when the content is not what the hub's record says.
    """
    final = place(listing, file)
    lock = final.with_name(f"{final.name}.lock")
    with exclusive(lock, f"{listing.repo}/{file.path}", "fetched"):
        if not here(listing, file):
            _sweep_older(listing, file)
            if file.size > XET_ONLY_BYTES:
                _fetch_by_library(hub, listing, file)
            else:
                _fetch_ranges(hub, listing, file)
    return WeightFile(
        path=final,
        size=file.size,
        sha256=file.sha256,
        repo=listing.repo,
        file=file.path,
        revision=listing.revision,
    )


def _partial(listing: Listing, file: HubFile) -> Path:
    content = (file.sha256 or file.git_id or "unknown")[:16]
    final = place(listing, file)
    return final.with_name(f"{final.name}.{content}.partial")


def _sweep_older(listing: Listing, file: HubFile) -> None:
    """Remove what an interrupted run left of content that the hub no longer has at this path."""
    repository = weights_dir() / listing.repo
    keep = _partial(listing, file)
    for left in repository.glob(f"*/{file.path}.*.partial"):
        if left != keep:
            output.note(
                f"{listing.repo}/{file.path} changed on the hub since an earlier run: "
                f"{output.human_size(left.stat().st_size)} of the old file are no use, restarting"
            )
            left.unlink(missing_ok=True)


def _fetch_ranges(hub: Hub, listing: Listing, file: HubFile) -> None:
    partial = _partial(listing, file)
    paths.ensure(partial.parent)
    try:
        with partial.open("a+b") as out:
            digest = _transfer(hub, listing, file, out)
        _verify(listing, file, partial, digest)
    except KeyboardInterrupt:
        _tell_kept(partial)
        raise
    except HubError as error:
        if not isinstance(error, IntegrityError):
            _tell_kept(partial)
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            _tell_kept(partial)
            raise SpaceError(
                f"the disk of {partial.parent} is full",
                hint="free some space and run this again; it goes on where it stopped",
            ) from error
        raise
    partial.replace(place(listing, file))


def _tell_kept(partial: Path) -> None:
    if partial.is_file() and (size := partial.stat().st_size):
        output.note(f"kept {output.human_size(size)}: the same command goes on from there")


class _Digest:
    """Hash of the content so far: SHA-256 as in an LFS record, or git's for a small file."""

    def __init__(self, file: HubFile) -> None:
        self._file = file
        self.reset()

    def reset(self) -> None:
        self._hash: Any = hashlib.sha256()
        if self._file.sha256 is None:
            self._hash = hashlib.sha1(f"blob {self._file.size}\0".encode(), usedforsecurity=False)

    def add(self, block: bytes) -> None:
        self._hash.update(block)

    def matches(self) -> bool:
        wanted = self._file.sha256 or self._file.git_id
        return wanted is None or bool(self._hash.hexdigest() == wanted)

    @property
    def text(self) -> str:
        return str(self._hash.hexdigest())


def _transfer(hub: Hub, listing: Listing, file: HubFile, out: Any) -> _Digest:
    """Append what is missing to `out`; survives broken connections."""
    digest = _Digest(file)
    out.seek(0, os.SEEK_END)
    have = out.tell()
    if have > file.size:
        out.truncate(0)
        have = 0
    out.seek(0)
    while block := out.read(_BLOCK):
        digest.add(block)
    failures = 0
    with Progress(file.path, file.size, have) as progress:
        while have < file.size:
            before = have
            try:
                with hub.open(listing, file, have) as opened:
                    if opened.start != have:
                        _start_over(listing, file, out, digest, progress, opened.start)
                        have = before = 0
                    for block in opened.blocks:
                        out.write(block)
                        digest.add(block)
                        have += len(block)
                        progress.add(len(block))
                        if have > file.size:
                            break
                if have >= file.size:
                    break
                error: OllamaSpecError = HubError(
                    f"{listing.repo}/{file.path}: the connection ended early"
                )
            except (TRANSPORT_ERROR, HubError) as raised:
                if isinstance(raised, OllamaSpecError):
                    if not isinstance(raised.__cause__, TRANSPORT_ERROR) or _final(raised):
                        raise
                    error = raised
                else:
                    error = explain(raised, listing.repo, hub.endpoint, file.path)
            finally:
                out.flush()
            failures = 0 if have > before else failures + 1
            if failures > RETRIES:
                raise error
            output.note(f"{file.path}: connection lost at {output.human_size(have)}, going on")
            time.sleep(RETRY_SECONDS * max(failures, 1))
    out.flush()
    os.fsync(out.fileno())
    return digest


def _final(error: OllamaSpecError) -> bool:
    """An answer of the hub that asking again will not change."""
    cause = error.__cause__
    response = getattr(cause, "response", None)
    status = getattr(response, "status_code", 0)
    return bool(status) and status < 500 and status not in (408, 429)


def _start_over(
    listing: Listing, file: HubFile, out: Any, digest: _Digest, progress: Progress, start: int
) -> None:
    if start != 0:
        raise IntegrityError(
            f"{listing.repo}/{file.path}: the server sent bytes from {start}, unasked",
            hint="a proxy in between breaks ranged downloads: set HF_ENDPOINT or go around it",
        )
    output.note(f"{file.path}: the server cannot resume, so it starts from the beginning")
    out.seek(0)
    out.truncate(0)
    digest.reset()
    progress.restart()


def _verify(listing: Listing, file: HubFile, partial: Path, digest: _Digest) -> None:
    """Delete and refuse content that is not the hub's; a partial file never gets this far."""
    size = partial.stat().st_size
    if size == file.size and digest.matches():
        return
    label = f"{listing.repo}/{file.path}"
    with partial.open("rb") as content:
        start = content.read(256)
    partial.unlink()
    try:
        check_magic(Path(label), start)
    except PairingError as error:
        raise IntegrityError(
            error.message, hint="a proxy or mirror answered with something else: check HF_ENDPOINT"
        ) from error
    wanted = file.sha256 or file.git_id or "?"
    raise IntegrityError(
        f"{label} arrived damaged: {digest.text[:12]} in {size} bytes "
        f"instead of {wanted[:12]} in {file.size}",
        hint="it was deleted; run this again",
    )


def _fetch_by_library(hub: Hub, listing: Listing, file: HubFile) -> None:
    output.note(f"{file.path}: comes through Xet; an interruption starts it again")
    scratch = _partial(listing, file).with_suffix(".xet")
    with explained(listing.repo, hub.endpoint, file.path):
        got = Path(
            hf_hub_download(
                listing.repo,
                file.path,
                revision=listing.revision,
                local_dir=scratch,
                endpoint=hub.endpoint,
            )
        )
    partial = _partial(listing, file)
    got.replace(partial)
    shutil.rmtree(scratch, ignore_errors=True)
    digest = _Digest(file)
    with partial.open("rb") as content:
        while block := content.read(_BLOCK):
            digest.add(block)
    _verify(listing, file, partial, digest)
    partial.replace(place(listing, file))
