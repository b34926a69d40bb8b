"""Split `<think>...</think>` off a stream of text, holding back what may be the start of a tag."""

from __future__ import annotations

from typing import Literal

OPEN, CLOSE = "<think>", "</think>"


class ThinkSplitter:
    """Feed pieces, get (thinking, text). `prompt` tells whether the model starts in a thought."""

    def __init__(self, prompt: str = "") -> None:
        inside = prompt.rstrip().endswith(OPEN)
        self._where: Literal["before", "inside", "after"] = "inside" if inside else "before"
        self._held = ""
        self._trim = inside

    def feed(self, piece: str) -> tuple[str, str]:
        self._held += piece
        thinking = text = ""
        if self._where == "before":
            rest = self._held.lstrip()
            if rest.startswith(OPEN):
                self._where, self._held, self._trim = "inside", rest[len(OPEN) :], True
            elif OPEN.startswith(rest):
                return "", ""
            else:
                self._where = "after"
        if self._where == "inside":
            thinking = self._take_thinking()
        if self._where == "after":
            text = self._strip(self._held)
            self._held = ""
        return thinking, text

    def _take_thinking(self) -> str:
        end = self._held.find(CLOSE)
        if end >= 0:
            thinking = self._strip(self._held[:end]).rstrip()
            self._held = self._held[end + len(CLOSE) :]
            self._where, self._trim = "after", True
            return thinking
        keep = _partial(self._held)
        thinking, self._held = (
            self._held[: len(self._held) - keep],
            self._held[len(self._held) - keep :],
        )
        return self._strip(thinking)

    def _strip(self, text: str) -> str:
        """White space right after a tag is not part of what follows."""
        if not self._trim:
            return text
        text = text.lstrip()
        self._trim = not text
        return text

    def finish(self) -> tuple[str, str]:
        """What was held back."""
        held, self._held = self._held, ""
        return (held, "") if self._where == "inside" else ("", held)


def _partial(text: str) -> int:
    """Length of the longest end of `text` that begins the closing tag, with white space before."""
    for size in range(len(CLOSE) - 1, 0, -1):
        if text.endswith(CLOSE[:size]):
            return len(text) - len(text[: len(text) - size].rstrip())
    return len(text) - len(text.rstrip())
