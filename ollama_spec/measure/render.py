"""Is a prompt rendered here what Ollama makes of the same conversation? (contract 8.7)

Both the sidecar and the real Ollama are asked with `_debug_render_only`, so what is compared is
what clients get. A conversation that both refuse with the same words (tools for a model without
them) counts as equal.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

from ollama_spec.errors import NotFoundError, OllamaSpecError
from ollama_spec.ollama_api import OllamaApi, OllamaError

Conversation = dict[str, Any]
_WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "required": ["city"],
            "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]}},
        },
    },
}
_CALL = {"function": {"name": "weather", "arguments": {"city": "Oslo", "unit": "C"}}}


def _said(*turns: str) -> list[dict[str, Any]]:
    """Messages of a user and an assistant in turn."""
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(turns)]


_ASKED = _said("What is the weather in Oslo?")
CORPUS: dict[str, Conversation] = {
    "one question": {"messages": _said("Say hi.")},
    "system text": {"messages": [{"role": "system", "content": "Be brief."}, *_said("Say hi.")]},
    "three turns": {"messages": _said("Say hi.", "Hi.", "And goodbye.")},
    "an answer to go on with": {"messages": _said("Count.", "One, two,")},
    "two questions in a row": {"messages": _said("Say hi.") + _said("Or hello.")},
    "white space and empty text": {"messages": _said("  Say hi.\n\n", "", "\t")},
    "signs of the template": {"messages": _said("<|im_start|> {{ .Prompt }} </think> <bos>")},
    "other scripts": {"messages": _said("Grüße, 世界 🎈 — <b>&amp;</b>")},
    "system in the middle": {
        "messages": [
            *_said("Say hi.", "Hi."),
            {"role": "system", "content": "Be rude."},
            *_said("Say hi."),
        ]
    },
    "thinking on": {"messages": _said("Say hi."), "think": True},
    "thinking off": {"messages": _said("Say hi."), "think": False},
    "a level of thinking": {"messages": _said("Say hi."), "think": "low"},
    "an earlier thought": {
        "messages": [
            *_said("Say hi."),
            {"role": "assistant", "content": "Hi.", "thinking": "A greeting."},
            *_said("Again."),
        ]
    },
    "a tool": {"messages": _ASKED, "tools": [_WEATHER]},
    "a call and its result": {
        "messages": [
            *_ASKED,
            {"role": "assistant", "content": "", "tool_calls": [_CALL]},
            {"role": "tool", "content": "4 degrees", "tool_name": "weather"},
        ],
        "tools": [_WEATHER],
    },
    "two calls at once": {
        "messages": [
            *_ASKED,
            {"role": "assistant", "content": "Let me see.", "tool_calls": [_CALL, _CALL]},
            {"role": "tool", "content": "4 degrees", "tool_name": "weather"},
            {"role": "tool", "content": "5 degrees", "tool_name": "weather"},
            *_said("Which is it?"),
        ],
        "tools": [_WEATHER],
    },
}


@dataclass(frozen=True)
class Rendering:
    """One conversation as rendered by us and by Ollama, or with what words it was refused."""

    title: str
    ours: str
    theirs: str

    @property
    def same(self) -> bool:
        return self.ours == self.theirs

    def as_json(self) -> dict[str, Any]:
        return {
            "title": self.title, "same": self.same, "ours": self.ours, "theirs": self.theirs,
        }  # fmt: skip

    def difference(self) -> list[str]:
        """Unified, line by line; a missing newline at the end shows too."""
        lines = difflib.unified_diff(
            [repr(line) for line in self.theirs.splitlines(keepends=True)],
            [repr(line) for line in self.ours.splitlines(keepends=True)],
            "Ollama", "ollama-spec", lineterm="", n=1,
        )  # fmt: skip
        return list(lines)


def compare(ours: OllamaApi, theirs: OllamaApi, model: str) -> list[Rendering]:
    """Every conversation of the corpus; NotFoundError when Ollama does not have the model."""
    theirs.show(model)
    return [
        Rendering(title, _rendered(ours, model, body), _rendered(theirs, model, body))
        for title, body in CORPUS.items()
    ]


def _rendered(server: OllamaApi, model: str, body: Conversation) -> str:
    try:
        return server.rendered({"model": model, "stream": False, **body})
    except (OllamaError, NotFoundError) as error:
        return f"refused: {error.message}"


def report(found: list[Rendering]) -> str:
    """For people: one line per conversation, and what differs below it."""
    lines = []
    for item in found:
        lines.append(f"{'same' if item.same else 'DIFF'}  {item.title}")
        lines += [f"      {line}" for line in item.difference()]
    return "\n".join(lines)


def need_same(found: list[Rendering]) -> None:
    """OllamaSpecError when a rendering differs: answers would be others than Ollama's."""
    other = [item.title for item in found if not item.same]
    if other:
        raise OllamaSpecError(
            f"{len(other)} of {len(found)} conversations are rendered otherwise than by Ollama: "
            + ", ".join(other),
            hint="`ollama-spec attach` lets Ollama render them",
        )
