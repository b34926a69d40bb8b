"""The rules applied to files that llama.cpp really runs, not only to headers made for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixtures import wired

from ollama_spec.errors import PairingError
from ollama_spec.gguf import read_header
from ollama_spec.modelfile import checks, pairing


def test_the_wired_gemma4_pair_fits_and_its_cache_is_small() -> None:
    pair = wired.pair()
    report = checks.check_pair(pair.target, pair.drafter, tag="b10488")
    assert report.ok, report.problems
    assert (report.spec_type, report.needs_tag) == ("draft-mtp", "b9549")
    assert report.memory.drafter_cache == 0  # the drafter reads the target's
    assert report.memory.cache == 1.1875 * 1024**2  # as llama.cpp b10488 logs for 4096 tokens
    with pytest.raises(PairingError, match="is a drafter"):
        pairing.check_target(read_header(pair.drafter))


def test_smollm2_is_no_drafter_for_gemma(smollm2: Path) -> None:
    target, other = read_header(wired.pair().target), read_header(smollm2)
    with pytest.raises(PairingError, match="vocabulary type is 'gpt2', the target's 'gemma4'"):
        pairing.check_pair(target, other)
    with pytest.raises(PairingError, match="needs a gemma4 target, this is 'llama'"):
        pairing.check_pair(other, read_header(wired.pair().drafter))
