"""What the child is asked: options, control, formats, thinking, tools (contract 3, 4, 7.5)."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from fakes.sidecar import (
    PATCHED_HELP,
    THINKING,
    FakeRunner,
    Sidecar,
    add_model,
    chat_steps,
    delta,
    sidecar,
)

from ollama_spec.profiles import AcceptSettings, Profile, SpecSettings


async def test_defaults_are_ollamas(front: Sidecar) -> None:
    await front.chat()
    (body,) = front.fake.bodies()
    wanted = {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.0, "repeat_penalty": 1.0}
    wanted |= {"repeat_last_n": 64, "seed": -1, "n_keep": 4, "n_predict": 40960, "stop": []}
    assert {key: body[key] for key in wanted} == wanted
    assert body["cache_prompt"] is True


async def test_precedence_and_unknown_options(fake: FakeRunner, tmp_path: Path) -> None:
    add_model(tmp_path, parameters={"temperature": 0.1, "top_k": 7, "stop": ["a"]})
    async with sidecar(fake) as front:
        options = {"top_k": 9, "stop": ["x"], "mirostat": 2, "seed": 3.7, "top_p": None}
        assert (await front.chat(options=options))[0] == 200
    (body,) = fake.bodies()
    assert (body["temperature"], body["top_k"], body["stop"]) == (0.1, 9, ["x"])
    assert body["seed"] == 3
    assert body["top_p"] == 0.9
    assert "mirostat" not in body


@pytest.mark.parametrize(
    ("option", "kind"),
    [
        ({"num_ctx": "8"}, 'option "num_ctx" must be of type integer'),
        ({"temperature": "hot"}, 'option "temperature" must be of type float32'),
        ({"stop": "x"}, 'option "stop" must be of type array'),
        ({"stop": [1]}, 'option "stop" must be of an array of strings'),
        ({"use_mmap": 1}, 'option "use_mmap" must be of type boolean'),
    ],
)
async def test_wrong_types(front: Sidecar, option: dict[str, Any], kind: str) -> None:
    assert await front.chat(options=option) == (500, [{"error": kind}])


async def test_openai_defaults_and_options(front: Sidecar) -> None:
    body = {"model": "pair", "messages": [{"role": "user", "content": "x"}], "max_tokens": 5}
    status, (answer,) = await front.post("/v1/chat/completions", {**body, "stop": "end"})
    assert status == 200
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "Hello"}
    assert answer["usage"] == {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    assert answer["spec"]["mode"] == "strict"
    (sent,) = front.fake.bodies()
    assert (sent["temperature"], sent["top_p"]) == (1.0, 1.0)
    assert (sent["n_predict"], sent["stop"]) == (5, ["end"])


async def test_formats(front: Sidecar) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    for form in ("json", schema, {}, "", None):
        assert (await front.chat(format=form))[0] == 200
    sent = [body.get("response_format") for body in front.fake.bodies()]
    assert sent[0] == {"type": "json_object"}
    assert sent[1] == {"type": "json_schema", "json_schema": {"name": "schema", "schema": schema}}
    assert sent[2]["json_schema"]["schema"] == {}
    assert sent[3:] == [None, None]
    status, lines = await front.chat(format="xml")
    assert status == 500
    assert lines[0]["error"].startswith('invalid format: "\\"xml\\""; expected "json"')


@pytest.mark.parametrize(
    ("think", "status"), [(True, 400), (False, 200), (None, 200), ("high", 400), ("much", 400)]
)
async def test_case_11_thinking_on_a_model_that_cannot(
    front: Sidecar, think: object, status: int
) -> None:
    answer, lines = await front.chat(think=think)
    assert answer == status
    if think in (True, "high"):
        assert lines == [{"error": '"pair" does not support thinking'}]


async def test_case_11_thoughts_never_reach_the_content(fake: FakeRunner, tmp_path: Path) -> None:
    add_model(tmp_path, template_text=THINKING)
    fake.script(
        steps=[delta(reasoning_content="hm"), delta(reasoning_content="m"), *chat_steps("ok")]
    )
    async with sidecar(fake) as front:
        _, lines = await front.chat()
        assert [line["message"].get("thinking") for line in lines] == ["hm", "m", None, None]
        assert "".join(line["message"]["content"] for line in lines) == "ok"
        await front.chat(think="low")
        await front.chat(think=False)
        _, (merged,) = await front.chat(stream=False)
        assert merged["message"] == {"role": "assistant", "content": "ok", "thinking": "hmm"}
    kwargs = [body["chat_template_kwargs"] for body in fake.bodies()]
    assert kwargs[0] == {"enable_thinking": True}
    assert kwargs[1] == {"enable_thinking": True, "reasoning_effort": "low"}
    assert kwargs[2] == {"enable_thinking": False}


async def test_case_12_tool_calls_in_forty_pieces(fake: FakeRunner, tmp_path: Path) -> None:
    add_model(tmp_path, template_text=THINKING)
    text = json.dumps({"city": "Oslo", "note": "a" * 20})
    start = {"index": 0, "id": "c1", "type": "function"}
    steps = [delta(tool_calls=[{**start, "function": {"name": "weather", "arguments": ""}}])]
    steps += [delta(tool_calls=[{"index": 0, "function": {"arguments": part}}]) for part in text]
    steps += [
        delta(tool_calls=[{"index": 1, "id": "c2", "function": {"name": "t", "arguments": "{}"}}])
    ]
    fake.script(steps=[*steps, *chat_steps(reason="tool_calls")[1:]])
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]
    async with sidecar(fake) as front:
        _, lines = await front.chat(tools=tools)
        assert len(lines) == 1
        calls = lines[0]["message"]["tool_calls"]
        assert lines[0]["done_reason"] == "stop"
        assert [call["function"]["index"] for call in calls] == [0, 1]
        assert calls[0]["function"]["arguments"] == {"city": "Oslo", "note": "a" * 20}
        body = {"model": "pair", "messages": [{"role": "user", "content": "x"}], "tools": tools}
        _, (answer,) = await front.post("/v1/chat/completions", body)
        choice = answer["choices"][0]
        assert choice["finish_reason"] == "tool_calls"
        assert (
            json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])["city"]
            == "Oslo"
        )
        broken = delta(
            tool_calls=[{"index": 0, "id": "c", "function": {"name": "w", "arguments": "{x"}}]
        )
        fake.script(steps=[broken, *chat_steps(reason="tool_calls")[1:]])
        status, lines = await front.chat(tools=tools)
        assert status == 500
        assert 'invalid tool call arguments for "w"' in lines[0]["error"]


async def test_stored_system_and_messages(fake: FakeRunner, tmp_path: Path) -> None:
    stored = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    add_model(tmp_path, system="SYS", messages=stored)
    async with sidecar(fake) as front:
        await front.chat()
        await front.chat(
            messages=[{"role": "system", "content": "mine"}, {"role": "user", "content": "x"}]
        )
        await front.post("/api/generate", {"model": "pair", "prompt": "p", "system": "other"})
    first, second = fake.bodies()
    assert [item["content"] for item in first["messages"]] == ["SYS", "q", "a", "hi"]
    assert [item["content"] for item in second["messages"]] == ["q", "a", "mine", "x"]
    assert (
        fake.bodies("/completion")[0]["prompt"]
        == "<system>other<user>q<assistant>a<user>p<assistant>"
    )


def completion_steps(*pieces: str, **final: Any) -> list[dict[str, Any]]:
    steps = [{"data": {"content": piece, "stop": False}} for piece in pieces]
    timings = {"prompt_n": 3, "predicted_n": len(pieces)}
    last = {"content": "", "stop": True, "stop_type": "eos", "timings": timings}
    return [*steps, {"data": {**last, **final}}]


async def test_generate_raw_and_context(front: Sidecar) -> None:
    front.fake.script(steps=completion_steps("a", "b"))
    _, lines = await front.post("/api/generate", {"model": "pair", "prompt": "<x>", "raw": True})
    assert [line["response"] for line in lines] == ["a", "b", ""]
    assert "context" not in lines[-1]
    assert front.fake.bodies("/completion")[0]["prompt"] == "<x>"
    _, lines = await front.post("/api/generate", {"model": "pair", "prompt": "p"})
    context = lines[-1]["context"]
    assert bytes(context).decode() == "<user>p<assistant>ab"
    await front.post("/api/generate", {"model": "pair", "prompt": "q", "context": context})
    wanted = "<user>p<assistant>ab<user>q<assistant>"
    assert front.fake.bodies("/completion")[2]["prompt"] == wanted
    both = {"model": "pair", "prompt": "p", "raw": True, "system": "s"}
    error = "raw mode does not support template, system, or context"
    assert await front.post("/api/generate", both) == (400, [{"error": error}])


async def test_generate_splits_thoughts_by_the_go_template(
    fake: FakeRunner, tmp_path: Path
) -> None:
    add_model(tmp_path, template_text=THINKING, template="<think>{{ .Thinking }}</think>")
    fake.script(steps=completion_steps("<th", "ink>\nhm", " m", "</thi", "nk>\n\nok <b>"))
    async with sidecar(fake) as front:
        _, (answer,) = await front.post(
            "/api/generate", {"model": "pair", "prompt": "p", "stream": False}
        )
    assert answer["thinking"] == "hm m"
    assert answer["response"] == "ok <b>"


async def test_images_become_parts_and_bad_ones_are_refused(front: Sidecar) -> None:
    png = base64.b64encode(b"\x89PNG....").decode()
    await front.chat(messages=[{"role": "user", "content": "see", "images": [png]}])
    content = front.fake.bodies()[0]["messages"][0]["content"]
    assert content[0] == {"type": "text", "text": "see"}
    assert content[1]["image_url"]["url"] == f"data:image/png;base64,{png}"
    bad = [{"role": "user", "content": "x", "images": ["data:image/png;base64,AA"]}]
    assert await front.chat(messages=bad) == (
        400,
        [{"error": "illegal base64 data at input byte 4"}],
    )


async def test_too_long_a_chat_loses_its_oldest_messages_first(front: Sidecar) -> None:
    long = [{"role": "system", "content": "keep"}]
    long += [{"role": "user", "content": f"{number}" * 1000} for number in range(5)]
    await front.chat(messages=long, options={"num_ctx": 2200})
    sent = [item["content"][:4] for item in front.fake.bodies()[0]["messages"]]
    assert sent == ["keep", "3333", "4444"]


async def test_too_long_a_prompt_keeps_its_ends(front: Sidecar) -> None:
    front.fake.script(steps=completion_steps("a"))
    body = {"model": "pair", "prompt": "x" * 3000, "raw": True, "options": {"num_ctx": 100}}
    await front.post("/api/generate", body)
    tokens = front.fake.bodies("/completion")[0]["prompt"]
    assert len(tokens) == 100 - (100 - 4) // 2
    status, lines = await front.post("/api/generate", {**body, "shift": False})
    assert status == 400
    assert lines[0]["error"].startswith("the prompt is longer than the context length")


MODES: list[tuple[str | None, dict[str, Any], dict[str, Any]]] = [
    ("strict", {}, {"speculative.relaxed_top_n": 0}),
    ("off", {}, {"speculative.n_max": 0, "speculative.relaxed_top_n": 0}),
    ("relaxed", {}, {"speculative.relaxed_top_n": 4, "speculative.relaxed_ratio": 0.25}),
    (None, {}, {"speculative.relaxed_top_n": 4}),
    (None, {"spec_mode": "strict"}, {"speculative.relaxed_top_n": 0}),
    (None, {"spec_top_n": 2, "spec_ratio": 0.5}, {"speculative.relaxed_top_n": 2}),
    ("strict", {"spec_mode": "relaxed", "spec_n_max": 1}, {"speculative.n_max": 1}),
]


@pytest.mark.parametrize(("header", "options", "wanted"), MODES)
async def test_control_of_a_request(
    fake: FakeRunner,
    tmp_path: Path,
    header: str | None,
    options: dict[str, Any],
    wanted: dict[str, Any],
) -> None:
    accept = AcceptSettings(mode="relaxed", top_n=4)
    add_model(tmp_path, profile=Profile(spec=SpecSettings(accept=accept)))
    fake.script(help=PATCHED_HELP)
    async with sidecar(fake) as front:
        body = {"model": "pair", "messages": [{"role": "user", "content": "x"}], "options": options}
        headers = {"X-Spec-Mode": header} if header else {}
        status, lines = await front.post("/api/chat", body, **headers)
    assert status == 200
    sent = fake.bodies()[0]
    assert {key: sent[key] for key in wanted} == wanted
    mode = header or options.get("spec_mode") or "relaxed"
    assert lines[-1]["spec"]["mode"] == mode


async def test_a_stock_runner_gets_nothing_it_does_not_know(front: Sidecar) -> None:
    body = {"model": "pair", "messages": [{"role": "user", "content": "x"}]}
    _, lines = await front.post("/api/chat", body, **{"X-Spec-Mode": "relaxed"})
    assert lines[-1]["spec"]["mode"] == "strict"  # what really happened
    assert not any(key.startswith("spec") for key in front.fake.bodies()[0])


@pytest.mark.parametrize(
    ("headers", "options"),
    [
        ({"X-Spec-Mode": "fast"}, {}),
        ({}, {"spec_mode": 3}),
        ({}, {"spec_ratio": 2}),
        ({}, {"spec_top_n": "many"}),
        ({}, {"spec_scope": "some"}),
        ({}, {"spec_prefill": {"keep": 0}}),
    ],
)
async def test_meaningless_control_is_refused(
    front: Sidecar, headers: dict[str, str], options: dict[str, Any]
) -> None:
    body = {"model": "pair", "messages": [{"role": "user", "content": "x"}], "options": options}
    assert (await front.post("/api/chat", body, **headers))[0] == 400
