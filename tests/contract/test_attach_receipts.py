"""Receipts made from a runner's trace, and the launcher's command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ollama_spec.runner import attach_launcher, attach_receipts


def line(accepted: int, drafts: list[int], *verdicts: tuple[str, float], **more: Any) -> str:
    places = [{"verdict": verdict, "log_ratio": ratio} for verdict, ratio in verdicts]
    return json.dumps(
        {"replay": False, "relaxed": True, "drafts": drafts, "n_accepted": accepted,
         "positions": places, **more}
    ) + "\n"  # fmt: skip


def test_only_whole_rounds_since_the_mark_count(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    trace.write_text(line(1, [7], ("match", 0.0)))
    mark = attach_receipts.size(trace)
    with trace.open("a") as stream:
        stream.write(line(2, [1, 2, 3], ("match", 0.0), ("relaxed", -0.5), ("strict", 0.0)))
        stream.write(line(2, [1, 2], ("match", 0.0), replay=True))
        stream.write(line(0, [4], ("strict", 0.0)))
        stream.write('{"replay": fal')
    spec = attach_receipts.receipt(attach_receipts.rounds_since(trace, mark), "b1")
    assert spec == {
        "mode": "relaxed", "lossless": False, "drafted": 4, "accepted": 2, "relaxed": 1,
        "acceptance_length": 2.0, "regret_nats": 0.5, "build": "b1",
    }  # fmt: skip


def test_ollamas_bytes_stay_and_the_receipt_is_added() -> None:
    given = b'{"model":"m","done":true,"eval_count":3}\n'
    told = attach_receipts.with_receipt(given, {"mode": "strict"})
    assert told == b'{"model":"m","done":true,"eval_count":3,"spec":{"mode":"strict"}}\n'
    assert attach_receipts.with_receipt(b"not json\n", {}) == b"not json\n"


def test_the_launcher_adds_flags_to_the_models_it_knows() -> None:
    settings = {"runner": "/r/llama-server", "models": {"/b/one": ["--spec-draft-n-max", "3"]}}
    known = attach_launcher.command(["--model", "/b/one", "--port", "1"], settings)
    assert known == [
        "/r/llama-server", "--model", "/b/one", "--port", "1", "--spec-draft-n-max", "3",
    ]  # fmt: skip
    assert attach_launcher.command(["--model", "/b/two"], settings)[1:] == ["--model", "/b/two"]
    assert attach_launcher.command(["--list-devices"], settings)[1:] == ["--list-devices"]
