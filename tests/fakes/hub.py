"""A local server that speaks the Hub's HTTP API to the real huggingface_hub client.

Two origins, as in life: the hub answers listings and redirects large files to a storage host. Every
fault is a field of the server; every request is recorded.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Request:
    origin: str  # "hub" or "cdn"
    method: str
    path: str
    range: str | None
    authorization: str | None
    sent: int = 0


@dataclass
class Faults:
    """By repository or by file; empty: everything works."""

    access: dict[str, str] = field(default_factory=dict)  # repo: 401, 401-gated, 403-gated, ...
    drop_after: dict[str, int] = field(default_factory=dict)  # file: bytes of one transfer
    drops_left: int = 10**9
    flip: dict[str, int] = field(default_factory=dict)  # file: offset of a damaged byte
    served_etag: dict[str, str] = field(default_factory=dict)  # file: another ETag than listed
    body: dict[str, bytes] = field(default_factory=dict)  # file: what really comes, same length
    body_after_headers: bool = False  # ... but a read of the first bytes is still right
    ignore_ranges: bool = False
    bytes_per_second: int = 0
    redirect_all_to: str = ""
    answer_html: bool = False


class FakeHub:
    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.plain: set[str] = set()  # files kept in git, without an LFS record
        self.commit = COMMIT
        self.faults = Faults()
        self.requests: list[Request] = []
        self._hub = self._serve("hub")
        self._cdn = self._serve("cdn")

    def _serve(self, origin: str) -> ThreadingHTTPServer:
        handler = type("Handler", (_Handler,), {"hub": self, "origin": origin})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
        return server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._hub.server_address[1]}"

    @property
    def cdn(self) -> str:
        return f"http://localhost:{self._cdn.server_address[1]}"

    def add(self, repo: str, **files: bytes) -> None:
        self.files.setdefault(repo, {}).update(files)

    def put(self, repo: str, path: str, content: bytes, *, lfs: bool = True) -> None:
        self.files.setdefault(repo, {})[path] = content
        if not lfs:
            self.plain.add(f"{repo}/{path}")

    def downloads(self, path: str) -> list[Request]:
        """Body transfers of a file, except the short reads of headers."""
        return [
            item
            for item in self.requests
            if item.method == "GET"
            and item.path.endswith(path)
            and "/api/" not in item.path
            and not (item.range or "").startswith("bytes=0-")
        ]

    def close(self) -> None:
        for server in (self._hub, self._cdn):
            server.shutdown()
            server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    origin: str
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        return

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        self.seen = Request(
            self.origin,
            self.command,
            unquote(urlsplit(self.path).path),
            self.headers.get("Range"),
            self.headers.get("Authorization"),
        )
        self.hub.requests.append(self.seen)
        faults = self.hub.faults
        if self.origin == "cdn":
            _, _, rest = self.seen.path.partition("/cdn/")
            owner, name, path = rest.split("/", 2)
            self._content(f"{owner}/{name}", path)
        elif faults.redirect_all_to:
            self._plain(308, b"", {"Location": faults.redirect_all_to + self.path})
        elif faults.answer_html:
            self._plain(200, b"<!DOCTYPE html><title>Welcome to the hotel</title>", {})
        elif self.seen.path.startswith("/api/models/"):
            self._listing()
        else:
            self._resolve()

    def _listing(self) -> None:
        owner, name, *rest = self.seen.path.removeprefix("/api/models/").split("/")
        repo = f"{owner}/{name}"
        if self._refused(repo, metadata=True):
            return
        if rest[:1] == ["revision"] and rest[1] not in ("main", self.hub.commit):
            self._error(404, "RevisionNotFound")
            return
        assert parse_qs(urlsplit(self.path).query).get("blobs"), "sizes and hashes were not asked"
        siblings = []
        for path, content in self.hub.files[repo].items():
            entry: dict[str, object] = {
                "rfilename": path,
                "size": len(content),
                "blobId": git_id(content),
            }
            if f"{repo}/{path}" not in self.hub.plain:
                sha256 = hashlib.sha256(content).hexdigest()
                entry["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 134}
            siblings.append(entry)
        value = {"id": repo, "sha": self.hub.commit, "siblings": siblings}
        self._plain(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _resolve(self) -> None:
        head, _, rest = self.seen.path.partition("/resolve/")
        repo = head.strip("/")
        _, _, path = rest.partition("/")
        if self._refused(repo, metadata=False):
            return
        content = self.hub.files[repo].get(path)
        if content is None:
            self._error(404, "EntryNotFound")
            return
        headers = {"X-Repo-Commit": self.hub.commit}
        if f"{repo}/{path}" in self.hub.plain:
            etag = self.hub.faults.served_etag.get(path, git_id(content))
            self._content(repo, path, {**headers, "ETag": f'"{etag}"'})
            return
        sha256 = self.hub.faults.served_etag.get(path) or hashlib.sha256(content).hexdigest()
        headers |= {
            "X-Linked-Etag": f'"{sha256}"',
            "X-Linked-Size": str(len(content)),
            "Location": f"{self.hub.cdn}/cdn/{repo}/{path}?signature=abc",
        }
        self._plain(302, b"", headers)

    def _refused(self, repo: str, *, metadata: bool) -> bool:
        access = self.hub.faults.access.get(repo, "")
        if repo not in self.hub.files:
            # The real hub says 401 for what may be private, unless a token proves otherwise.
            self._error(404 if self.seen.authorization else 401, "RepoNotFound")
        elif access == "401-gated" and not metadata:
            self._error(401, "GatedRepo")
        elif access == "403-gated" and not metadata:
            self._error(403, "GatedRepo")
        elif access == "401-token":
            self._error(401, "", "Invalid credentials in Authorization header")
        elif access == "403":
            self._error(403, "", "Token lacks the scope")
        elif access == "500":
            self._error(500, "")
        else:
            return False
        return True

    def _content(self, repo: str, path: str, more: dict[str, str] | None = None) -> None:
        faults = self.hub.faults
        data = self.hub.files[repo][path]
        if not (faults.body_after_headers and (self.seen.range or "").startswith("bytes=0-")):
            data = faults.body.get(path, data)
        if path in faults.flip:
            at = faults.flip[path]
            data = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
        headers = dict(more or {})
        start, end, status = 0, len(data), 200
        if self.seen.range and not faults.ignore_ranges:
            first, _, last = self.seen.range.removeprefix("bytes=").partition("-")
            start, end, status = int(first), min(int(last or len(data) - 1) + 1, len(data)), 206
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        self.send_response(status)
        for key, value in (headers | {"Content-Length": str(end - start)}).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        whole_file = not (self.seen.range or "").startswith("bytes=0-")
        limit = end
        if path in faults.drop_after and whole_file and faults.drops_left > 0:
            limit = min(end, start + faults.drop_after[path])
        try:
            for at in range(start, limit, 65536):
                block = data[at : min(at + 65536, limit)]
                self.wfile.write(block)
                self.seen.sent += len(block)
                if faults.bytes_per_second:
                    time.sleep(len(block) / faults.bytes_per_second)
        except OSError:
            self.close_connection = True
            return
        if limit < end:
            faults.drops_left -= 1
            self.close_connection = True

    def _error(self, status: int, code: str, text: str = "") -> None:
        headers = {"X-Error-Code": code} if code else {}
        headers |= {"X-Error-Message": text} if text else {}
        self._plain(status, json.dumps({"error": text or code}).encode(), headers)

    def _plain(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def git_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
