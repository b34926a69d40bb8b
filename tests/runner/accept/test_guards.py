"""Each guard of the relaxed rule, under the loosest rule there is: without it its test fails.

Every test first shows that the same request relaxes when the guard has no reason to object, so a
test that passes because nothing was drafted cannot hide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures.wired import pair

from .conftest import ANYTHING, PROMPTS, Server, drafting, drafting_mtp, serve

pytestmark = pytest.mark.real_runner


@pytest.mark.parametrize(
    ("verdict", "body"),
    [
        ("penalties", {"repeat_penalty": 1.2}),
        ("penalties", {"presence_penalty": 0.5}),
        ("penalties", {"frequency_penalty": 0.5}),
        ("dry", {"dry_multiplier": 0.8}),
        ("mirostat", {"mirostat": 2}),
        ("xtc", {"xtc_probability": 0.5}),
        ("adaptive-p", {"adaptive_target": 0.5}),
        ("logprobs", {"n_probs": 3}),
    ],
)
def test_sampling_the_raw_logits_do_not_show(
    server: Server, verdict: str, body: dict[str, Any]
) -> None:
    for prompt in PROMPTS[:3]:
        keys: dict[str, Any] = {"temperature": 0.9, "ignore_eos": True} | ANYTHING
        assert server.complete(prompt, **keys)["timings"]["draft_n_relaxed"] > 0
        since = server.mark()
        assert server.complete(prompt, **keys, **body)["timings"]["draft_n_relaxed"] == 0
    assert verdict in server.verdicts(since) | {"match"}


def test_backend_sampled_rows(patched_runner: Path, tmp_path: Path) -> None:
    """Their raw logits are stale: such rows must be strict. Older servers make none of a draft."""
    made, trace = pair(), tmp_path / "trace.ndjson"
    args = (*drafting_mtp(made.drafter), "--backend-sampling")
    with serve(patched_runner, made.target, *args, trace=trace) as server:
        build = re.search(r"\d+", server.client.get("/props").json()["build_info"])
        assert build
        on_device = int(build[0]) >= 10355
        answer = server.complete(PROMPTS[0], ignore_eos=True, **ANYTHING)
        assert (answer["timings"]["draft_n_relaxed"] == 0) == on_device
        assert ("backend" in server.verdicts(0)) == on_device


def test_control_and_end_tokens(server: Server) -> None:
    """Neither a drafted end is taken for text nor text for an end."""
    marks = "<|turn><turn|><eos><bos>"
    answer = server.client.post("/tokenize", json={"content": marks, "parse_special": True})
    control = set(answer.json()["tokens"])
    assert len(control) == 4
    since = server.mark()
    for prompt in PROMPTS:
        server.complete(prompt, temperature=1.0, n_predict=200, **ANYTHING)
    positions = [p for r in server.rounds(since) for p in r["positions"]]
    assert any(p["verdict"] == "relaxed" for p in positions)
    assert any(p["verdict"] == "control" for p in positions)
    for p in positions:
        assert p["verdict"] != "relaxed" or not control & {p["token"], p["sampled"]}, p


def test_banned_tokens_stay_banned(server: Server) -> None:
    for prompt in PROMPTS[:4]:
        tokens = server.complete(prompt, n_predict=48)["tokens"]
        banned = sorted(set(tokens), key=tokens.count)[-4:]
        keys: dict[str, Any] = {"logit_bias": [[t, False] for t in banned]} | ANYTHING
        since = server.mark()
        got = server.complete(prompt, n_predict=48, **keys)
        assert not set(got["tokens"]) & set(banned)
    assert "grammar" in server.verdicts(since)


def test_ignore_eos(server: Server) -> None:
    """An end token that was drafted all the same is refused as one: both by name, since the ban
    as a logit bias would refuse it too and hide that the first guard is gone."""
    marks = server.client.post("/tokenize", json={"content": "<turn|>", "parse_special": True})
    (end,) = marks.json()["tokens"]
    since = server.mark()
    for seed in range(8):
        keys: dict[str, Any] = {"ignore_eos": True, "temperature": 1.0, "seed": seed} | ANYTHING
        got = server.complete(PROMPTS[0], n_predict=400, **keys)
        assert got["stop_type"] == "limit"
        assert got["tokens_predicted"] == 400
        assert end not in got["tokens"]
    judged = [
        position["verdict"]
        for a_round in server.rounds(since)
        for drafted, position in zip(a_round["drafts"], a_round["positions"], strict=False)
        if drafted == end
    ]
    assert judged
    assert set(judged) == {"control"}


def test_grammar(server: Server) -> None:
    """Without the probe the grammar throws: HTTP 500."""
    grammar = 'root ::= [a-z]+ (" " [a-z]+)*'
    since = server.mark()
    for prompt in PROMPTS[:6]:
        keys: dict[str, Any] = {"grammar": grammar, "temperature": 0.8} | ANYTHING
        got = server.complete(prompt, **keys)
        assert re.fullmatch(r"[a-z]+( [a-z]*)*", got["content"]), got["content"]
    assert {"grammar", "relaxed"} <= server.verdicts(since)


def test_lazy_grammar_after_its_trigger(server: Server) -> None:
    body: dict[str, Any] = {
        "grammar": 'root ::= "the" [ x]+',
        "grammar_lazy": True,
        "grammar_triggers": [{"type": 1, "value": "the"}],
        "temperature": 0.8,
    }
    for prompt in PROMPTS[:4]:
        content = server.complete(prompt, **body, **ANYTHING)["content"]
        assert re.fullmatch(r"(?s)[ x]*", content.partition("the")[2] if "the" in content else "")


@pytest.fixture(scope="module")
def smol(
    patched_runner: Path,
    smollm2: Path,
    smollm2_drafter: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    """A model that can continue a pattern, which the wired pair cannot."""
    trace = tmp_path_factory.mktemp("smol") / "trace.ndjson"
    with serve(patched_runner, smollm2, *drafting(smollm2_drafter), trace=trace) as server:
        yield server


def test_reasoning_budget(smol: Server) -> None:
    """The forced end of thinking comes out whole; a relaxed token inside would break it."""
    body: dict[str, Any] = {
        "reasoning_budget_tokens": 2,
        "reasoning_budget_start_tag": " the",
        "reasoning_budget_end_tag": "</thinking is over now>",
        "reasoning_budget_message": "",
    }
    contents = [
        smol.complete(prompt, **body, **ANYTHING)["content"]
        for prompt in ("Once upon a time, in", "He walked to the house and opened")
    ]
    assert all("</thinking is over now>" in text for text in contents if " the" in text), contents
    assert any("</thinking is over now>" in text for text in contents), contents


def test_digits(smol: Server) -> None:
    prompt = "1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233,"
    keys: dict[str, Any] = ANYTHING | {"temperature": 1.0, "ignore_eos": True, "n_predict": 24}
    loose = [smol.complete(prompt, **keys | {"seed": s})["timings"] for s in range(2)]
    assert sum(t["draft_n_relaxed"] for t in loose) > 0
    since = smol.mark()
    keys["speculative.relaxed_digits"] = True
    for seed in range(2):
        smol.complete(prompt, **keys | {"seed": seed})
    assert "digit" in smol.verdicts(since)
    for a_round in smol.rounds(since):
        for p in a_round["positions"]:
            if p["verdict"] == "relaxed":
                pieces = [_piece(smol, p["token"]), _piece(smol, p["sampled"])]
                assert not re.search(r"\d", "".join(pieces)), pieces


def _piece(smol: Server, token: int) -> str:
    answer = smol.client.post("/detokenize", json={"tokens": [token]})
    text: str = answer.json()["content"]
    return text


def test_repetition(smol: Server) -> None:
    """A drafter stuck in a loop may not drag the target into it."""
    text = " one two three four five six seven eight"
    eight = smol.client.post("/tokenize", json={"content": text}).json()["tokens"]
    assert len(eight) == 8
    since = smol.mark()
    # The first token must stay in the loop by chance; the draft then does, and the target does not.
    keys: dict[str, Any] = {"top_k": 0, "top_p": 1, "min_p": 0, "n_predict": 6} | ANYTHING
    for seed in range(12):
        smol.post({"prompt": eight * 3, "temperature": 1.5 + seed / 6, "seed": seed} | keys)
    assert "repetition" in smol.verdicts(since)


def test_drafts_copied_from_the_prompt(patched_runner: Path, tmp_path: Path) -> None:
    """An n-gram drafter's copies are never relaxed."""
    trace = tmp_path / "trace.ndjson"
    args = ("--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "2")
    args += ("--spec-ngram-simple-size-m", "8")
    text = "the name of the object is the name of the class and the name of the"
    with serve(patched_runner, pair().target, *args, trace=trace) as ngram:
        for seed in range(4):
            keys: dict[str, Any] = {"temperature": 1.0, "seed": seed, "n_predict": 200} | ANYTHING
            ngram.complete(text, **keys)
        rounds = ngram.rounds()
        assert {r["path"] for r in rounds} == {"n-gram"}
        verdicts = {p["verdict"] for r in rounds for p in r["positions"]}
        assert "n-gram" in verdicts
        assert "relaxed" not in verdicts
