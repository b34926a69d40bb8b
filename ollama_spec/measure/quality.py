"""What relaxed acceptance may cost: likelihood under the plain target, and valid JSON.

ALGORITHMS 1.7: regret comes with every answer; these two need requests of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ollama_spec.measure.client import Client

# Emitted tokens come from a pool of 40 (top-k) or rank below top-n, so they are among these.
_LISTED = 100
_UNLISTED = -15.0  # nats; for a token that is not, a bound from above on how unlikely it is


def answer_tokens(
    client: Client, prompt: list[int], n_predict: int, options: dict[str, Any]
) -> list[int]:
    body = {"prompt": prompt, "n_predict": n_predict, "return_tokens": True, **options}
    return list(client.post("/completion", body)["tokens"])


def log_likelihood(client: Client, prompt: list[int], tokens: Sequence[int]) -> list[float]:
    """log P of each token after its prefix (teacher forcing), nats, under the model of `client`.

    One request per token, which the prompt cache makes one decode step each.
    """
    found = []
    for index, token in enumerate(tokens):
        body = {
            "prompt": [*prompt, *tokens[:index]],
            "n_predict": 1,
            "n_probs": _LISTED,
            "cache_prompt": True,
            "temperature": 0,
        }
        reply = client.post("/completion", body)
        listed = reply["completion_probabilities"][0]["top_logprobs"]
        by_id = {entry["id"]: float(entry["logprob"]) for entry in listed}
        found.append(max(by_id.get(token, _UNLISTED), _UNLISTED))
    return found


def mean_log_likelihood(
    writer: Client,
    judge: Client,
    prompts: Sequence[str],
    n_predict: int,
    options: dict[str, Any],
) -> float:
    """Mean over all tokens that `writer` produces with `options`, as `judge` sees them."""
    values: list[float] = []
    for index, prompt in enumerate(prompts):
        start = writer.tokenize(prompt)
        tokens = answer_tokens(writer, start, n_predict, {"seed": index + 1, **options})
        values += log_likelihood(judge, start, tokens)
    return fmean(values)


SCHEMAS: tuple[dict[str, Any], ...] = (
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 20},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
        },
        "required": ["name", "age"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 20},
            "tags": {
                "type": "array",
                "items": {"type": "string", "maxLength": 12},
                "maxItems": 3,
            },
            "open": {"type": "boolean"},
        },
        "required": ["city", "tags", "open"],
        "additionalProperties": False,
    },
    {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 5},
)


@dataclass(frozen=True)
class JsonCheck:
    requests: int
    errors: int  # HTTP errors
    invalid: int  # answers that are not JSON, or lack what the schema asks for
    relaxed: int  # tokens taken by the relaxed rule meanwhile
    samples: tuple[str, ...] = ()


def check_json(
    client: Client, count: int, options: dict[str, Any], note: Callable[[str], None]
) -> JsonCheck:
    """`count` requests under changing schemas, seeds and subjects."""
    errors = invalid = relaxed = 0
    samples: list[str] = []
    for index in range(count):
        schema = SCHEMAS[index % len(SCHEMAS)]
        prompt = client.render(f"Invent an example record number {index} and print it as JSON.")
        body = {"prompt": prompt, "n_predict": 160, "json_schema": schema, "seed": index + 1}
        reply = client.reply("/completion", {**body, **options})
        if reply.status_code != 200:
            errors += 1
            samples.append(reply.text[:200])
            continue
        value = reply.json()
        relaxed += (value.get("timings") or {}).get("draft_n_relaxed", 0)
        # An answer cut at the limit was valid so far and is no fault of the grammar's guard.
        if value.get("stop_type") != "limit" and not _fits(value["content"], schema):
            invalid += 1
            samples.append(value["content"][:200])
        if (index + 1) % 50 == 0:
            note(f"schema requests: {index + 1} of {count}")
    return JsonCheck(count, errors, invalid, relaxed, tuple(samples[:5]))


def _fits(text: str, schema: dict[str, Any]) -> bool:
    try:
        value = json.loads(text)
    except ValueError:
        return False
    if schema["type"] == "array":
        return isinstance(value, list) and all(type(item) is int for item in value)
    return isinstance(value, dict) and set(value) == set(schema["required"])
