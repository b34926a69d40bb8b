"""`verify --render`: our prompt and Ollama's, for a corpus of conversations."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx
from real_ollama import servers
from real_ollama.conftest import put_model
from real_ollama.servers import RealOllama, Server


def verify(
    sidecar: Server, ollama: RealOllama, model: str, *flags: str
) -> subprocess.CompletedProcess[str]:
    env = {**sidecar.env, "OLLAMA_SPEC_HOST": sidecar.address, "OLLAMA_SPEC_UPSTREAM": ollama.url}
    argv = [sys.executable, "-m", "ollama_spec", "verify", model, "--render", *flags]
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)


def test_every_prompt_of_a_native_model_is_ollamas(
    sidecar: Server, real_ollama: RealOllama
) -> None:
    done = verify(sidecar, real_ollama, "smol", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)["renderings"]
    assert len(found) >= 15
    assert all(item["same"] for item in found)
    assert "<|im_start|>user\nSay hi.<|im_end|>" in found[0]["ours"]
    refused = [item["title"] for item in found if item["ours"].startswith("refused")]
    assert "a tool" in refused, "SmolLM2's template has no tools"


def test_a_difference_is_shown_and_ends_with_1(
    sidecar: Server, real_ollama: RealOllama, smollm2: Path
) -> None:
    """Ollama's model has a system text of its own, which our record lacks."""
    servers.create(real_ollama, "pirate", smollm2, system="Speak like a pirate.")
    put_model(sidecar.home, "pirate", real_ollama.blob("smol"))
    try:
        done = verify(sidecar, real_ollama, "pirate")
    finally:
        for server in (sidecar, real_ollama):
            httpx.request("DELETE", f"{server.url}/api/delete", json={"model": "pirate"})
    assert done.returncode == 1
    assert "DIFF  one question" in done.stdout
    assert "-'Speak like a pirate.<|im_end|>\\n'" in done.stdout
    assert "same  system text" in done.stdout
    assert "attach" in done.stderr
