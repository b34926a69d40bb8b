"""An unchanged Ollama client and the real runner: answers, receipts, formats, stops."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import ollama
import openai
import pytest

from .conftest import MODEL, Served

pytestmark = [pytest.mark.real_runner, pytest.mark.timeout(600)]

PROMPTS = [
    "What is the capital of France?",
    "Count from one to five.",
    "Name three colours.",
    "Write a line about the sea.",
]


def ask(served: Served, prompt: str, mode: str | None = None, **body: Any) -> dict[str, Any]:
    options = {"num_predict": 24, **body.pop("options", {})}
    question = {"model": MODEL, "messages": [{"role": "user", "content": prompt}]}
    headers = {"X-Spec-Mode": mode} if mode else {}
    body = {**question, "stream": False, "options": options, **body}
    reply = httpx.post(f"{served.url}/api/chat", json=body, headers=headers, timeout=590)
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


def test_the_official_client_streams_an_answer(served: Served) -> None:
    messages = [{"role": "user", "content": PROMPTS[0]}]
    options = {"num_predict": 24}
    parts = list(served.client.chat(MODEL, messages=messages, options=options, stream=True))
    whole = served.client.chat(MODEL, messages=messages, options=options)
    assert "".join(part.message.content or "" for part in parts) == whole.message.content
    assert whole.message.content
    assert parts[-1].done
    assert parts[-1].eval_count == whole.eval_count
    assert whole.done_reason in ("stop", "length")


def test_the_receipt_tells_of_drafting(served: Served) -> None:
    spec = ask(served, PROMPTS[1], options={"num_predict": 48})["spec"]
    assert spec["mode"] == "strict"
    assert spec["lossless"] is True
    assert spec["drafted"] >= spec["accepted"] > 0
    assert spec["acceptance_length"] > 1


def test_case_20_drafting_does_not_change_the_text(served: Served) -> None:
    for prompt in PROMPTS:
        with_drafts = ask(served, prompt, "strict")
        without = ask(served, prompt, "off")
        assert without["spec"]["drafted"] == 0
        assert with_drafts["message"]["content"] == without["message"]["content"]
        assert with_drafts["eval_count"] == without["eval_count"]


def test_relaxed_by_profile_and_its_receipt(served: Served) -> None:
    answers = [ask(served, prompt, model="smol:relaxed")["spec"] for prompt in PROMPTS[:2]]
    assert all(spec["mode"] == "relaxed" for spec in answers)
    assert sum(spec["relaxed"] for spec in answers) > 0
    assert not all(spec["lossless"] for spec in answers)
    strict = ask(served, PROMPTS[0], "strict", model="smol:relaxed")
    assert strict["spec"]["relaxed"] == 0


def test_case_19_a_stop_string_ends_text_and_count_together(served: Served) -> None:
    full = ask(served, PROMPTS[3], options={"num_predict": 40})
    text = full["message"]["content"]
    stop = text[len(text) // 2 :].split()[0]
    cut = ask(served, PROMPTS[3], options={"num_predict": 40, "stop": [stop]})
    assert cut["message"]["content"] == text[: text.index(stop)]
    assert cut["done_reason"] == "stop"
    assert 0 < cut["eval_count"] < full["eval_count"]


def test_case_24_schemas_hold_and_bad_ones_are_refused(served: Served) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "size": {"enum": [1, 2]}},
        "required": ["city", "size"],
    }
    for mode in ("strict", "relaxed"):
        for seed in range(3):
            options = {"num_predict": 80, "temperature": 1, "seed": seed}
            answer = ask(served, "Name a city as JSON.", mode, format=schema, options=options)
            if answer["done_reason"] == "stop":
                value = json.loads(answer["message"]["content"])
                assert set(value) == {"city", "size"}
                assert value["size"] in (1, 2)
    bad: Any = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(["}}}
    with pytest.raises(ollama.ResponseError) as refused:
        served.client.chat(MODEL, messages=[{"role": "user", "content": "x"}], format=bad)
    assert refused.value.status_code == 400
    assert "pattern" in refused.value.error.lower()
    assert ask(served, PROMPTS[0])["message"]["content"]


def test_generate_with_context_and_raw(served: Served) -> None:
    first = served.client.generate(MODEL, PROMPTS[0], options={"num_predict": 8})
    assert first.context
    again = served.client.generate(
        MODEL, "And of Spain?", context=first.context, options={"num_predict": 8}
    )
    assert again.context and again.context[: len(first.context)] == first.context
    raw = served.client.generate(MODEL, "Once upon", raw=True, options={"num_predict": 4})
    assert raw.context is None
    assert raw.eval_count == 4


def test_lists_and_show(served: Served) -> None:
    client = served.client
    client.generate(MODEL)  # load
    assert {item.model for item in client.list().models} == {"smol:latest", "smol:relaxed"}
    (running,) = client.ps().models
    assert running.name == "smol:latest"
    assert running.context_length == 2048
    assert (running.size or 0) > 90_000_000
    shown = client.show(MODEL)
    assert shown.modelinfo and shown.modelinfo["general.architecture"] == "llama"
    assert shown.details and shown.details.quantization_level == "Q4_1"
    assert "completion" in (shown.capabilities or [])


def test_an_openai_client(served: Served) -> None:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none") as client:
        reply = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": PROMPTS[0]}],
            max_tokens=8,
            temperature=0,
        )
    assert reply.choices[0].message.content
    assert reply.usage and reply.usage.completion_tokens == 8
    assert reply.choices[0].finish_reason == "length"


def test_sixteen_streams_at_once_are_not_mixed(served: Served) -> None:
    """Done-when 5: each answer equals the one the same question gets alone."""

    def stream(number: int) -> str:
        messages = [{"role": "user", "content": f"Repeat the number {number * 37}."}]
        options = {"num_predict": 10}
        parts = served.client.chat(MODEL, messages=messages, options=options, stream=True)
        return "".join(part.message.content or "" for part in parts)

    alone = [stream(number) for number in range(16)]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(stream, range(16)))
    assert together == alone
    assert len(set(alone)) > 8
