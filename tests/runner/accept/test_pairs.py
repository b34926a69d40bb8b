"""Pairs that do not fit, pictures, drafts that are not read twice (CASES 15, 17, 23)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import pytest
from fixtures.vision import picture, write_projector
from fixtures.wired import pair

from ollama_spec.errors import StartFailed

from .conftest import PROMPTS, Server, drafting, drafting_mtp, serve

pytestmark = pytest.mark.real_runner

RELAXED: dict[str, Any] = {"speculative.relaxed_top_n": 5, "ignore_eos": True}


def test_an_assistant_alone_does_not_start(patched_runner: Path) -> None:
    """It needs the target's context (case 15); nothing is served by half a model."""
    with pytest.raises(StartFailed), serve(patched_runner, pair().drafter):
        pass


def test_a_draft_model_of_another_vocabulary_is_left_out(
    patched_runner: Path, smollm2: Path
) -> None:
    """llama-server goes on without it (case 17; our pairing refuses such a pair before)."""
    with serve(patched_runner, smollm2) as plain:
        expected = plain.complete("Once upon a time")["content"]
    with serve(patched_runner, smollm2, *drafting(pair().target)) as server:
        answer = server.complete("Once upon a time", **RELAXED)
    assert answer["content"] == expected
    assert "draft_n" not in answer["timings"]


def test_an_assistant_of_another_vocabulary_cannot_spoil_the_text(
    patched_runner: Path, tmp_path: Path
) -> None:
    """MTP pairs are not compared by upstream (case 17): the target alone must decide, also when
    the rule is relaxed: what is taken keeps the ratio in the target's own logits."""
    target, trace = pair().target, tmp_path / "trace.ndjson"
    other = _shuffled_vocabulary(pair().drafter, tmp_path / "other.gguf")
    with serve(patched_runner, target) as plain:
        expected = [plain.complete(prompt)["content"] for prompt in PROMPTS[:6]]
    with serve(patched_runner, target, *drafting_mtp(other), trace=trace) as server:
        assert [server.complete(prompt)["content"] for prompt in PROMPTS[:6]] == expected
        for prompt in PROMPTS[:6]:
            server.complete(prompt, **RELAXED)
        positions = [p for r in server.rounds() for p in r["positions"]]
    assert all(p["log_ratio"] >= -1.3863 for p in positions)  # log 0.25


def _shuffled_vocabulary(drafter: Path, output: Path) -> Path:
    """The same assistant with the names of its ordinary tokens in reverse order."""
    reader = gguf.GGUFReader(drafter)
    types = reader.fields["tokenizer.ggml.token_type"].contents()
    writer = gguf.GGUFWriter(output, str(reader.fields["general.architecture"].contents()))
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        value, kind = field.contents(), field.types[0]
        if key == "tokenizer.ggml.tokens":
            ordinary = [i for i, kind in enumerate(types) if kind == gguf.TokenType.NORMAL]
            names = list(value)
            for i, j in zip(ordinary, reversed(ordinary), strict=True):
                names[i] = value[j]
            value = names
        if kind == gguf.GGUFValueType.ARRAY:
            writer.add_array(key, value)
        else:
            writer.add_key_value(key, value, kind)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return output


def test_a_picture_between_two_texts(
    patched_runner: Path, smollm2: Path, smollm2_drafter: Path, tmp_path: Path
) -> None:
    """The drafter has no eyes (case 23): the picture is answered, and drafting goes on after it."""
    width = int(gguf.GGUFReader(smollm2).fields["llama.embedding_length"].contents())
    projector = write_projector(tmp_path / "mmproj.gguf", width)
    args = (*drafting(smollm2_drafter), "--mmproj", str(projector))
    with serve(patched_runner, smollm2, *args) as server:
        before = server.complete("The capital of France is", **RELAXED)
        marker = server.client.get("/props").json().get("media_marker", "<__media__>")
        text = f"{marker}\nThis picture shows"
        prompt = {"prompt_string": text, "multimodal_data": [picture()]}
        shown = server.post({"prompt": prompt, **RELAXED})
        assert shown.status_code == 200, shown.text
        assert shown.json()["tokens_predicted"] == 24
        after = server.complete("The capital of France is", **RELAXED)
    assert after["content"] == before["content"]
    assert before["timings"]["draft_n"] > 0
    assert after["timings"]["draft_n"] == before["timings"]["draft_n"]


def test_reused_drafts_are_the_drafts_upstream_would_make(
    stock_runner: Path, patched_runner: Path, smollm2: Path, smollm2_drafter: Path
) -> None:
    """A draft model that does not read its own draft twice must not draft worse for it."""
    counts = []
    for runner in (stock_runner, patched_runner):
        with serve(runner, smollm2, *drafting(smollm2_drafter)) as server:
            timings = [
                _ask(server, prompt)["timings"] for prompt in ("Once upon a time", "To make tea,")
            ]
        counts.append([(t["draft_n"], t["draft_n_accepted"]) for t in timings])
    assert counts[0] == counts[1]


def _ask(server: Server, prompt: str) -> dict[str, Any]:
    return server.complete(prompt, n_predict=48, ignore_eos=True, temperature=0.6)
