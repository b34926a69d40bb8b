"""Names in every spelling, and the routes clients probe (CASES 5, 9)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from fakes.sidecar import FakeRunner, Sidecar, add_model, sidecar

SPELLINGS = [
    "gemma4-spec",
    "GEMMA4-SPEC:LATEST",
    "Gemma4-Spec:latest",
    "library/gemma4-spec",
    "registry.ollama.ai/library/gemma4-spec",
    "gemma4-spec:local",
]


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_case_9_all_spellings_mean_one_model(
    fake: FakeRunner, tmp_path: Path, spelling: str
) -> None:
    add_model(tmp_path, "Gemma4-Spec:latest")
    async with sidecar(fake) as front:
        status, lines = await front.chat(model=spelling, stream=False)
    assert status == 200
    assert lines[0]["model"] == spelling  # echoed as it came


async def test_case_9_a_hub_name_in_another_case(fake: FakeRunner, tmp_path: Path) -> None:
    add_model(tmp_path, "hf.co/Org/Repo-GGUF:Q4_K_M")
    async with sidecar(fake) as front:
        assert (await front.chat(model="hf.co/org/repo-gguf:q4_k_m"))[0] == 200
        assert (await front.get("/api/tags"))["models"][0]["name"] == "hf.co/Org/Repo-GGUF:Q4_K_M"


@pytest.mark.parametrize(
    ("path", "model", "status", "error"),
    [
        ("/api/chat", "nope", 404, "model 'nope' not found"),
        ("/api/chat", "", 400, "model is required"),
        ("/api/generate", "", 404, "model '' not found"),
        ("/api/generate", "nope:x", 404, "model 'nope:x' not found"),
        ("/api/show", "nope", 404, "model 'nope:latest' not found"),
        ("/api/chat", "../x", 400, "invalid model name"),
        ("/api/generate", "a@sha256:00", 400, "invalid model name"),
    ],
)
async def test_case_9_names_that_are_not_there(
    front: Sidecar, path: str, model: str, status: int, error: str
) -> None:
    assert await front.post(path, {"model": model}) == (status, [{"error": error}])


async def test_openai_says_it_in_its_own_shape(front: Sidecar) -> None:
    body = {"model": "nope", "messages": [{"role": "user", "content": "x"}]}
    status, lines = await front.post("/v1/chat/completions", body)
    assert status == 404
    assert lines[0]["error"] == {
        "message": "model 'nope' not found",
        "type": "not_found_error",
        "param": None,
        "code": None,
    }


async def test_case_5_probes_and_a_connection_that_stays_usable(front: Sidecar) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    probes = [("GET", "/"), ("HEAD", "/"), ("HEAD", "/api/tags"), ("HEAD", "/api/version")]
    for method, path in [*probes, ("GET", "/api/version")]:
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        assert head.startswith("HTTP/1.1 200")
        length = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
        assert length > 0
        body = await reader.readexactly(length) if method == "GET" else b""
        if path == "/" and method == "GET":
            assert body == b"Ollama is running"
    assert json.loads(body)["version"].count(".") == 2
    writer.close()


async def test_without_ollama_other_routes_say_what_is_missing(front: Sidecar) -> None:
    status, lines = await front.post("/api/pull", {"model": "x"})
    assert status == 502
    assert "ollama serve" in lines[0]["error"]
    async with front.session.get(front.url + "/nowhere") as response:
        assert response.status == 404
        assert await response.text() == "404 page not found"


async def test_tags_show_and_models(fake: FakeRunner, tmp_path: Path) -> None:
    record = add_model(
        tmp_path, system="Be brief.", parameters={"temperature": 0.5, "stop": ["a", "b"]}
    )
    async with sidecar(fake) as front:
        tag = (await front.get("/api/tags"))["models"][0]
        assert tag["digest"] == record.digest
        assert len(tag["digest"]) == 64
        assert tag["details"]["context_length"] == 8192
        assert tag["capabilities"] == ["completion"]
        _, (shown,) = await front.post("/api/show", {"name": "pair"})
        assert shown["system"] == "Be brief."
        assert shown["parameters"].splitlines()[1] == f'{"stop":<30} "a"'
        assert shown["model_info"]["general.architecture"] == "llama"
        assert shown["model_info"]["general.parameter_count"] == 96
        assert "context_length" not in shown["details"]
        assert f"DRAFT {record.drafter.path}" in shown["modelfile"]
        listed = await front.get("/v1/models")
        assert listed["data"][0]["id"] == "pair:latest"
        assert listed["data"][0]["owned_by"] == "library"
        assert (await front.get("/v1/models/pair"))["id"] == "pair"


async def test_keys_match_without_case_and_the_last_wins(front: Sidecar) -> None:
    raw = b'{"MODEL":"x","Model":"pair","Messages":[{"ROLE":"user","content":"hi"}],"stream":false}'
    async with front.session.post(front.url + "/api/chat", data=raw) as response:
        assert response.status == 200
        assert (await response.json())["model"] == "pair"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "missing request body"),
        (b"{", "unexpected EOF"),
        (b'{"model":"pair","messages":"x"}', "json: cannot unmarshal string into Go struct field "
         "ChatRequest.messages of type []api.Message"),
        (b'{"model":"pair","stream":"yes","messages":[]}', "json: cannot unmarshal string into Go "
         "struct field ChatRequest.stream of type bool"),
    ],
)  # fmt: skip
async def test_bad_bodies(front: Sidecar, body: bytes, error: str) -> None:
    async with front.session.post(front.url + "/api/chat", data=body) as response:
        assert response.status == 400
        assert json.loads(await response.read()) == {"error": error}
