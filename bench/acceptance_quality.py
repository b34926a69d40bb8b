"""Table 3: what relaxed acceptance costs: likelihood, regret, and answers that must be valid."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from acceptance_pairs import RELAXED, STRICT, note, pair_servers

from ollama_spec.measure import prompts, quality
from ollama_spec.measure.client import Client

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "maxLength": 20},
                    "unit": {"enum": ["celsius", "fahrenheit"]},
                },
                "required": ["city", "unit"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Sum of two integers.",
            "parameters": {
                "type": "object",
                "properties": {
                    "a": {"type": "integer", "minimum": -999, "maximum": 999},
                    "b": {"type": "integer", "minimum": -999, "maximum": 999},
                },
                "required": ["a", "b"],
            },
        },
    },
]


def likelihoods(
    plain: Client, pair: Client, starts: Sequence[str], n_predict: int, sampling: dict[str, Any],
    n_max: int,
) -> dict[str, float]:  # fmt: skip
    """Nats per token under the plain target, of relaxed and of strict output."""
    found = {}
    for kind, rule in (("strict", STRICT), ("relaxed", RELAXED)):
        options = {**sampling, **rule, "speculative.n_max": n_max}
        found[kind] = quality.mean_log_likelihood(pair, plain, list(starts), n_predict, options)
        note(f"likelihood of {kind} output: {found[kind]:.4f}")
    found = {kind: round(value, 4) for kind, value in found.items()}
    return {**found, "loss": round(found["strict"] - found["relaxed"], 4)}


def check_tools(client: Client, count: int, options: dict[str, Any]) -> dict[str, int]:
    """`count` chats that must call a tool: HTTP errors, and calls that do not fit the tool."""
    fits = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}
    errors = invalid = relaxed = cut = 0
    for index in range(count):
        question = f"Weather in city number {index}?" if index % 2 else f"Add {index} and 7."
        body = {
            "messages": [{"role": "user", "content": question}],
            "tools": TOOLS,
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "max_tokens": 160,
            "seed": index + 1,
        }
        reply = client.reply("/v1/chat/completions", {**body, **options})
        if reply.status_code != 200:
            errors += 1
            continue
        value = reply.json()
        relaxed += (value.get("timings") or {}).get("draft_n_relaxed", 0)
        answer = value["choices"][0]
        if answer["finish_reason"] == "length":
            cut += 1  # valid so far: the grammar held, the limit came first
        elif not all(_fits(call["function"], fits) for call in _calls(answer)):
            invalid += 1
        if (index + 1) % 50 == 0:
            note(f"tool requests: {index + 1} of {count}")
    return {
        "requests": count,
        "errors": errors,
        "invalid": invalid,
        "cut": cut,
        "relaxed": relaxed,
    }


def _calls(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls of an answer; where there are none, one that fits nothing: it was required."""
    return answer["message"].get("tool_calls") or [{"function": {"name": "", "arguments": ""}}]


def _fits(call: dict[str, Any], tools: dict[str, Any]) -> bool:
    try:
        given = json.loads(call["arguments"])
    except ValueError:
        return False
    schema = tools.get(call["name"])
    if schema is None or not isinstance(given, dict):
        return False
    return set(schema["required"]) <= set(given) and all(
        _has_type(given[name], rule) for name, rule in schema["properties"].items()
    )


def _has_type(value: object, rule: dict[str, Any]) -> bool:
    if "enum" in rule:
        return value in rule["enum"]
    return isinstance(value, {"string": str, "integer": int}[rule["type"]])


def checked(a: argparse.Namespace, runner: Path, target: Path, drafter: Path) -> dict[str, Any]:
    sampling = {"temperature": 0.6}
    more = ["--jinja"]
    with pair_servers(runner, target, drafter, "draft-simple", 4, a.threads, *more) as clients:
        plain, pair = clients
        asked = [plain.render(text) for text in prompts.mixture(a.prompts)]
        likelihood = likelihoods(plain, pair, asked, a.tokens, sampling, 4)
        loose = {**sampling, **RELAXED, "speculative.n_max": 4}
        schema = quality.check_json(pair, a.schemas // 2, loose, note)
        tools = check_tools(pair, a.schemas - a.schemas // 2, loose)
    print(f"\n## quality, SmolLM2 pair, n_max 4, T 0.6\n\nlikelihood, nats per token: {likelihood}")
    print(f"schema requests: {vars(schema)}\ntool requests: {tools}")
    wrong = schema.errors + schema.invalid + tools["errors"] + tools["invalid"]
    return {
        "likelihood": likelihood,
        "schema": vars(schema),
        "tools": tools,
        "holds": likelihood["loss"] <= 0.05 and wrong == 0,
    }
