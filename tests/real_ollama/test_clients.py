"""The official client libraries, unchanged, with the sidecar as their base URL."""

from __future__ import annotations

import anthropic
import ollama
import openai
import pytest
from real_ollama.servers import Server

# The libraries leave their connections to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
_HI = [{"role": "user", "content": "Say hi"}]
_GREEDY = {"temperature": 0, "num_predict": 8}


@pytest.fixture(scope="module")
def answer(sidecar: Server) -> str:
    reply = ollama.Client(sidecar.url).chat("smol", messages=_HI, options=_GREEDY)
    assert reply.message.content
    return reply.message.content


def test_ollama_python(sidecar: Server, answer: str) -> None:
    client = ollama.Client(sidecar.url)
    stream = client.chat("smol", messages=_HI, options=_GREEDY, stream=True)
    chunks = list(stream)
    assert "".join(chunk.message.content or "" for chunk in chunks) == answer
    assert chunks[-1].done_reason == "length"
    assert chunks[-1].eval_count == 8
    assert client.generate("smol", "Say hi", options=_GREEDY).response == answer
    assert "smol:latest" in [item.model for item in client.list().models]
    assert client.show("smol").details.family == "llama"
    assert "smol:latest" in [item.model for item in client.ps().models]
    with pytest.raises(ollama.ResponseError, match="model 'nosuch' not found") as caught:
        client.chat("nosuch", messages=_HI)
    assert caught.value.status_code == 404


def test_openai_python(sidecar: Server, answer: str) -> None:
    client = openai.OpenAI(base_url=f"{sidecar.url}/v1", api_key="any", max_retries=0)
    asked = {"model": "smol", "messages": _HI, "temperature": 0, "max_tokens": 8}
    reply = client.chat.completions.create(**asked)
    assert reply.choices[0].message.content == answer
    stream = client.chat.completions.create(**asked, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert text == answer
    text = client.completions.create(model="smol", prompt="Say hi", temperature=0, max_tokens=8)
    assert text.choices[0].text == answer
    response = client.responses.create(
        model="smol", input="Say hi", temperature=0, max_output_tokens=8
    )
    assert response.output_text == answer
    with client.responses.stream(
        model="smol", input="Say hi", temperature=0, max_output_tokens=8
    ) as events:
        assert [event.type for event in events][-1] == "response.completed"
        assert events.get_final_response().output_text == answer
    assert "smol:latest" in [model.id for model in client.models.list()]
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="nosuch", messages=_HI)


def test_anthropic_python(sidecar: Server, answer: str) -> None:
    client = anthropic.Anthropic(base_url=sidecar.url, api_key="any", max_retries=0)
    asked = {"model": "smol", "max_tokens": 8, "messages": _HI, "extra_body": {"temperature": 0}}
    reply = client.messages.create(**asked)
    assert [block.text for block in reply.content] == [answer]
    assert reply.stop_reason == "max_tokens"
    with client.messages.stream(**asked) as stream:
        assert stream.get_final_text() == answer
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(**{**asked, "model": "nosuch"})
    with pytest.raises(anthropic.BadRequestError, match="messages is required"):
        client.messages.create(**{**asked, "messages": []})
