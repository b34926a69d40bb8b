"""CASES 15 and 17, and the assistant verifier of seed 002: which drafter fits which target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures import gguf_make
from fixtures.gguf_make import VOCABULARY, WIDTH

from ollama_spec.errors import PairingError
from ollama_spec.gguf import read_header
from ollama_spec.modelfile import pairing


def _plain(tmp_path: Path, name: str, **changes: Any) -> Any:
    return read_header(gguf_make.write(tmp_path / f"{name}.gguf", **changes))


def test_case_17_same_vocabulary_fits(tmp_path: Path) -> None:
    target, drafter = _plain(tmp_path, "t"), _plain(tmp_path, "d", block_count=2)
    pairing.check_pair(target, drafter)
    assert pairing.choose_spec_type(target, drafter) == "draft-simple"


def test_case_17_first_differing_token_is_named(tmp_path: Path) -> None:
    words = [*VOCABULARY]
    words[17] = "other"
    with pytest.raises(PairingError, match=r"token 17 is 'other', the target's 't17'") as caught:
        pairing.check_pair(_plain(tmp_path, "t"), _plain(tmp_path, "d", tokens=words))
    assert "t.gguf" in caught.value.message and "d.gguf" in caught.value.message
    assert caught.value.exit_code == 6


def test_case_17_padding_and_the_first_ids_are_tolerated_as_llama_cpp_does(tmp_path: Path) -> None:
    words = ["x0", "x1", "x2", "x3", "x4", *VOCABULARY[5:]]
    padded = [*words, *(f"pad{n}" for n in range(128))]
    target = _plain(tmp_path, "t")
    pairing.check_pair(target, _plain(tmp_path, "d", tokens=padded))
    with pytest.raises(PairingError, match="169 tokens, the target has 40"):
        pairing.check_pair(target, _plain(tmp_path, "e", tokens=[*padded, "more"]))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"tokenizer.ggml.model": "llama"}, "vocabulary type is 'llama', the target's 'gpt2'"),
        ({"tokenizer.ggml.add_bos_token": True}, "add_bos_token is True, the target's False"),
    ],
)
def test_case_17_vocabulary_kind_must_agree(
    tmp_path: Path, keys: dict[str, Any], words: str
) -> None:
    with pytest.raises(PairingError, match=words):
        pairing.check_pair(_plain(tmp_path, "t"), _plain(tmp_path, "d", keys=keys))


def test_the_same_file_twice_is_refused_even_through_a_link(tmp_path: Path) -> None:
    target = _plain(tmp_path, "t")
    link = tmp_path / "link.gguf"
    link.symlink_to(target.path)
    with pytest.raises(PairingError, match="DRAFT must not reference the same local path as FROM"):
        pairing.check_pair(target, read_header(link))


def test_case_15_a_drafter_is_no_target(tmp_path: Path) -> None:
    assistant = read_header(gguf_make.gemma4_assistant(tmp_path / "a.gguf"))
    with pytest.raises(PairingError, match="is a drafter") as caught:
        pairing.check_target(assistant)
    assert "DRAFT" in (caught.value.hint or "")


def test_a_projector_is_no_target(tmp_path: Path) -> None:
    with pytest.raises(PairingError, match="is a projector"):
        pairing.check_target(_plain(tmp_path, "p", arch="clip"))


def test_a_target_with_its_own_head_takes_no_drafter(tmp_path: Path) -> None:
    target = _plain(tmp_path, "t", arch="qwen35", block_count=5, nextn_predict_layers=1)
    assert pairing.choose_spec_type(target, None) == "draft-mtp"
    with pytest.raises(PairingError, match="leave DRAFT out"):
        pairing.check_pair(target, _plain(tmp_path, "d"))


def test_a_plain_target_alone_drafts_nothing(tmp_path: Path) -> None:
    assert pairing.choose_spec_type(_plain(tmp_path, "t"), None) is None


def test_a_separate_head_needs_its_own_family_and_width(tmp_path: Path) -> None:
    target = _plain(tmp_path, "t", arch="qwen35", block_count=4)
    head = _plain(tmp_path, "h", arch="qwen35", block_count=1, nextn_predict_layers=1)
    pairing.check_pair(target, head)
    assert pairing.choose_spec_type(target, head) == "draft-mtp"
    with pytest.raises(PairingError, match="made for 'qwen35'"):
        pairing.check_pair(_plain(tmp_path, "o"), head)


def test_an_assistant_that_fits(tmp_path: Path) -> None:
    target = read_header(gguf_make.gemma4_target(tmp_path / "t.gguf"))
    drafter = read_header(gguf_make.gemma4_assistant(tmp_path / "a.gguf"))
    pairing.check_pair(target, drafter)
    assert pairing.choose_spec_type(target, drafter) == "draft-mtp"


def _tensors(**changes: Any) -> dict[str, Any]:
    own, count = 4, len(VOCABULARY)
    tensors: dict[str, Any] = {
        "token_embd.weight": np.zeros((count, own), dtype=np.float32),
        "nextn.pre_projection.weight": np.zeros((own, 2 * WIDTH), dtype=np.float32),
        "nextn.post_projection.weight": np.zeros((WIDTH, own), dtype=np.float32),
        "masked_embd_centroids.weight": np.zeros((2, own), dtype=np.float32),
        "masked_embd_ordering": np.arange(count, dtype=np.int32),
    }
    tensors |= changes
    return {name: data for name, data in tensors.items() if data is not None}


_F32 = np.float32


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"arch": "gemma4_assistant"}, "AtomicChat.*unsloth"),
        ({"arch": "gemma4_mtp"}, "ik_llama.*unsloth"),
        ({"embedding_length_out": 16}, "backbone width is 16, the target's width 8"),
        ({"nextn_predict_layers": 3}, "nextn_predict_layers is 3, its blocks are 1"),
        ({"attention__key_length": 2}, "attention key_length is 2, the target's cache has 4"),
        (
            {"tensors": _tensors(**{"nextn.pre_projection.weight": None})},
            "lacks the tensor nextn.pre_projection",
        ),
        (
            {"tensors": _tensors(**{"nextn.pre_projection.weight": np.zeros((4, 8), _F32)})},
            r"pre_projection.weight has shape \[8, 4\], must be \[16, 4\]",
        ),
        (
            {"tensors": _tensors(**{"nextn.post_projection.weight": np.zeros((4, 4), _F32)})},
            r"post_projection.weight has shape \[4, 4\], must be \[4, 8\]",
        ),
        (
            {"tensors": _tensors(masked_embd_ordering=np.zeros(40, _F32))},
            "token_ordering is F32, must be an integer type",
        ),
        (
            {"tensors": _tensors(masked_embd_ordering=np.arange(39, dtype=np.int32))},
            "token_ordering has 39 entries for 40 tokens",
        ),
        ({"tensors": _tensors(masked_embd_ordering=None)}, "lacks masked_embd_ordering"),
        (
            {"tensors": _tensors(**{"masked_embd_centroids.weight": None})},
            "lacks masked_embd_centroids",
        ),
        (
            {"tensors": _tensors(**{"masked_embd_centroids.weight": np.zeros((2, 3), _F32)})},
            "centroids have width 3, the drafter 4",
        ),
        ({"tokens": [*VOCABULARY[:-1], "other"]}, "token 39 is 'other'"),
    ],
)
def test_each_broken_invariant_of_an_assistant_is_named(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    target = read_header(gguf_make.gemma4_target(tmp_path / "t.gguf"))
    drafter = read_header(gguf_make.gemma4_assistant(tmp_path / "a.gguf", **changes))
    with pytest.raises(PairingError, match=words):
        pairing.check_pair(target, drafter)


def test_an_assistant_needs_a_gemma4_target(tmp_path: Path) -> None:
    drafter = read_header(gguf_make.gemma4_assistant(tmp_path / "a.gguf"))
    with pytest.raises(PairingError, match="needs a gemma4 target, this is 'llama'"):
        pairing.check_pair(_plain(tmp_path, "t"), drafter)


def test_case_15_a_runner_too_old_for_the_pair(tmp_path: Path) -> None:
    target = read_header(gguf_make.gemma4_target(tmp_path / "t.gguf"))
    drafter = read_header(gguf_make.gemma4_assistant(tmp_path / "a.gguf"))
    with pytest.raises(PairingError, match=r"llama.cpp b9509 cannot run this pair; needs >= b9549"):
        pairing.check_tag(target, drafter, "b9509")
    pairing.check_tag(target, drafter, "b10488")
