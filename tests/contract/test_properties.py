"""Any cut of the upstream bytes gives the same events; no body makes us fail (F, Done-when 5)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from fakes.sidecar import THINKING, add_model
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ollama_spec.config import Config
from ollama_spec.runner import (
    control,
    decode,
    keepalive,
    options,
    planning,
    request,
    translate_chat,
    translate_generate,
    translate_openai,
    wire,
)
from ollama_spec.runner.apierror import ApiError
from ollama_spec.runner.binary import Binary
from ollama_spec.runner.sse import Splitter
from ollama_spec.runner.thinktags import ThinkSplitter
from ollama_spec.store import ModelRecord

# F asks for 10,000 mutations: set this for a long run.
pytestmark = pytest.mark.timeout(3600)
EXAMPLES = int(os.environ.get("OLLAMA_SPEC_TEST_EXAMPLES", "1000"))
BINARY = Binary(Path("/x"), frozenset(["--spec-draft-relaxed-top-n"]), frozenset(), True, "b")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
names = st.sampled_from([*decode.CHAT, *decode.GENERATE, "Model", "STREAM", "odd"])
option_names = st.sampled_from(
    [*options._TYPES, *control._NUMBERS, "spec_mode", "spec_prefill", "spec_scope", "odd"]
)
bodies = st.dictionaries(names, json_values, max_size=8)
option_values = st.dictionaries(option_names, json_values, max_size=6)


@given(st.lists(st.text(max_size=20), max_size=5), st.lists(st.integers(1, 9), max_size=60))
def test_cuts_never_matter(texts: list[str], cuts: list[int]) -> None:
    events = [json.dumps({"content": text}, ensure_ascii=False).encode() for text in texts]
    stream = b"".join(b": wait\n\ndata: " + event + b"\r\n\r\n" for event in events)
    splitter, found = Splitter(), []
    for size in [*cuts, len(stream)]:
        found += splitter.feed(stream[:size])
        stream = stream[size:]
    assert found == events


@given(
    st.text(alphabet="ab \n<", max_size=12),
    st.text(alphabet="cd \n>", max_size=12),
    st.lists(st.integers(1, 5), max_size=20),
)
def test_thoughts_split_the_same_way_whatever_the_pieces(
    thought: str, answer: str, cuts: list[int]
) -> None:
    text = f"<think>{thought}</think>{answer}"
    outcomes = []
    for sizes in (cuts, []):
        splitter, rest, parts = ThinkSplitter(), text, []
        for size in [*sizes, len(text)]:
            parts.append(splitter.feed(rest[:size]))
            rest = rest[size:]
        parts.append(splitter.finish())
        outcomes.append(tuple("".join(part[i] for part in parts) for i in (0, 1)))
    assert outcomes[0] == outcomes[1] == (thought.strip(), answer.lstrip())


@given(st.binary(max_size=40))
def test_any_bytes_are_an_object_or_a_400(data: bytes) -> None:
    try:
        assert isinstance(decode.parse(data), dict)
    except ApiError as error:
        assert error.status == 400


@pytest.mark.parametrize(
    ("number", "words"),
    [
        ("1e999", "json: cannot unmarshal number 1e999 into Go value of type float64"),
        ("-Infinity", "invalid character '-' looking for beginning of value"),
        ("NaN", "invalid character 'N' looking for beginning of value"),
    ],
)
def test_numbers_that_json_cannot_hold_are_refused(number: str, words: str) -> None:
    with pytest.raises(ApiError) as caught:
        decode.parse(f'{{"options":{{"top_p":{number}}}}}'.encode())
    assert (caught.value.status, caught.value.message) == (400, words)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> ModelRecord:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("m")
        patch.setenv("OLLAMA_SPEC_DATA", str(folder))
        return add_model(folder, template_text=THINKING)


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(body=bodies, given_options=option_values, chat=st.booleans())
@example(body={}, given_options={"top_p": float("inf")}, chat=False)
def test_no_body_makes_us_fail(
    record: ModelRecord, body: dict[str, Any], given_options: dict[str, Any], chat: bool
) -> None:
    """4xx for what is wrong; 500 only where Ollama itself says 500: option types and format."""
    raw = {**body, "options": given_options, "model": "pair"}
    try:
        known = (translate_chat.decode_chat if chat else translate_generate.decode_generate)(raw)
        merged = options.merge(record.parameters, known.get("options"))
        keepalive.parse(known.get("keep_alive"))
        request.response_format(known.get("format"))
        plan = planning.plan(record, merged, known.get("shift"), Config())
        assert 4 <= plan.num_ctx <= 8192
        json.dumps(options.sampling(merged, plan.num_ctx), allow_nan=False)
        control.resolve(None, given_options, record.profile, BINARY)
        for message in known.get("messages", []):
            translate_chat.to_native(message)
    except ApiError as error:
        assert error.status == 400 or error.message.startswith(("option ", "invalid format"))


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            ["messages", "stop", "tools", "response_format", "reasoning", "reasoning_effort",
             "max_tokens", "temperature", "options", "stream", "logprobs"]
        ),
        json_values | st.lists(st.dictionaries(st.sampled_from(
            ["role", "content", "tool_calls", "name", "tool_call_id", "reasoning"]), json_values)),
    )
)  # fmt: skip
def test_no_openai_body_makes_us_fail(body: dict[str, Any]) -> None:
    try:
        translate_chat.decode_chat(translate_openai.to_chat(body))
    except ApiError as error:
        assert error.status == 400


@given(st.text(max_size=30))
def test_json_is_utf_8_with_gos_escapes(text: str) -> None:
    data = wire.dumps({"x": text + "\ud800"})
    assert json.loads(data) == {"x": text + "\ufffd"}
    assert not set(b"<>&") & set(data)
