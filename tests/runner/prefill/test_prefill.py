"""Sparse prefill over HTTP, as a client sees it."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fixtures.wired import pair
from runner.prefill.conftest import SPARSE, Server, fields, report, serving

from ollama_spec.measure.fixtures.needles import NeedlePrompt, needle_prompt

pytestmark = pytest.mark.real_runner

# Long enough that keeping the last user turn whole does not keep everything.
LENGTH = 6500  # characters
PROMPT = needle_prompt(1, 0.5, LENGTH)
SHORT = "<|im_start|>user\nName a colour.<|im_end|>\n<|im_start|>assistant\n"


def test_a_long_prompt_is_prefilled_in_part(sparse: Server) -> None:
    answer = sparse.ask(PROMPT.text, cache_prompt=False)
    found, timings = report(answer), answer["timings"]
    assert found["status"] == "active"
    assert found["pos"] == "original"
    assert found["n_prompt"] == answer["tokens_evaluated"] == timings["prompt_n"]
    assert 0.3 * found["n_prompt"] <= found["n_kept"] <= 0.3 * found["n_prompt"] + 64
    assert 0 < found["coverage"] <= 1
    assert timings["prompt_ms"] == pytest.approx(found["score_ms"] + found["sparse_ms"])


@pytest.mark.parametrize(
    ("keys", "status"),
    [
        ({"specprefill": False}, "skipped_request"),
        ({"json_schema": {"type": "object"}}, "skipped_tool_guard"),
        ({"grammar": 'root ::= "x"'}, "skipped_tool_guard"),
        ({"specprefill": {"keep": 1.0}}, "kept_all"),
    ],
)
def test_dense_with_a_status(sparse: Server, keys: dict[str, Any], status: str) -> None:
    found = report(sparse.ask(PROMPT.text, cache_prompt=False, **keys))
    assert found["status"] == status
    assert found["n_kept"] == found["n_prompt"]
    assert "pos" not in found


def test_short_prompts_are_dense(sparse: Server) -> None:
    assert report(sparse.ask(SHORT))["status"] == "skipped_min_tokens"


def test_a_tools_answer_is_dense(sparse: Server) -> None:
    messages = [
        {"role": "user", "content": PROMPT.text},
        {"role": "assistant", "content": "", "tool_calls": []},
        {"role": "tool", "content": "42", "tool_call_id": "1"},
    ]
    body = {"messages": messages, "max_tokens": 4, "temperature": 0}
    answer = sparse.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    assert report(answer.json())["status"] == "skipped_tool_guard"


@pytest.mark.parametrize("value", ["yes", 1, {"keep": 0}, {"keep": 2}, {"kept": 0.3}, []])
def test_a_wrong_request_field_is_refused(sparse: Server, value: Any) -> None:
    assert sparse.post(SHORT, specprefill=value).status_code == 400


def test_no_later_request_reuses_the_holes(chat: Server) -> None:
    """The same prompt, longer or shorter, after a sparse one: dense answers stay dense answers."""
    for seed in (4, 5):
        text = needle_prompt(seed, 0.5, LENGTH).text  # new each time: nothing dense is cached yet
        assert report(chat.ask(text, specprefill={"keep": 0.2}))["status"] == "active"
        longer, same = chat.ask(text + "The code"), chat.ask(text)
        assert fields(longer) == fields(chat.ask(text + "The code", cache_prompt=False))
        assert fields(same) == fields(chat.ask(text, cache_prompt=False))


def test_a_prompt_that_outgrows_the_speculators_context_is_scored_from_where_it_was(
    patched_runner: Path,
) -> None:
    """The context grows in powers of two; 4096 lies between the two prompts."""
    made = pair()
    arguments = ["-c", "8192", "-np", "1", *SPARSE, "--specprefill-model", str(made.target)]
    arguments += ["--specprefill-reuse", "off"]  # else the second is a turn of the first
    text = needle_prompt(5, 0.5, 30000, plain=True).text
    keys: dict[str, Any] = {"specprefill": {"keep": 0.2}, "n_predict": 1}
    with serving(patched_runner, made.target, arguments) as server:
        tokens = server.http.post("/tokenize", json={"content": text}).json()["tokens"][:4200]
        assert len(tokens) == 4200
        first, second = (
            report(server.ask(tokens[:4080], **keys)),
            report(server.ask(tokens, **keys)),
        )
    with serving(patched_runner, made.target, arguments) as server:
        anew = report(server.ask(tokens, **keys))
    assert first["status"] == second["status"] == anew["status"] == "active"
    assert second["score_ms"] < 0.8 * anew["score_ms"]  # what is left: the queries
    assert second["coverage"] == pytest.approx(anew["coverage"], abs=0.005)
    assert second["n_kept"] == anew["n_kept"]


def test_slots_side_by_side_answer_as_alone(sparse: Server) -> None:
    requests: list[tuple[str, dict[str, Any]]] = [
        (PROMPT.text, {}),
        (needle_prompt(2, 0.3, LENGTH).text, {"specprefill": False}),
        (needle_prompt(3, 0.7, LENGTH).text, {}),
        (SHORT, {}),
    ]
    alone = [fields(sparse.ask(text, cache_prompt=False, **keys)) for text, keys in requests]
    with ThreadPoolExecutor(4) as pool:
        together = list(
            pool.map(lambda item: sparse.ask(item[0], cache_prompt=False, **item[1]), requests)
        )
    assert [fields(answer) for answer in together] == alone
    statuses = [report(answer)["status"] for answer in together]
    assert statuses == ["active", "skipped_request", "active", "skipped_min_tokens"]


def _longest_gap(sparse: Server, prompt: str) -> float:
    """Longest wait of a stream for its next token while a prompt is scored, in shares of the
    time that scoring took; the prompt must be new to the speculator."""
    body: dict[str, Any] = {"prompt": SHORT, "n_predict": 2000, "ignore_eos": True, "stream": True}
    times: list[float] = []
    with (
        sparse.http.stream("POST", "/completion", json=body) as stream,
        ThreadPoolExecutor() as pool,
    ):
        lines = stream.iter_lines()
        next(lines)
        scored = pool.submit(
            sparse.ask, prompt, cache_prompt=False, specprefill={"keep": 0.1}, n_predict=1
        )
        while not scored.done():
            next(lines)
            times.append(time.monotonic())
    found = report(scored.result())
    assert found["status"] == "active"
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert len(gaps) > 10  # about one a micro-batch
    share: float = max(gaps) * 1000 / found["score_ms"]
    return share


def test_scoring_does_not_hold_up_another_stream(sparse: Server) -> None:
    """Another slot's tokens keep coming between the micro-batches of the speculator.

    1500 tokens are scored in a dozen of them; scored at once, every try would have one gap as
    long as the scoring. The machine itself may stall for as long, but hardly in each try.
    """
    prompts = [needle_prompt(seed, 0.5, LENGTH).text for seed in (31, 32, 33)]
    assert min(_longest_gap(sparse, prompt) for prompt in prompts) < 0.5


def test_the_process_outlives_cancelled_scoring(sparse: Server) -> None:
    for wait in (0.05, 0.3, 0.8):
        hasty = httpx.Client(base_url=sparse.url, trust_env=False, timeout=wait)
        with hasty, pytest.raises(httpx.TimeoutException):
            hasty.post("/completion", json={"prompt": PROMPT.text, "n_predict": 200})
    assert report(sparse.ask(PROMPT.text, cache_prompt=False))["status"] == "active"


NEEDLES = [needle_prompt(seed, depth, LENGTH) for seed, depth in ((11, 0.1), (12, 0.5), (13, 0.9))]


@pytest.mark.parametrize("needle", NEEDLES, ids=["early", "middle", "late"])
def test_the_needle_is_found(sparse: Server, needle: NeedlePrompt) -> None:
    keys = {"cache_prompt": False, "n_predict": 24}
    dense = sparse.ask(needle.text, specprefill=False, **keys)["content"]
    answer = sparse.ask(needle.text, specprefill={"keep": 0.2}, **keys)
    assert report(answer)["status"] == "active"
    assert needle.codes[0] in answer["content"] or needle.codes[0] not in dense


def test_scoring_that_cannot_work_falls_back(patched_runner: Path, smollm2: Path) -> None:
    arguments = ["-c", "4096", "-np", "1", "--specprefill", "--specprefill-model", "/nowhere.gguf"]
    with serving(patched_runner, smollm2, [*arguments, *SPARSE]) as server:
        found = report(server.ask(PROMPT.text))
    assert (found["status"], found["n_kept"]) == ("skipped_error", found["n_prompt"])
    assert "/nowhere.gguf" in found["reason"]


def test_compact_positions(patched_runner: Path, smollm2: Path) -> None:
    arguments = ["-c", "4096", "-np", "1", "--specprefill", "--specprefill-model", str(smollm2)]
    arguments += ["--specprefill-pos", "compact"]
    with serving(patched_runner, smollm2, [*arguments, *SPARSE]) as server:
        first = server.ask(PROMPT.text)
        again = server.ask(PROMPT.text)
    assert (report(first)["status"], report(first)["pos"]) == ("active", "compact")
    assert first["timings"]["prompt_n"] == report(first)["n_prompt"]
    assert again["content"] == first["content"]


# With more threads ggml splits the attention of one row over them, and that of a batch of rows not:
# rounding alone then moves the logits of this model by up to 1, in dense prompts as in sparse ones.
ONE_THREAD = ["-t", "1", "--spec-draft-threads", "1"]


def test_together_with_a_drafter(
    patched_runner: Path, smollm2: Path, smollm2_drafter: Path
) -> None:
    """The draft model is the speculator, too; drafting changes nothing in the answer."""
    arguments = ["-c", "4096", "-np", "1", "--specprefill", *ONE_THREAD, *SPARSE]
    speculating = ["--specprefill-model", str(smollm2_drafter)]
    drafting = ["--spec-type", "draft-simple", "--spec-draft-model", str(smollm2_drafter)]
    prompts = [PROMPT.text, needle_prompt(3, 0.7, LENGTH).text]
    answers = []
    for more in (speculating, drafting):
        with serving(patched_runner, smollm2, [*arguments, *more]) as server:
            answers.append([server.ask(prompt, n_predict=24) for prompt in prompts])
    _same_with_drafts(*answers)


@pytest.mark.parametrize(("wish", "positions"), [("auto", "compact"), ("orig", "original")])
def test_together_with_mtp(patched_runner: Path, wish: str, positions: str) -> None:
    """A windowed target whose drafter reads its hidden rows and its cache, with holes if asked."""
    made = pair()
    arguments = ["-c", "8192", "-np", "1", "--specprefill", *ONE_THREAD, *SPARSE]
    arguments += ["--specprefill-pos", wish]
    arguments += ["--specprefill-model", str(made.target)]
    drafting = ["--spec-type", "draft-mtp", "--spec-draft-model", str(made.drafter)]
    prompts = [needle_prompt(seed, 0.5, 8000, plain=True).text for seed in (1, 2, 3)]
    answers = []
    for more in ([], [*drafting, "--spec-draft-n-max", "3"]):
        with serving(patched_runner, made.target, [*arguments, *more]) as server:
            answers.append([server.ask(prompt, n_predict=32) for prompt in prompts])
    assert {report(answer)["pos"] for answer in answers[0]} == {positions}
    _same_with_drafts(*answers)


def _same_with_drafts(plain: list[dict[str, Any]], drafted: list[dict[str, Any]]) -> None:
    for one, other in zip(plain, drafted, strict=True):
        assert report(one)["status"] == report(other)["status"] == "active"
        assert report(one)["n_kept"] == report(other)["n_kept"] < report(one)["n_prompt"]
        assert other["timings"]["draft_n"] > 0
        assert fields(one) == fields(other)
    assert sum(answer["timings"]["draft_n_accepted"] for answer in drafted) > 0


def test_off_is_stock(patched_runner: Path, stock_runner: Path, smollm2: Path) -> None:
    answers = []
    for runner in (stock_runner, patched_runner):
        with serving(runner, smollm2, ["-c", "4096", "-np", "1"]) as server:
            answer = server.ask(PROMPT.text, n_predict=24, n_probs=5)
        assert "specprefill" not in answer["timings"]
        answers.append((*fields(answer), answer["completion_probabilities"]))
    assert answers[0] == answers[1]
