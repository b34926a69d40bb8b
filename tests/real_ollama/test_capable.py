"""Tools, thinking and embeddings beside the real Ollama, with models that have these abilities.

SmolLM2 has none of them, so its GGUF gets another chat template, or a pooling type: what a model
can do is read from these. What it says is nonsense, but greedy, hence the same on both sides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import httpx
import numpy
import pytest
from gguf.scripts.gguf_new_metadata import MetadataDetails, copy_with_new_metadata
from real_ollama import servers
from real_ollama.cases import CASES, Case, post
from real_ollama.compare import ask, differences
from real_ollama.servers import RealOllama, Server

from ollama_spec.profiles import WeightFile
from ollama_spec.store import ModelRecord, ModelStore

JINJA = (
    "{% if tools %}<|im_start|>system\nTools: {{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.tool_calls %}{{ message.tool_calls | tojson }}{% endif %}"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n"
    "{% else %}<think>\n{% endif %}{% endif %}"
)
HI = [{"role": "user", "content": "What is the weather in Oslo?"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "required": ["city"],
            "properties": {"city": {"type": "string", "default": "lost"}},
        },
    },
}
CALL = {"function": {"name": "weather", "arguments": {"city": "Oslo"}}}
PAST = [
    *HI,
    {"role": "assistant", "content": "", "thinking": "Hm.", "tool_calls": [CALL]},
    {"role": "tool", "content": "4 degrees", "tool_name": "weather"},
]
OPTIONS = {"temperature": 0, "num_predict": 24}


def variant(source: Path, target: Path, **changes: MetadataDetails) -> Path:
    """A copy of a GGUF with other metadata; keys with "__" for "."."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama", endianess=reader.endianess)
    new = {key.replace("__", "."): value for key, value in changes.items()}
    copy_with_new_metadata(reader, writer, new, [])
    return target


@pytest.fixture(scope="module")
def both(
    real_ollama: RealOllama,
    sidecar: Server,
    smollm2: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    folder = tmp_path_factory.mktemp("capable")
    text = MetadataDetails(gguf.GGUFValueType.STRING, JINJA)
    mean = MetadataDetails(gguf.GGUFValueType.UINT32, 1)
    files = {
        "able": variant(smollm2, folder / "able.gguf", tokenizer__chat_template=text),
        "embedder": variant(smollm2, folder / "embedder.gguf", llama__pooling_type=mean),
    }
    for name, file in files.items():
        servers.create(real_ollama, name, file, parameters={"num_thread": 1})
        blob = real_ollama.blob(name)
        ModelStore(sidecar.home / "data/ollama-spec/models").put(
            ModelRecord(
                name=name,
                target=WeightFile(path=blob, size=blob.stat().st_size),
                parameters={"num_thread": 1},
            )
        )
    with (
        httpx.Client(base_url=real_ollama.url, trust_env=False, timeout=120) as theirs,
        httpx.Client(base_url=sidecar.url, trust_env=False, timeout=120) as ours,
    ):
        yield theirs, ours
        for name in files:
            for http in (ours, theirs):
                http.request("DELETE", "/api/delete", json={"model": name})


def cases() -> list[Case]:
    known = len(CASES)
    for route, base in (
        ("/api/chat", {"messages": HI, "options": OPTIONS}),
        ("/v1/chat/completions", {"messages": HI, "temperature": 0, "max_tokens": 24}),
        ("/v1/messages", {"messages": HI, "temperature": 0, "max_tokens": 24}),
        ("/v1/responses", {"input": HI, "temperature": 0, "max_output_tokens": 24}),
    ):
        for stream in (True, False):
            asked: dict[str, Any] = {"model": "able", "stream": stream, **base}
            tool: Any = TOOL
            if route == "/v1/messages":
                tool = {"name": "weather", "input_schema": TOOL["function"]["parameters"]}  # type: ignore[index]
            if route == "/v1/responses":
                tool = {"type": "function", **TOOL["function"]}  # type: ignore[dict-item]
            how = "stream" if stream else "once"
            post(route, f"able {how}", asked)
            # /v1/messages counts the bytes of a schema, so it is sent as client libraries send it.
            whole = {**asked, "tools": [tool]}
            post(route, f"able tools {how}", json.dumps(whole, separators=(",", ":")).encode())
    for name, change in {
        "no thought": {"think": False},
        "low": {"think": "low"},
        "high": {"think": "high", "stream": False},
        "a past call": {"messages": PAST, "tools": [TOOL]},
        "a past call without tools": {"messages": PAST, "stream": False},
        "json and a thought": {"format": "json", "stream": False},
        "render": {"_debug_render_only": True, "messages": PAST, "tools": [TOOL]},
    }.items():
        post(
            "/api/chat",
            f"able {name}",
            {"model": "able", "messages": HI, "options": OPTIONS, **change},
        )
    generate = {"model": "able", "prompt": "Say hi", "options": OPTIONS}
    for name, change in {"": {}, "off": {"think": False}, "once": {"stream": False}}.items():
        post("/api/generate", f"able thought {name}", {**generate, **change})
    for name, change in {
        "effort": {"reasoning_effort": "low"},
        "none": {"reasoning_effort": "none"},
    }.items():
        post(
            "/v1/chat/completions",
            f"able {name}",
            {"model": "able", "messages": HI, "temperature": 0, "max_tokens": 12, **change},
        )
    post("/api/show", "able", {"model": "able"})
    for route, key in (
        ("/api/embed", "input"),
        ("/v1/embeddings", "input"),
        ("/api/embeddings", "prompt"),
    ):
        post(route, "embedder one", {"model": "embedder", key: "Hello"})
    for name, change in {
        "many": {"input": ["Hello", "", "world " * 40]},
        "short": {"input": "Hello", "dimensions": 16},
        "too long": {"input": "word " * 9000, "truncate": False},
        "cut": {"input": "word " * 9000},
    }.items():
        post("/api/embed", f"embedder {name}", {"model": "embedder", **change})
    post("/api/chat", "embedder", {"model": "embedder", "messages": HI})
    post("/api/generate", "embedder", {"model": "embedder", "prompt": "x"})
    post(
        "/v1/embeddings",
        "embedder base64",
        {"model": "embedder", "input": "a", "encoding_format": "base64"},
    )
    mine = CASES[known:]
    del CASES[known:]
    return mine


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_same_answer(case: Case, both: tuple[httpx.Client, httpx.Client]) -> None:
    theirs, ours = (ask(http, case) for http in both)
    found = differences(theirs, ours)
    assert not found, "\n".join(found[:6])


def test_the_vectors_are_ollamas(both: tuple[httpx.Client, httpx.Client]) -> None:
    asked = {"model": "embedder", "input": ["Hello there", "something else"]}
    theirs, ours = (http.post("/api/embed", json=asked).json()["embeddings"] for http in both)
    assert numpy.allclose(theirs, ours, atol=1e-6)
    assert numpy.allclose(numpy.linalg.norm(ours, axis=1), 1, atol=1e-5)
    assert not numpy.allclose(ours[0], ours[1], atol=1e-2)
