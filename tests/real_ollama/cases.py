"""The requests that both the real Ollama and our sidecar get: good, odd and bad, over all routes.

Every model name here is `smol`, which both serve with the same blob and the same llama-server, or
one that neither has. Sampling is greedy, so the texts must be equal too.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

import zstandard


@dataclass(frozen=True)
class Case:
    name: str
    method: str
    path: str
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)


CASES: list[Case] = []
GREEDY = {"temperature": 0, "num_predict": 6}
HI = [{"role": "user", "content": "Say hi"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "d",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 16).decode()


def post(path: str, name: str, body: Any, headers: dict[str, str] | None = None) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    CASES.append(Case(f"{path} {name}", "POST", path, data, headers or {}))


def get(path: str, method: str = "GET", headers: dict[str, str] | None = None) -> None:
    shown = " ".join(f"{key}={value}" for key, value in (headers or {}).items())
    CASES.append(Case(f"{method} {path} {shown}".strip(), method, path, None, headers or {}))


def _each(path: str, base: dict[str, Any], table: dict[str, dict[str, Any]]) -> None:
    for name, change in table.items():
        post(path, name, {**base, **change})


def _broken(path: str) -> None:
    """What Go's decoder says about bodies that are no request."""
    for name, body in {
        "empty body": b"",
        "not json": b"hello",
        "half an object": b'{"model":"smol"',
        "an array": b"[]",
        "a string": b'"smol"',
        "null": b"null",
        "trailing comma": b'{"model":"smol",}',
        "no model": b"{}",
        "model is a number": b'{"model":1}',
        "unknown model": b'{"model":"nosuch","prompt":"a","input":"a","max_tokens":5,'
        b'"messages":[{"role":"user","content":"a"}]}',
        "bad model name": b'{"model":"../x","prompt":"a","input":"a","max_tokens":5,'
        b'"messages":[{"role":"user","content":"a"}]}',
    }.items():
        post(path, name, body)


# --- liveness, lists -------------------------------------------------------------------------
for verb in ("GET", "HEAD"):
    for address in ("/", "/api/version", "/api/tags"):
        get(address, verb)
get("/api/ps")
get("/api/status")
get("/v1/models")
get("/v1/models/smol")
get("/v1/models/nosuch")
get("/nosuch")
get("/api/nosuch")
get("/api/chat")
get("/api/generate")
get("/v1/chat/completions")
get("/api/tags", "POST")
get("/api/version", "GET", {"Origin": "http://localhost:3000"})
get("/api/version", "GET", {"Origin": "http://evil.example"})
get("/api/version", "GET", {"Host": "evil.example"})
get("/api/version", "GET", {"Host": "box.local"})
get("/api/chat", "OPTIONS", {"Origin": "http://localhost", "Access-Control-Request-Method": "POST"})

# --- /api/chat -------------------------------------------------------------------------------
CHAT = {"model": "smol", "messages": HI, "options": GREEDY}
_broken("/api/chat")
_each(
    "/api/chat",
    CHAT,
    {
        "stream": {},
        "once": {"stream": False},
        "null stream": {"stream": None},
        "MODEL in capitals": {"model": "SMOL:LATEST", "stream": False},
        "full name": {"model": "registry.ollama.ai/library/smol:latest", "stream": False},
        "local suffix": {"model": "smol:local", "stream": False},
        "other tag": {"model": "smol:7b"},
        "empty model": {"model": ""},
        "load": {"messages": []},
        "no messages": {"messages": None},
        "system": {"messages": [{"role": "system", "content": "Be short."}, *HI]},
        "upper-case role": {"messages": [{"role": "USER", "content": "Say hi"}], "stream": False},
        "odd role": {"messages": [{"role": "robot", "content": "Say hi"}], "stream": False},
        "no content": {"messages": [{"role": "user"}], "stream": False},
        "assistant last": {
            "messages": [*HI, {"role": "assistant", "content": "Hello"}],
            "stream": False,
        },
        "conversation": {
            "messages": [*HI, {"role": "assistant", "content": "Hello"}, *HI],
            "stream": False,
        },
        "messages is a string": {"messages": "hi"},
        "message is a string": {"messages": ["hi"]},
        "content is a number": {"messages": [{"role": "user", "content": 1}]},
        "content is a list": {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        "stream is a string": {"stream": "yes"},
        "options is a list": {"options": []},
        "num_predict is a string": {"options": {"num_predict": "6"}},
        "temperature is a string": {"options": {"temperature": "0"}},
        "stop is a string": {"options": {"stop": "a"}},
        "stop is a number list": {"options": {"stop": [1]}},
        "use_mmap is a number": {"options": {"use_mmap": 1}},
        "unknown option": {"options": {**GREEDY, "nosuch": 1}, "stream": False},
        "float for int": {"options": {"temperature": 0, "num_predict": 3.7}, "stream": False},
        "null option": {"options": {**GREEDY, "top_k": None}, "stream": False},
        "num_predict 0": {"options": {"temperature": 0, "num_predict": 0}},
        "num_predict 1": {"options": {"temperature": 0, "num_predict": 1}},
        "stop text": {"options": {**GREEDY, "num_predict": 20, "stop": ["make", "."]}},
        "seed and sampling": {
            "options": {"seed": 7, "temperature": 0.9, "top_k": 5, "top_p": 0.8, "num_predict": 6}
        },
        "think true": {"think": True},
        "think false": {"think": False, "stream": False},
        "think high": {"think": "high"},
        "think odd": {"think": "very"},
        "think number": {"think": 1},
        "tools": {"tools": [TOOL]},
        "tools empty": {"tools": [], "stream": False},
        "tools is an object": {"tools": {}},
        "format json": {"format": "json", "options": {**GREEDY, "num_predict": 12}},
        "format schema": {"format": SCHEMA, "options": {**GREEDY, "num_predict": 12}},
        "format empty": {"format": "", "stream": False},
        "format odd": {"format": "xml"},
        "format number": {"format": 5},
        "logprobs": {"logprobs": True, "top_logprobs": 2},
        "logprobs alone": {"logprobs": True, "stream": False},
        "top_logprobs 21": {"logprobs": True, "top_logprobs": 21},
        "top_logprobs -1": {"top_logprobs": -1},
        "keep_alive number": {"keep_alive": 60, "stream": False},
        "keep_alive text": {"keep_alive": "1m", "stream": False},
        "keep_alive no unit": {"keep_alive": "300"},
        "keep_alive odd": {"keep_alive": "soon"},
        "keep_alive bool": {"keep_alive": True},
        "keep_alive list": {"keep_alive": []},
        "debug": {"_debug_render_only": True},
        "image": {"messages": [{"role": "user", "content": "see", "images": [PNG]}]},
        "image not base64": {"messages": [{"role": "user", "content": "x", "images": ["@@"]}]},
        "truncate false": {"truncate": False, "stream": False},
        "non-ASCII": {
            "messages": [{"role": "user", "content": "Grüße 😀 <b>&</b>"}],
            "stream": False,
        },
        "empty content": {"messages": [{"role": "user", "content": ""}], "stream": False},
        "unknown key": {"nosuch": {"a": 1}, "stream": False},
    },
)
post("/api/chat", "Model capitalised", {"Model": "smol", "Messages": HI, "Options": GREEDY})
post("/api/chat", "last model wins", b'{"model":"nosuch","model":"smol","messages":[]}')

# --- /api/generate ---------------------------------------------------------------------------
GENERATE = {"model": "smol", "prompt": "Say hi", "options": GREEDY}
_broken("/api/generate")
_each(
    "/api/generate",
    GENERATE,
    {
        "stream": {},
        "once": {"stream": False},
        "load": {"prompt": ""},
        "raw": {"raw": True, "prompt": "One two three", "stream": False},
        "raw with system": {"raw": True, "system": "x"},
        "raw with template": {"raw": True, "template": "x"},
        "raw with context": {"raw": True, "context": [1]},
        "system": {"system": "Be short.", "stream": False},
        "template": {"template": "{{ .Prompt }}", "stream": False},
        "suffix": {"suffix": "x"},
        "context": {"context": [1, 2, 3], "stream": False},
        "context is a string": {"context": "x"},
        "prompt is a number": {"prompt": 1},
        "think true": {"think": True},
        "think false": {"think": False, "stream": False},
        "think odd": {"think": "very"},
        "format json": {"format": "json", "options": {**GREEDY, "num_predict": 12}},
        "format schema": {"format": SCHEMA, "stream": False},
        "format odd": {"format": "xml"},
        "logprobs": {"logprobs": True, "top_logprobs": 2},
        "top_logprobs 21": {"top_logprobs": 21},
        "stop text": {"options": {**GREEDY, "num_predict": 20, "stop": ["make"]}},
        "num_predict 0": {"options": {"temperature": 0, "num_predict": 0}, "stream": False},
        "wrong option": {"options": {"num_ctx": "big"}},
        "keep_alive odd": {"keep_alive": "300"},
        "debug": {"_debug_render_only": True},
        "image": {"images": [PNG]},
        "image not base64": {"images": ["@@"]},
        "other tag": {"model": "smol:7b"},
        "empty model": {"model": ""},
    },
)

# --- embeddings ------------------------------------------------------------------------------
EMBED = {"model": "smol", "input": "hello"}
_broken("/api/embed")
_each(
    "/api/embed",
    EMBED,
    {
        "text": {},
        "list": {"input": ["a", "b"]},
        "empty": {"input": ""},
        "none": {"input": None},
        "empty list": {"input": []},
        "number": {"input": 5},
        "object": {"input": {"a": 1}},
        "list with a number": {"input": ["a", 1]},
        "dimensions": {"dimensions": 8},
        "truncate is a string": {"truncate": "x"},
        "wrong option": {"options": {"num_thread": "x"}},
    },
)
_broken("/api/embeddings")
_each(
    "/api/embeddings",
    {"model": "smol", "prompt": "hello"},
    {"text": {}, "empty": {"prompt": ""}, "number": {"prompt": 5}},
)
_broken("/v1/embeddings")
_each(
    "/v1/embeddings",
    EMBED,
    {
        "text": {},
        "base64": {"encoding_format": "base64"},
        "odd format": {"encoding_format": "hex"},
        "empty list": {"input": []},
        "none": {"input": None},
    },
)

# --- /v1/chat/completions --------------------------------------------------------------------
OPENAI = {"model": "smol", "messages": HI, "temperature": 0, "max_tokens": 6}
_broken("/v1/chat/completions")
_each(
    "/v1/chat/completions",
    OPENAI,
    {
        "once": {},
        "stream": {"stream": True},
        "usage": {"stream": True, "stream_options": {"include_usage": True}},
        "no messages": {"messages": []},
        "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]},
        "odd part": {"messages": [{"role": "user", "content": [{"type": "x"}]}]},
        "content number": {"messages": [{"role": "user", "content": 1}]},
        "image url": {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}],
                }
            ]
        },
        "json object": {"response_format": {"type": "json_object"}, "max_tokens": 12},
        "json schema": {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": SCHEMA},
            },
            "max_tokens": 12,
        },
        "stop": {"stop": "make", "max_tokens": 20},
        "stop list": {"stop": ["make"], "max_tokens": 20},
        "reasoning none": {"reasoning_effort": "none"},
        "reasoning high": {"reasoning_effort": "high"},
        "reasoning odd": {"reasoning_effort": "much"},
        "tools": {"tools": [TOOL]},
        "logprobs": {"logprobs": True, "top_logprobs": 1},
        "logprobs stream": {"logprobs": True, "top_logprobs": 1, "stream": True},
        "extra keys": {"n": 3, "tool_choice": "auto", "user": "x", "max_completion_tokens": 1},
        "max_tokens text": {"max_tokens": "6"},
        "temperature text": {"temperature": "0"},
        "debug": {"_debug_render_only": True},
    },
)
post(
    "/v1/chat/completions",
    "zstd",
    zstandard.compress(json.dumps(OPENAI).encode()),
    {"Content-Encoding": "zstd"},
)
post("/v1/chat/completions", "bad zstd", b"no zstd at all", {"Content-Encoding": "zstd"})

# --- /v1/completions -------------------------------------------------------------------------
TEXT = {"model": "smol", "prompt": "Say hi", "temperature": 0, "max_tokens": 6}
_broken("/v1/completions")
_each(
    "/v1/completions",
    TEXT,
    {
        "once": {},
        "stream": {"stream": True},
        "usage": {"stream": True, "stream_options": {"include_usage": True}},
        "empty prompt": {"prompt": ""},
        "list prompt": {"prompt": ["a"]},
        "stop": {"stop": ["make"], "max_tokens": 20},
        "stop odd": {"stop": 5},
        "suffix": {"suffix": "x"},
        "logprobs": {"logprobs": 2},
    },
)

# --- /v1/responses ---------------------------------------------------------------------------
RESPONSES = {"model": "smol", "input": "Say hi", "temperature": 0, "max_output_tokens": 6}
_broken("/v1/responses")
_each(
    "/v1/responses",
    RESPONSES,
    {
        "once": {},
        "stream": {"stream": True},
        "instructions": {"instructions": "Be short."},
        "items": {"input": [{"role": "user", "content": "Say hi"}]},
        "item parts": {
            "input": [
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "Say hi"}],
                }
            ]
        },
        "odd item": {"input": [{"type": "nosuch"}]},
        "odd part": {
            "input": [{"type": "message", "role": "user", "content": [{"type": "nosuch"}]}]
        },
        "file part": {
            "input": [{"type": "message", "role": "user", "content": [{"type": "input_file"}]}]
        },
        "history": {
            "input": [
                {"role": "user", "content": "Say hi"},
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "Hello"}],
                },
                {"role": "user", "content": "Again"},
            ]
        },
        "tools": {"tools": [{"type": "function", "name": "f", "parameters": {}}]},
        "effort high": {"reasoning": {"effort": "high"}},
        "effort odd": {"reasoning": {"effort": "much"}},
        "schema": {
            "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}},
            "max_output_tokens": 12,
        },
        "empty input": {"input": ""},
        "number input": {"input": 5},
    },
)

# --- /v1/messages ----------------------------------------------------------------------------
ANTHROPIC = {"model": "smol", "messages": HI, "temperature": 0, "max_tokens": 6}
_broken("/v1/messages")
_each(
    "/v1/messages",
    ANTHROPIC,
    {
        "once": {},
        "stream": {"stream": True},
        "system": {"system": "Be short."},
        "system blocks": {"system": [{"type": "text", "text": "Be short."}]},
        "blocks": {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]},
        "no max_tokens": {"max_tokens": None},
        "max_tokens 0": {"max_tokens": 0},
        "no messages": {"messages": []},
        "stop": {"stop_sequences": ["make"], "max_tokens": 20},
        "thinking": {"thinking": {"type": "enabled", "budget_tokens": 100}},
        "tools": {"tools": [{"name": "f", "input_schema": {"type": "object"}}]},
        "top_k": {"top_k": 3, "top_p": 0.5},
        "tool round": {
            "messages": [
                {"role": "user", "content": "Say hi"},
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}],
                },
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}],
                },
            ]
        },
        "content number": {"messages": [{"role": "user", "content": 5}]},
        "odd block": {"messages": [{"role": "user", "content": [{"type": "nosuch"}]}]},
        "image url": {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "image", "source": {"type": "url", "url": "http://x"}}],
                }
            ]
        },
    },
)

# --- show, copy, delete, pull, push, create, blobs -------------------------------------------
_broken("/api/show")
post("/api/show", "model", {"model": "smol"})
post("/api/show", "name", {"name": "smol"})
post("/api/show", "verbose", {"model": "smol", "verbose": True})
post("/api/show", "system", {"model": "smol", "system": "x"})
_broken("/api/pull")
_broken("/api/push")
_broken("/api/create")
_broken("/api/copy")
post("/api/copy", "unknown", {"source": "nosuch", "destination": "other"})
post("/api/copy", "bad source", {"source": "../x", "destination": "other"})
post("/api/copy", "bad destination", {"source": "nosuch", "destination": "../x"})
post("/api/create", "neither", {"model": "other"})
post("/api/create", "bad path", {"model": "other", "files": {"../x": "sha256:" + "0" * 64}})
post("/api/create", "no digest", {"model": "other", "files": {"x.gguf": ""}})
CASES.append(Case("delete unknown", "DELETE", "/api/delete", b'{"model":"nosuch"}'))
CASES.append(Case("delete empty", "DELETE", "/api/delete", b""))
CASES.append(Case("delete bad name", "DELETE", "/api/delete", b'{"model":"../x"}'))
get("/api/blobs/sha256:" + "0" * 64, "HEAD")
get("/api/blobs/nonsense", "HEAD")
post("/api/blobs/sha256:" + "0" * 64, "wrong digest", b"abc")
post("/api/blobs/nonsense", "bad digest", b"abc")
post("/api/signout", "not signed in", b"")

# --- unloading comes last: it empties both -----------------------------------------------------
post("/api/generate", "unload", {"model": "smol", "prompt": "", "keep_alive": 0})
post("/api/chat", "unload", {"model": "smol", "messages": [], "keep_alive": "0s"})
