"""A sidecar in this event loop with the fake llama-server below it, and what tests ask of both."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from gguf import GGUFWriter

from ollama_spec.config import Config
from ollama_spec.profiles import Profile, WeightFile
from ollama_spec.runner import daemon
from ollama_spec.store import ModelRecord, ModelStore

HELP = """\
-m,    --model FNAME                    model path
-c,    --ctx-size N                     context
-np,   --parallel N                     slots
-b,    --batch-size N                   batch
-ub,   --ubatch-size N                  micro batch
-ngl,  --gpu-layers N                   layers
-t,    --threads N                      threads
--host HOST                             ip address, or bind to an UNIX socket if it ends with .sock
--port PORT                             port
--offline                               offline
--ui,  --webui, --no-ui, --no-webui     web interface
--context-shift, --no-context-shift     shift
--keep N                                keep
--mmproj FILE                           projector
-lm,   --load-mode MODE                 model loading mode (default: auto)
--spec-type none,draft-simple,draft-eagle3,draft-mtp,draft-dflash,ngram-simple
                                        kinds of speculative decoding
--spec-draft-n-max N                    draft at most
--spec-draft-n-min N                    draft at least
--spec-draft-p-min, --draft-p-min P     least probability
--spec-draft-model, -md, --model-draft FNAME
                                        drafter
--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max
"""
PATCHED_HELP = HELP + "".join(
    f"--spec-draft-{name} N                  ours\n"
    for name in (
        "relaxed-top-n", "relaxed-ratio", "relaxed-delta", "relaxed-scope", "relaxed-window",
        "relaxed-budget", "skip-streak", "skip-cooldown", "adaptive", "preset",
    )
) + "--specprefill                           ours\n"  # fmt: skip

THINKING = "{% if tools %}tools{% endif %}<think></think>{{ messages }}"


def tiny_gguf(path: Path, *, template: str | None = "{{ messages }}", arch: str = "llama") -> Path:
    """A GGUF header with one small tensor: enough for everything but running it."""
    import numpy

    writer = GGUFWriter(path, arch)
    writer.add_context_length(8192)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_file_type(2)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["a", "b", "c"])
    if template is not None:
        writer.add_chat_template(template)
    writer.add_tensor("token_embd.weight", numpy.zeros((3, 32), dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def chat_steps(*pieces: str, reason: str = "stop", **timings: Any) -> list[dict[str, Any]]:
    """What llama-server streams for a chat answer made of `pieces`."""
    steps: list[dict[str, Any]] = [_delta({"role": "assistant", "content": None})]
    steps += [_delta({"content": piece}) for piece in pieces]
    final = _delta({})
    final["data"]["choices"][0]["finish_reason"] = reason
    counts = {"cache_n": 2, "prompt_n": 5, "prompt_ms": 1.5, "predicted_n": len(pieces)}
    final["data"]["timings"] = {**counts, "predicted_ms": 3.0, **timings}
    return [*steps, final, {"raw": "data: [DONE]\n\n"}]


def _delta(delta: dict[str, Any]) -> dict[str, Any]:
    return {"data": {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}}


def delta(**fields: Any) -> dict[str, Any]:
    return _delta(fields)


class FakeRunner:
    """Folder, script and event log of the fake."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        source = Path(__file__).with_name("llama_server.py").read_text()
        self.path = folder / "llama-server"
        self.path.write_text(f"#!{sys.executable} -IS\n{source}")
        self.path.chmod(0o755)
        self.rules: dict[str, Any] = {"help": HELP}
        self.script(steps=chat_steps("Hel", "lo"))

    def script(self, **rules: Any) -> None:
        self.rules |= rules
        (self.folder / "script.json").write_text(json.dumps(self.rules))

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        path = self.folder / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        found = [json.loads(line) for line in lines]
        return [item for item in found if kind in (None, item["event"])]

    def bodies(self, path: str = "/v1/chat/completions") -> list[dict[str, Any]]:
        return [item["body"] for item in self.events("request") if item["path"] == path]

    async def wait_for(self, kind: str, count: int = 1, limit: float = 5) -> float:
        """Seconds until the fake has noted `count` events of a kind."""
        started = time.monotonic()
        while len(self.events(kind)) < count:
            assert time.monotonic() - started < limit, f"no {kind}: {self.events()}"
            await asyncio.sleep(0.01)
        return time.monotonic() - started


class Sidecar:
    def __init__(self, url: str, session: aiohttp.ClientSession, fake: FakeRunner) -> None:
        self.url, self.session, self.fake = url, session, fake
        self.port = int(url.rsplit(":", 1)[1])

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, list[Any]]:
        """Status and the JSON lines of the answer."""
        async with self.session.post(self.url + path, json=body, headers=headers) as response:
            text = await response.text()
            return response.status, [json.loads(line) for line in text.splitlines() if line]

    async def chat(self, **body: Any) -> tuple[int, list[Any]]:
        question = [{"role": "user", "content": "hi"}]
        return await self.post("/api/chat", {"model": "pair", "messages": question, **body})

    async def get(self, path: str) -> Any:
        async with self.session.get(self.url + path) as response:
            return json.loads(await response.read())


def add_model(folder: Path, name: str = "pair", **fields: Any) -> ModelRecord:
    template = fields.pop("template_text", "{{ messages }}")
    file = tiny_gguf(folder / f"{name.replace('/', '_').replace(':', '_')}.gguf", template=template)
    weights = WeightFile(path=file, size=file.stat().st_size)
    fields.setdefault("drafter", weights)
    fields.setdefault("profile", Profile())
    record = ModelRecord(name=name, target=weights, **fields)
    ModelStore().put(record)
    return record


@asynccontextmanager
async def sidecar(fake: FakeRunner, **settings: Any) -> AsyncIterator[Sidecar]:
    values = {"runner": str(fake.path), "upstream": "", "load_timeout": 20, **settings}
    listener = daemon.listen("127.0.0.1:0")
    async with daemon.running(Config(**values), listener) as url, aiohttp.ClientSession() as client:
        yield Sidecar(url, client, fake)
    listener.close()


def raw_request(port: int, body: Any, path: str = "/api/chat") -> socket.socket:
    """A connected socket with the request sent."""
    data = json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        + data
    )
    return connection
