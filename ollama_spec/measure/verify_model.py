"""Checks of `verify` about the model itself: do its files fit, and do its images arrive?"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable
from typing import Any

from ollama_spec.measure import session
from ollama_spec.measure.check import STRICT, Check
from ollama_spec.measure.client import Client
from ollama_spec.modelfile import checks
from ollama_spec.runner.binary import Binary
from ollama_spec.store import ModelRecord

_SIDE = 64  # pixels
_COLOURS = {"red": (220, 30, 30), "blue": (30, 60, 220)}


def pair(record: ModelRecord) -> Check:
    """The headers of target, drafter and speculator, without starting anything."""
    check = Check("pair", "the drafter and the speculator fit the target, by their headers")
    speculator = record.profile.prefill.speculator
    report = checks.check_pair(
        record.target.path,
        record.drafter.path if record.drafter else None,
        speculator=speculator.path if speculator else None,
    )
    check.failures += report.problems
    check.figures = {
        "spec_type": report.spec_type,
        "memory_bytes": report.memory.total,
        "fits": report.memory.verdict,
    }
    return check


def images(runner: Binary, record: ModelRecord, note: Callable[[str], None]) -> Check:
    """With drafting, an answer about an image is the one without; and the image is looked at."""
    note("images: starting two servers")
    check = Check("images", "an answer about an image is that of plain decoding")
    how: dict[str, Any] = {"num_ctx": 4096, "threads": session.spare_threads(record)}
    with (
        session.serving(runner, record, drafting=False, dense=True, **how) as plain,
        session.serving(runner, record, **how) as ours,
    ):
        answers = []
        for name, colour in _COLOURS.items():
            picture = png(colour)
            expected, found = (_describe(client, picture) for client in (plain, ours))
            answers.append(expected)
            check.expect(
                expected == found, f"{name}: {found!r} with drafting, {expected!r} without"
            )
            check.samples.append(f"{name}: {found!r}")
        blank = _describe(plain, None)
        check.expect(blank not in answers, "the answer is the same without any image")
    return check


def _describe(client: Client, picture: bytes | None) -> str:
    content: list[dict[str, Any]] = [{"type": "text", "text": "Describe this picture."}]
    if picture:
        data = "data:image/png;base64," + base64.b64encode(picture).decode()
        content.append({"type": "image_url", "image_url": {"url": data}})
    messages = [{"role": "user", "content": content}]
    body = {"messages": messages, "max_tokens": 48, "temperature": 0, "cache_prompt": False}
    reply = client.post("/v1/chat/completions", {**body, **STRICT})
    message = reply["choices"][0]["message"]
    return str(message.get("reasoning_content") or "") + str(message.get("content") or "")


def png(colour: tuple[int, int, int]) -> bytes:
    """A square of one colour with a white upper left quarter."""
    half = _SIDE // 2
    rows = b"".join(
        b"\0"
        + b"".join(bytes((255,) * 3 if x < half and y < half else colour) for x in range(_SIDE))
        for y in range(_SIDE)
    )
    header = struct.pack(">IIBBBBB", _SIDE, _SIDE, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
