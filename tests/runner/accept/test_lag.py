"""A drafter that skipped what it need not have read drafts as if it had read everything."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from .conftest import PROMPTS, Server, drafting, serve

pytestmark = pytest.mark.real_runner

KEYS: dict[str, Any] = {"n_predict": 120, "ignore_eos": True}
PAUSING: dict[str, Any] = {"speculative.skip_streak": 1, "speculative.skip_cooldown": 5}
NEVER: dict[str, Any] = {"speculative.n_max": 0}


@pytest.fixture(scope="module")
def smol(
    patched_runner: Path, smollm2: Path, smollm2_drafter: Path, tmp_path_factory: Any
) -> Iterator[Server]:
    trace = tmp_path_factory.mktemp("trace") / "trace.ndjson"
    args = [*drafting(smollm2_drafter, 3), "-np", "2"]
    with serve(patched_runner, smollm2, *args, trace=trace) as server:
        yield server


def drafts(server: Server, prompt: str, **keys: Any) -> tuple[str, dict[int, list[int]]]:
    """The text, and what was drafted at which position."""
    since = server.mark()
    answer = server.complete(prompt, **KEYS, **keys)
    rounds = [r for r in server.rounds(since) if r["path"] == "draft"]
    return answer["content"], {r["attn_pos"]: r["drafts"] for r in rounds}


def agreement(some: dict[int, list[int]], others: dict[int, list[int]]) -> float:
    common = some.keys() & others.keys()
    assert len(common) >= 5
    return sum(some[at][0] == others[at][0] for at in common) / len(common)


@pytest.mark.parametrize("prompt", [PROMPTS[2], PROMPTS[10]])
def test_after_a_pause_it_drafts_as_if_there_had_been_none(smol: Server, prompt: str) -> None:
    text, always = drafts(smol, prompt)
    paused_text, paused = drafts(smol, prompt, **PAUSING)
    assert paused_text == text
    assert len(paused) < len(always)
    assert agreement(paused, always) > 0.9


def test_the_next_turn_finds_what_the_last_one_left_unread(smol: Server) -> None:
    """The first turn drafts nothing in one slot and always in the other; the second takes the
    cache of the first, the drafter's too."""
    found: list[dict[int, list[int]]] = []
    for slot, how in enumerate((NEVER, {})):
        cached = {"id_slot": slot, "cache_prompt": True}
        first = smol.complete(PROMPTS[4], **KEYS, **how, **cached)
        follow = f"{PROMPTS[4]}{first['content']} In other words,"
        found.append(drafts(smol, follow, **cached)[1])
    # Later ones may follow texts that parted over the last bits of a batch.
    early = [dict(sorted(drafted.items())[:6]) for drafted in found]
    assert agreement(*early) >= 0.6


def test_a_paused_slot_beside_a_drafting_one(smol: Server) -> None:
    """One batch holds tokens to be read now and tokens that can wait."""
    alone = [smol.complete(PROMPTS[6], **KEYS), smol.complete(PROMPTS[8], **KEYS, **PAUSING)]
    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(smol.complete, PROMPTS[6], **KEYS),
            pool.submit(smol.complete, PROMPTS[8], **KEYS, **PAUSING),
        ]
    for one, together in zip(alone, both, strict=True):
        assert together.result()["content"] == one["content"]
        accepted = [a["timings"]["draft_n_accepted"] for a in (one, together.result())]
        assert accepted[1] >= 0.8 * accepted[0]
