"""What the hub knows about a repository, and bytes of its files from any offset.

Login, endpoint and redirects on the hub itself are the library's; the ranged reads are ours, since
the library starts every interrupted file again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from huggingface_hub import HfApi, constants, get_hf_file_metadata, hf_hub_url
from huggingface_hub.errors import OfflineModeIsEnabled
from huggingface_hub.utils import (  # type: ignore[attr-defined]
    build_hf_headers,
    get_session,
    hf_raise_for_status,
)

from ollama_spec.errors import HubError, IntegrityError
from ollama_spec.hub.failures import explained

_CONNECT_SECONDS = 10.0
_SILENCE_SECONDS = 60.0


@dataclass(frozen=True)
class HubFile:
    """One file of a repository. `sha256` is the LFS record; small files only have a git id."""

    path: str
    size: int
    sha256: str | None
    git_id: str | None


@dataclass(frozen=True)
class Listing:
    """A repository at one commit."""

    repo: str
    revision: str
    files: dict[str, HubFile]


@dataclass(frozen=True)
class Opened:
    """A running transfer: where it really starts (0 when the server ignores ranges) and bytes."""

    start: int
    blocks: Iterator[bytes]


class Hub:
    def __init__(self, endpoint: str | None = None) -> None:
        chosen = endpoint or os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
        self.endpoint = chosen.rstrip("/")

    def listing(self, repo: str, revision: str | None = None) -> Listing:
        """Files with sizes and hashes, pinned to the commit that `revision` means now."""
        with explained(repo, self.endpoint):
            _refuse_offline()
            info = HfApi(endpoint=self.endpoint).model_info(
                repo, revision=revision, files_metadata=True, timeout=_SILENCE_SECONDS
            )
        if not info.sha:
            raise HubError(f"{self.endpoint} names no commit for {repo}")
        files = {}
        for item in info.siblings or []:
            sha256 = item.lfs.sha256 if item.lfs else None
            size = item.lfs.size if item.lfs else item.size
            files[item.rfilename] = HubFile(item.rfilename, size or 0, sha256, item.blob_id)
        return Listing(repo, info.sha, files)

    def read_start(self, listing: Listing, file: HubFile, length: int) -> bytes:
        """At most the first `length` bytes of a file."""
        parts: list[bytes] = []
        missing = length
        with self.open(listing, file, 0, length) as opened:
            for block in opened.blocks:
                parts.append(block[:missing])
                missing -= len(parts[-1])
                if missing <= 0:
                    break
        return b"".join(parts)

    @contextmanager
    def open(
        self, listing: Listing, file: HubFile, start: int, length: int | None = None
    ) -> Iterator[Opened]:
        """Stream a file from `start`. Raises IntegrityError if the hub now holds another file."""
        with explained(listing.repo, self.endpoint, file.path):
            _refuse_offline()
            url = hf_hub_url(
                listing.repo, file.path, revision=listing.revision, endpoint=self.endpoint
            )
            facts = get_hf_file_metadata(url, endpoint=self.endpoint, timeout=_CONNECT_SECONDS)
            _same_file(listing, file, facts.etag, facts.size)
            headers = self._headers(facts.location)
            if start or length is not None:
                end = "" if length is None else str(start + length - 1)
                headers["Range"] = f"bytes={start}-{end}"
            with get_session().stream(
                "GET", facts.location, headers=headers, timeout=_SILENCE_SECONDS
            ) as response:
                hf_raise_for_status(response)
                yield Opened(_first_byte(response, file), response.iter_raw())

    def _headers(self, location: str) -> dict[str, str]:
        headers: dict[str, str] = build_hf_headers()
        headers["Accept-Encoding"] = "identity"
        if _origin(location) != _origin(self.endpoint):
            # A storage host gets a signed address, never the user's token.
            headers = {k: v for k, v in headers.items() if k.lower() != "authorization"}
        return headers


def _refuse_offline() -> None:
    if constants.is_offline_mode() or os.environ.get("HF_HUB_OFFLINE", "").lower() in (
        "1",
        "true",
        "yes",
        "on",
    ):
        raise OfflineModeIsEnabled("offline mode")


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def _same_file(listing: Listing, file: HubFile, etag: str | None, size: int | None) -> None:
    known = file.sha256 or file.git_id
    changed = (known and etag and etag != known) or (size is not None and size != file.size)
    if changed:
        raise IntegrityError(
            f"{listing.repo}/{file.path} changed on the hub while it was being fetched "
            f"(listed as {(known or '?')[:12]}, {file.size} bytes; "
            f"served as {(etag or '?')[:12]}, {size} bytes)",
            hint="run this again: it starts with the new file",
        )


def _first_byte(response: Any, file: HubFile) -> int:
    """Offset of the first byte of a response; a wrong total means another file is being served."""
    if response.status_code != 206:
        return 0
    span, _, total = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
    if total not in ("", "*", str(file.size)):
        raise IntegrityError(
            f"{file.path}: the server holds {total} bytes where {file.size} are listed",
            hint="run this again; if it stays, the mirror or proxy serves a stale file",
        )
    return int(span.partition("-")[0])
