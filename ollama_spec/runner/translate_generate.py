"""POST /api/generate: the prompt through /apply-template, then /completion (contract 1.3, 8.1)."""

from __future__ import annotations

import base64
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from ollama_spec.runner import decode, options, plaintemplate, truncate, wire
from ollama_spec.runner import request as requests
from ollama_spec.runner.apierror import ApiError
from ollama_spec.runner.pool import MEDIA_MARKER, Lease
from ollama_spec.runner.request import Request
from ollama_spec.runner.thinktags import ThinkSplitter

Chunk = dict[str, Any]

# Any JSON object, with bounded white space so that it cannot run on for ever.
JSON_GRAMMAR = r"""
root ::= object
value ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (pair ("," ws pair)*)? ws "}"
pair ::= string ":" ws value
array ::= "[" ws (value ("," ws value)*)? ws "]"
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))* "\""
number ::= "-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?
ws ::= [ \t\n]{0,20}
""".strip()


def decode_generate(raw: dict[str, Any]) -> dict[str, Any]:
    body = decode.fields(raw, decode.GENERATE, "GenerateRequest")
    body["images"] = decode.images(body.get("images"))
    requests.check_logprobs(body)
    return body


async def generate(request: Request) -> AsyncGenerator[Chunk]:
    """The chunks of one completion; ApiError as Ollama words it."""
    body = request.body
    prompt = body.get("prompt", "")
    if not prompt and request.keep_alive == 0:
        request.services.pool.unload(request.record.name)
        yield _notice(request, "unload")
        return
    if body.get("raw") and (body.get("template") or body.get("system") or body.get("context")):
        raise ApiError(400, "raw mode does not support template, system, or context")
    think = requests.thinking(request)
    _check(request)
    async with request.lease() as lease:
        request.load_seconds = time.monotonic() - request.started
        if not prompt:
            yield _notice(request, "load")
            return
        text = await _prompt(request, lease, think)
        if body.get("_debug_render_only"):
            yield _debug(request, text)
            return
        native = await _native_body(request, lease, text)
        answer = _stream(request, lease, native, text, think)
        async with lease.loaded.slots, aclosing(answer) as chunks:
            async for chunk in chunks:
                yield chunk


def _check(request: Request) -> None:
    if "completion" not in request.capabilities:
        raise ApiError(400, f'"{request.model}" does not support generate')
    if not plaintemplate.supported(request.body.get("template") or ""):
        raise ApiError(400, plaintemplate.UNSUPPORTED)
    if request.body.get("suffix"):
        # Only a Go template that places a suffix gives this ability (contract 8.6).
        raise ApiError(400, f"{request.full_name} does not support insert")


def _notice(request: Request, reason: str) -> Chunk:
    return {
        "model": request.model,
        "created_at": wire.now(),
        "response": "",
        "done": True,
        "done_reason": reason,
    }


async def _prompt(request: Request, lease: Lease, think: bool | str | None) -> str:
    body = request.body
    if body.get("template"):
        system = body.get("system") or request.record.system or ""
        return plaintemplate.fill(body["template"], {"System": system, "Prompt": body["prompt"]})
    if body.get("raw") or not request.header.chat_template:
        return str(body["prompt"])
    messages: list[dict[str, Any]] = []
    system = body.get("system") or request.record.system
    if system:
        messages.append({"role": "system", "content": system})
    context = body.get("context")
    if not context:
        stored = request.record.messages
        messages += [{"role": item.role, "content": item.content} for item in stored]
    # One marker in the text for each image; llama-server itself says if it cannot see.
    content = MEDIA_MARKER * len(body["images"]) + body["prompt"]
    messages.append({"role": "user", "content": content})
    kwargs = requests.template_kwargs(think)
    prompt = await lease.client.apply_template({"messages": messages, **kwargs})
    if context:
        prompt = await lease.client.detokenize(context) + prompt
    return prompt


def _debug(request: Request, prompt: str) -> Chunk:
    info: dict[str, Any] = {"rendered_template": prompt}
    if request.body["images"]:
        info["image_count"] = len(request.body["images"])
    return {
        "model": request.model,
        "created_at": wire.now(),
        "response": "",
        "done": False,
        "_debug_info": info,
    }


async def _native_body(request: Request, lease: Lease, prompt: str) -> dict[str, Any]:
    body = request.body
    native: dict[str, Any] = {
        **options.sampling(request.options, lease.num_ctx),
        **request.control(lease).body,
        "stream": True,
    }
    if body["images"]:
        encoded = [base64.b64encode(data).decode() for data in body["images"]]
        native["prompt"] = {"prompt_string": prompt, "multimodal_data": encoded}
    elif body.get("truncate", True):
        native["prompt"] = await truncate.shorten(
            lease,
            prompt,
            shift=request.wanted.shift,
            num_keep=request.options["num_keep"],
        )
    else:
        native["prompt"] = prompt
    if native["n_predict"] == 0:
        del native["n_predict"]  # Ollama leaves zero out here (contract 7.5)
    form = _format(body.get("format"))
    if form:
        if form["type"] == "json_object":
            native["grammar"] = JSON_GRAMMAR
        else:
            native["json_schema"] = form["json_schema"]["schema"]
    if body.get("logprobs"):
        native["n_probs"] = max(body.get("top_logprobs", 0), 1)
    return native


def _format(value: Any) -> dict[str, Any] | None:
    try:
        return requests.response_format(value)
    except ApiError as error:
        # On this route Ollama meets it before the stream, unlike on /api/chat.
        raise ApiError(error.status, error.message) from None


async def _stream(
    request: Request,
    lease: Lease,
    native: dict[str, Any],
    prompt: str,
    think: bool | str | None,
) -> AsyncGenerator[Chunk]:
    raw = bool(request.body.get("raw"))
    # As in Ollama, by the Go template: with the GGUF's own one, thoughts stay in the text here.
    splits = think and not raw and ".Thinking" in (request.record.template or "")
    splitter = ThinkSplitter(prompt) if splits else None
    top = request.body.get("top_logprobs", 0)
    answer: list[str] = []
    final: Mapping[str, Any] | None = None
    async with aclosing(lease.client.stream("/completion", native)) as events:
        async for event in events:
            content = event.get("content") or ""
            answer.append(content)
            entries = requests.logprob_entries(event.get("completion_probabilities"), top)
            thinking, text = splitter.feed(content) if splitter else ("", content)
            if event.get("stop"):
                final = event
            if text or thinking or entries:
                yield _chunk(request, text, thinking, entries)
    if final is None:
        raise await lease.client.cut()
    thinking, text = splitter.finish() if splitter else ("", "")
    chunk: Chunk = {
        "model": request.model,
        "created_at": wire.now(),
        "response": text,
        "done": True,
        "done_reason": "length" if final.get("stop_type") == "limit" else "stop",
    }
    if thinking:
        chunk["thinking"] = thinking
    if not raw:
        chunk["context"] = await lease.client.tokenize(prompt + "".join(answer))
    mode = request.control(lease).mode
    yield {**chunk, **requests.finish(request, lease.loaded, final.get("timings") or {}, mode)}


def _chunk(request: Request, text: str, thinking: str, entries: list[Any]) -> Chunk:
    chunk: Chunk = {"model": request.model, "created_at": wire.now(), "response": text}
    if thinking:
        chunk["thinking"] = thinking
    chunk["done"] = False
    if entries:
        chunk["logprobs"] = entries
    return chunk


def merge(chunks: list[Chunk]) -> Chunk:
    """The one object of `stream: false`."""
    final = dict(chunks[-1])
    final["response"] = "".join(chunk["response"] for chunk in chunks)
    thinking = "".join(chunk.get("thinking", "") for chunk in chunks)
    if thinking:
        final["thinking"] = thinking
    entries = [entry for chunk in chunks for entry in chunk.get("logprobs", [])]
    return wire.with_logprobs(final, entries)
