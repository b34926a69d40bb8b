"""The relaxed rule on a real model: what it takes, what it reports, what requests may ask."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from .conftest import ANYTHING, PROMPTS, Server

pytestmark = pytest.mark.real_runner

RELAXED = {"speculative.relaxed_top_n": 5, "speculative.relaxed_ratio": 0.25}
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "tag": {"enum": ["red", "green", "blue"]}},
    "required": ["ok", "tag"],
}


def test_every_emitted_token_keeps_the_rule(server: Server) -> None:
    """Temperature 0, ratio 0.25, top 5, at least 2,000 drafted tokens."""
    since, drafted, relaxed = server.mark(), 0, 0
    for prompt in PROMPTS:
        timings = server.complete(prompt, n_predict=128, ignore_eos=True, **RELAXED)["timings"]
        drafted += timings["draft_n"]
        relaxed += timings["draft_n_relaxed"]
    assert drafted >= 2000
    assert relaxed > 50
    seen = 0
    for a_round in server.rounds(since):
        for p in a_round["positions"]:
            seen += p["verdict"] == "relaxed"
            assert p["log_ratio"] >= math.log(0.25) - 1e-4, p
            assert 0 <= p["rank"] < 5, p
    assert seen == relaxed


def test_relaxing_raises_acceptance_and_counts_its_regret(server: Server) -> None:
    def total(**keys: Any) -> dict[str, float]:
        sums = {"draft_n": 0.0, "draft_n_accepted": 0.0, "draft_n_relaxed": 0.0, "nats": 0.0}
        for prompt in PROMPTS[:8]:
            timings = server.complete(prompt, n_predict=48, ignore_eos=True, **keys)["timings"]
            for key in ("draft_n", "draft_n_accepted", "draft_n_relaxed"):
                sums[key] += timings[key]
            sums["nats"] += timings["draft_regret_nats"]
            assert sum(timings["draft_accepted_per_pos"]) == timings["draft_n_accepted"]
            assert timings["draft_n_rounds"] > 0
        return sums

    strict, relaxed = total(), total(**RELAXED)
    assert strict["draft_n_relaxed"] == strict["nats"] == 0
    rate = {k: s["draft_n_accepted"] / s["draft_n"] for k, s in {"s": strict, "r": relaxed}.items()}
    assert rate["r"] > 1.1 * rate["s"], rate
    assert 0 < relaxed["nats"] <= relaxed["draft_n_relaxed"] * math.log(4)


def test_budget_caps_the_regret(server: Server) -> None:
    keys = RELAXED | {"speculative.relaxed_budget": 0.01}
    since = server.mark()
    answer = server.complete(PROMPTS[0], n_predict=200, ignore_eos=True, **keys)
    assert 0 < answer["timings"]["draft_regret_nats"] <= 0.01 * 256
    assert "budget" in server.verdicts(since)


def test_window_needs_the_next_tokens_to_match(server: Server) -> None:
    since = server.mark()
    for prompt in PROMPTS[:8]:
        keys = RELAXED | {"speculative.relaxed_window": 1}
        server.complete(prompt, n_predict=48, ignore_eos=True, **keys)
    rounds = server.rounds(since)
    relaxed = 0
    for a_round in rounds:
        verdicts = [p["verdict"] for p in a_round["positions"]]
        for at, verdict in enumerate(verdicts):
            if verdict == "relaxed":
                relaxed += 1
                assert verdicts[at + 1] == "match", verdicts
    assert relaxed > 0
    assert any(p["verdict"] == "window" for r in rounds for p in r["positions"])


def test_scope_thinking_relaxes_only_between_the_markers(server: Server) -> None:
    keys = RELAXED | {"speculative.relaxed_scope": "thinking", "n_predict": 48}
    outside = server.complete("Once upon a time", ignore_eos=True, **keys)
    inside = server.complete("<think>Once upon a time", ignore_eos=True, **keys)
    closed = server.complete("<think>x</think>Once upon a time", ignore_eos=True, **keys)
    assert outside["timings"]["draft_n_relaxed"] == 0
    assert inside["timings"]["draft_n_relaxed"] > 0
    assert closed["timings"]["draft_n_relaxed"] == 0


def test_json_schema_holds_at_temperature(server: Server) -> None:
    """200 requests: none fails, none is invalid unless the length limit cut it."""
    keys = {"speculative.relaxed_top_n": 5, "temperature": 0.8, "json_schema": SCHEMA}
    for seed in range(200):
        answer = server.complete("A JSON object:", seed=seed, n_predict=20, **keys)
        if answer["stop_type"] != "limit":
            value = json.loads(answer["content"])
            assert set(value) == {"ok", "tag"}
            assert value["tag"] in ("red", "green", "blue")


def test_same_seed_same_text(server: Server) -> None:
    texts = [
        server.complete(PROMPTS[1], temperature=0.9, seed=5, **RELAXED)["content"] for _ in "ab"
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("speculative.relaxed_top_n", -1),
        ("speculative.relaxed_top_n", "5"),
        ("speculative.relaxed_top_n", 2.5),
        ("speculative.relaxed_top_n", None),
        ("speculative.relaxed_ratio", 1.5),
        ("speculative.relaxed_ratio", "a"),
        ("speculative.relaxed_delta", -0.1),
        ("speculative.relaxed_scope", "sometimes"),
        ("speculative.relaxed_scope", ""),
        ("speculative.relaxed_window", -1),
        ("speculative.relaxed_budget", [1]),
        ("speculative.relaxed_digits", 1),
        ("speculative.n_max", True),
        ("speculative.skip_streak", -3),
        ("speculative.skip_cooldown", 0),
        ("speculative.adaptive", "much"),
        ("speculative.preset", "fast"),
    ],
)
def test_a_wrong_value_is_refused(server: Server, key: str, value: object) -> None:
    for path, body in (
        ("/completion", {"prompt": "x"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
    ):
        answer = server.post(body | {key: value}, path)
        assert answer.status_code == 400, answer.text
        assert key.partition(".")[2].partition("_")[2] in answer.text or "preset" in answer.text


def test_requests_override_each_other_never(server: Server) -> None:
    """A loose request leaves nothing behind for the strict one after it."""
    before = server.complete(PROMPTS[0])["content"]
    server.complete(PROMPTS[0], **ANYTHING)
    after = server.complete(PROMPTS[0])
    assert after["content"] == before
    assert after["timings"]["draft_n_relaxed"] == 0


def test_counters_appear_in_metrics(server: Server) -> None:
    def counters() -> dict[str, float]:
        lines = server.client.get("/metrics").text.splitlines()
        pairs = [line.rsplit(" ", 1) for line in lines if line.startswith("ollama_spec_")]
        return {name: float(value) for name, value in pairs}

    before = counters()
    timings = server.complete(PROMPTS[0], n_predict=64, ignore_eos=True, **RELAXED)["timings"]
    after = counters()
    for metric, key in {
        "draft_rounds_total": "draft_n_rounds",
        "draft_tokens_total": "draft_n",
        "draft_relaxed_total": "draft_n_relaxed",
        "draft_regret_nats_total": "draft_regret_nats",
    }.items():
        name = f"ollama_spec_{metric}"
        assert after[name] - before.get(name, 0) == pytest.approx(timings[key], abs=1e-4)
    first = 'ollama_spec_draft_accepted_per_pos_total{position="0"}'
    assert after[first] - before.get(first, 0) == timings["draft_accepted_per_pos"][0]
