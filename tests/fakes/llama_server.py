"""A scriptable llama-server: a real process on a real socket that fails in the ways we choose.

Only the standard library, so that it starts in a few hundredths of a second. `FAKE_DIR` holds
script.json (read anew for every request) and gets events.jsonl. Script keys, all optional:

  help            text of --help
  start_delay     seconds until /health says ok; start_chatter: log lines meanwhile
  start_exit      {"code": N, "stderr": TEXT}: end at once
  start_exit_above  N: run out of memory when -c is more than that
  ignore_term     true: SIGTERM does nothing
  grandchild      true: start a process that holds stdout open
  headers_delay   seconds before the reply's headers
  status, body    answer this instead of a stream
  steps           [{"data": OBJECT} | {"raw": TEXT} | {"sleep": S} | {"exit": N} | {"close": true}]
  cut             bytes per write; 0: everything in one write
  per_path        {PATH: {any of the above}} for one route
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = os.environ.get("FAKE_DIR", ".")


def script(path: str = "") -> dict[str, Any]:
    try:
        with Path(FOLDER, "script.json").open() as file:
            whole = json.load(file)
    except FileNotFoundError:
        return {}
    return {**whole, **whole.get("per_path", {}).get(path, {})}


def event(kind: str, **facts: Any) -> None:
    line = json.dumps({"event": kind, "at": time.time(), "pid": os.getpid(), **facts})
    with Path(FOLDER, "events.jsonl").open("a") as file:
        file.write(line + "\n")


async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split(b"\r\n")[0].decode().split(" ")[1]
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        body = json.loads(await reader.readexactly(length)) if length else None
        await answer(path, body, head.decode().lower(), reader, writer)
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def answer(path: str, body: Any, head: str, reader: Any, writer: Any) -> None:
    if path == "/health":
        ready = time.monotonic() - BORN >= script().get("start_delay", 0)
        await reply(writer, 200 if ready else 503, {"status": "ok" if ready else "loading"})
        return
    rules = script(path)
    event("request", path=path, body=body, head=head)
    if "status" in rules:
        await reply(writer, rules["status"], rules.get("body", {}))
    elif path == "/tokenize":
        await reply(writer, 200, {"tokens": list(body["content"].encode())})
    elif path == "/detokenize":
        await reply(writer, 200, {"content": bytes(body["tokens"]).decode()})
    elif path == "/apply-template":
        texts = [f"<{item['role']}>{item['content']}" for item in body["messages"]]
        await reply(writer, 200, {"prompt": "".join(texts) + "<assistant>"})
    else:
        await watched(path, rules, reader, writer)


async def reply(writer: Any, status: int, value: Any) -> None:
    data = json.dumps(value).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n"
    writer.write(head.encode() + f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
    await writer.drain()


async def watched(path: str, rules: dict[str, Any], reader: Any, writer: Any) -> None:
    """Stream, and note at once when the client goes away."""
    work = asyncio.ensure_future(stream(rules, writer))
    gone = asyncio.ensure_future(reader.read(1))
    await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
    if not work.done():
        event("closed", path=path)
        work.cancel()
    elif work.exception():
        event("closed", path=path)
    else:
        event("done", path=path)
    gone.cancel()


async def stream(rules: dict[str, Any], writer: Any) -> None:
    await asyncio.sleep(rules.get("headers_delay", 0))
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
    writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
    await writer.drain()
    cut = rules.get("cut")
    pending = b""
    for step in rules.get("steps", []):
        if "sleep" in step:
            pending = await send(writer, pending, cut)
            await asyncio.sleep(step["sleep"])
        elif "exit" in step:
            await send(writer, pending, cut)
            print("error: the fake was told to die", file=sys.stderr, flush=True)
            if step["exit"] < 0:
                os.kill(os.getpid(), -step["exit"])
            os._exit(step["exit"])
        elif "close" in step:
            await send(writer, pending, cut)
            writer.transport.abort()
            return
        else:
            raw = step.get("raw")
            text = raw if raw is not None else f"data: {json.dumps(step['data'])}\n\n"
            pending += text.encode()
            if cut is None:
                pending = await send(writer, pending, None)
    await send(writer, pending, cut)
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def send(writer: Any, data: bytes, cut: int | None) -> bytes:
    size = cut or len(data) or 1
    for start in range(0, len(data), size):
        piece = data[start : start + size]
        writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        await writer.drain()
        if cut:
            await asyncio.sleep(0)
    return b""


async def main(argv: list[str]) -> None:
    rules = script()
    event("start", argv=argv)
    if "start_exit" in rules:
        print(rules["start_exit"]["stderr"], file=sys.stderr, flush=True)
        sys.exit(rules["start_exit"]["code"])
    context = int(argv[argv.index("-c") + 1]) if "-c" in argv else 0
    if context > rules.get("start_exit_above", 2**62):
        print("failed to allocate buffer for kv cache", file=sys.stderr, flush=True)
        sys.exit(1)
    if rules.get("ignore_term"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if rules.get("grandchild"):
        child = subprocess.Popen(["sleep", "60"])
        event("grandchild", child=child.pid)
    address = argv[argv.index("--host") + 1]
    if address.startswith("/"):
        server = await asyncio.start_unix_server(handle, address, limit=2**26)
    else:
        port = int(argv[argv.index("--port") + 1])
        server = await asyncio.start_server(handle, address, port, limit=2**26)
    async with server:
        for number in range(rules.get("start_chatter", 0)):
            print(f"loading part {number}", file=sys.stderr, flush=True)
            await asyncio.sleep(0.1)
        await server.serve_forever()


BORN = time.monotonic()
if __name__ == "__main__":
    if "--help" in sys.argv:
        print(script().get("help", ""))
    elif "--version" in sys.argv:
        print("version: 1 (fake)", file=sys.stderr)
    else:
        asyncio.run(main(sys.argv[1:]))
