"""Images and audio: their kind by magic bytes, and the content part llama-server takes."""

from __future__ import annotations

import base64
from typing import Any


def kind(data: bytes) -> str:
    """A MIME type; PNG for what is not recognised (llama-server decides then)."""
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return "audio/wav"
    if data.startswith((b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2")):
        return "audio/mp3"
    if data.startswith(b"GIF8"):
        return "image/gif"
    return "image/png"


def part(data: bytes) -> dict[str, Any]:
    mime = kind(data)
    encoded = base64.b64encode(data).decode()
    if mime.startswith("audio/"):
        audio = {"data": encoded, "format": mime.removeprefix("audio/")}
        return {"type": "input_audio", "input_audio": audio}
    return {"type": "image_url", "image_url": {"url": f"data:{mime};base64,{encoded}"}}
