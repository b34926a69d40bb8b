"""Later turns of a sparse chat: they go on with what the first turn kept."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fixtures.wired import pair
from runner.prefill.conftest import SPARSE, Server, report, serving

from ollama_spec.measure.fixtures.needles import needle_prompt

pytestmark = pytest.mark.real_runner

LENGTH = 6500  # characters


def test_a_second_turn_goes_on_with_the_first_ones_choice(chat: Server) -> None:
    prompt = needle_prompt(6, 0.5, LENGTH).text
    first = chat.ask(prompt, specprefill={"keep": 0.3}, n_predict=12)
    assert report(first)["status"] == "active"
    again = "<|im_end|>\n<|im_start|>user\nSay the secret access code once more.<|im_end|>\n"
    text = prompt + first["content"] + again + "<|im_start|>assistant\n"
    second = chat.ask(text, specprefill={"keep": 0.3})
    assert report(second)["status"] == "reused"
    assert second["timings"]["cache_n"] > 0.9 * report(first)["n_prompt"]
    assert report(second)["n_kept"] < report(second)["n_prompt"]


def test_a_new_chat_shares_what_lies_before_the_first_hole(chat: Server) -> None:
    """The system prompt of an application, say; it is always kept."""
    system = "<|im_start|>system\n" + "You are a careful and friendly librarian. " * 30
    system += "<|im_end|>\n"
    first, other = (system + needle_prompt(seed, 0.5, LENGTH).text for seed in (7, 8))
    assert report(chat.ask(first, specprefill={"keep": 0.3}))["status"] == "active"
    answer = chat.ask(other)
    assert 200 < answer["timings"]["cache_n"] < 400
    assert answer["content"] == chat.ask(other, cache_prompt=False)["content"]


@pytest.mark.parametrize("windowed", [False, True], ids=["full attention", "windowed"])
def test_a_later_turn_of_a_shortened_prompt_is_a_dense_one_of_what_was_kept(
    patched_runner: Path, smollm2: Path, tmp_path: Path, windowed: bool
) -> None:
    model = pair().target if windowed else smollm2
    prompt = tmp_path / "prompt.txt"
    prompt.write_text(needle_prompt(6, 0.5, LENGTH, plain=windowed).text)
    arguments = ["-c", "6144", "-np", "1", "-t", "1", *SPARSE, "--specprefill-model", str(model)]
    arguments += [] if windowed else ["--specprefill-pos", "compact"]
    keys: dict[str, Any] = {"specprefill": True, "return_tokens": True, "n_predict": 12}
    with serving(patched_runner, model, arguments) as server:

        def tokens(text: str, start: bool) -> list[int]:
            body = {"content": text, "add_special": start, "parse_special": True}
            found: list[int] = server.http.post("/tokenize", json=body).json()["tokens"]
            return found

        asked = tokens(prompt.read_text(), True)
        first = server.ask(asked, **keys)
        turn = [*first["tokens"], *tokens(" And once more, please: the code is", False)]
        second = server.ask([*asked, *turn], **keys)
        kept = [asked[index] for index in _kept(patched_runner, model, prompt)]
        dense = server.ask([*kept, *turn], specprefill=False, cache_prompt=False, n_predict=12)
    assert (report(first)["status"], report(first)["pos"]) == ("active", "compact")
    assert report(first)["n_kept"] == len(kept)
    assert report(second)["status"] == "reused"
    timings = second["timings"]
    assert timings["cache_n"] + timings["prompt_n"] == report(second)["n_prompt"]
    assert timings["cache_n"] >= len(asked)
    assert second["content"] == dense["content"]


def _kept(runner: Path, model: Path, prompt: Path) -> list[int]:
    """What the server keeps, by the tool."""
    argv = [str(runner.with_name("llama-specprefill")), "-m", str(model), "-f", str(prompt)]
    argv += ["-t", "1", "--keep", "0.3", "--tail", "64", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return [i for first, last in json.loads(done.stdout)["ranges"] for i in range(first, last)]
