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

# Of what a small model has seen four calls it makes a fifth; SmolLM2's own template knows no tools.
TEMPLATE = Path(__file__).with_name("tool_chat.jinja")
SHOWN = (
    ("Add 2 and 3.", "add", {"a": 2, "b": 3}, "5"),
    ("Weather in Rome?", "get_weather", {"city": "Rome", "unit": "celsius"}, "21"),
    ("Add 10 and 4.", "add", {"a": 10, "b": 4}, "14"),
    ("Weather in Lima?", "get_weather", {"city": "Lima", "unit": "fahrenheit"}, "66"),
)
CITIES = ("Oslo", "Cairo", "Quito", "Hanoi", "Porto", "Delhi", "Accra", "Turin", "Perth", "Minsk")


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
    """`count` chats about a tool: HTTP errors, and calls that do not fit the tool.

    Every other chat must call one, so that its grammar holds from the first token; the others may,
    and theirs only holds from the call's opening on. There an answer in words is no fault.
    """
    fits = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}
    found = {"requests": count, "errors": 0, "calls": 0, "words": 0, "invalid": 0, "cut": 0}
    found["relaxed"] = 0
    for index in range(count):
        city = CITIES[index // 2 % len(CITIES)]
        question = f"Weather in {city}?" if index // 2 % 2 else f"Add {index} and 7."
        choice = "required" if index % 2 else "auto"
        body = {
            "messages": [*_shown(), {"role": "user", "content": question}],
            "tools": TOOLS,
            "tool_choice": choice,
            "parallel_tool_calls": False,
            "max_tokens": 120,
            "seed": index + 1,
        }
        reply = client.reply("/v1/chat/completions", {**body, **options})
        if reply.status_code != 200:
            found["errors"] += 1
            continue
        value = reply.json()
        found["relaxed"] += (value.get("timings") or {}).get("draft_n_relaxed", 0)
        answer = value["choices"][0]
        found[_kind(answer, fits, choice)] += 1
        if (index + 1) % 50 == 0:
            note(f"tool requests: {index + 1} of {count}")
    return found


def _kind(answer: dict[str, Any], fits: dict[str, Any], choice: str) -> str:
    calls = answer["message"].get("tool_calls") or []
    if answer["finish_reason"] == "length":
        return "cut"  # valid so far: the grammar held, the limit came first
    if not calls:
        return "invalid" if choice == "required" else "words"
    return "calls" if all(_fits(call["function"], fits) for call in calls) else "invalid"


def _shown() -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for index, (question, name, arguments, result) in enumerate(SHOWN):
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"id": f"call{index}", "type": "function", "function": function}
        messages += [
            {"role": "user", "content": question},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": result},
        ]
    return messages


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
    more = ["--jinja", "--chat-template-file", str(TEMPLATE)]
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
