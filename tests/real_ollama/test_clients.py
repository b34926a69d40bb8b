"""The official client libraries, unchanged, with the sidecar as their base URL."""

from __future__ import annotations

import gc
import json
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import anthropic
import ollama
import openai
import pytest
from fixtures.real import REAL_CACHE
from langchain_core.messages import HumanMessage
from langchain_ollama import ChatOllama, OllamaLLM
from real_ollama.servers import Server, clean_environment

# The libraries leave their connections to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
_HI = [{"role": "user", "content": "Say hi"}]
_GREEDY = {"temperature": 0, "num_predict": 8}


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """What is left by then would be found in a test that does not ignore it."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


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


def test_langchain_ollama(sidecar: Server, answer: str) -> None:
    asked = {"model": "smol", "base_url": sidecar.url, "temperature": 0, "num_predict": 8}
    chat = ChatOllama(**asked, validate_model_on_init=True)
    reply = chat.invoke([HumanMessage("Say hi")])
    assert reply.content == answer
    assert reply.response_metadata["done_reason"] == "length"
    assert reply.usage_metadata is not None
    assert reply.usage_metadata["output_tokens"] == 8
    assert "".join(str(part.content) for part in chat.stream("Say hi")) == answer
    assert OllamaLLM(**asked).invoke("Say hi") == answer


@pytest.fixture(scope="module")
def javascript_client() -> Path:
    """A folder whose node_modules holds the official `ollama` package."""
    for program in ("node", "npm"):
        if not shutil.which(program):
            pytest.skip(f"no {program}, which the JavaScript client needs")
    folder = REAL_CACHE / "npm"
    if not (folder / "node_modules" / "ollama").is_dir():
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder)]
        done = subprocess.run(
            [*command, "ollama@0.6"], capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode:
            pytest.skip(f"`npm install ollama` failed: {done.stderr.strip()[-200:]}")
    return folder


def test_ollama_javascript(sidecar: Server, answer: str, javascript_client: Path) -> None:
    script = Path(__file__).with_name("client.mjs")
    done = subprocess.run(
        ["node", str(script), str(javascript_client), sidecar.url],
        env=clean_environment(sidecar.home),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert (seen["once"], seen["streamed"], seen["generated"]) == (answer, answer, answer)
    assert (seen["done_reason"], seen["eval_count"]) == ("length", 8)
    assert "smol:latest" in seen["models"]
    assert seen["family"] == "llama"
    assert "smol:latest" in seen["loaded"]  # other tests may have left more in Ollama
    assert (seen["error"], seen["status"]) == ("model 'nosuch' not found", 404)
    assert "embeddings" in str(seen["embedded"]), "SmolLM2 was not started for embeddings"
