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


def _head(tmp_path: Path, name: str, **changes: Any) -> Any:
    """A head cut out of a model of 4 blocks, as llama.cpp's converter writes it (`--mtp`)."""
    tensors = {
        "token_embd.weight": np.zeros((40, WIDTH), np.float32),
        "blk.4.nextn.eh_proj.weight": np.zeros((WIDTH, 2 * WIDTH), np.float32),
    }
    facts: dict[str, Any] = {"arch": "qwen35", "block_count": 5, "nextn_predict_layers": 1}
    return _plain(tmp_path, name, **{**facts, "tensors": tensors, **changes})


def test_a_head_is_told_by_its_tensors_for_it_keeps_the_block_count(tmp_path: Path) -> None:
    head = _head(tmp_path, "h")
    assert pairing.is_drafter(head)
    with pytest.raises(PairingError, match="is a drafter"):
        pairing.check_target(head)
    target = _plain(tmp_path, "t", arch="qwen35", block_count=4)
    pairing.check_pair(target, head)
    assert pairing.choose_spec_type(target, head) == "draft-mtp"
    whole = _head(
        tmp_path,
        "w",
        tensors={
            "blk.0.attn_norm.weight": np.zeros(WIDTH, np.float32),
            "blk.4.nextn.eh_proj.weight": np.zeros((WIDTH, 2 * WIDTH), np.float32),
        },
    )
    assert not pairing.is_drafter(whole)
    assert pairing.choose_spec_type(whole, None) == "draft-mtp"


def test_a_head_trimmed_to_a_smaller_vocabulary_is_refused(tmp_path: Path) -> None:
    trimmed = _head(
        tmp_path,
        "h",
        tensors={
            "output.weight": np.zeros((32, WIDTH), np.float32),
            "blk.4.nextn.eh_proj.weight": np.zeros((WIDTH, 2 * WIDTH), np.float32),
        },
    )
    target = _plain(tmp_path, "t", arch="qwen35", block_count=4)
    with pytest.raises(PairingError, match="output has 32 rows, the target's vocabulary 40"):
        pairing.check_pair(target, trimmed)


def test_an_embedded_head_the_runner_cannot_run_is_left_alone(tmp_path: Path) -> None:
    glm = _plain(tmp_path, "g", arch="glm4moe", block_count=5, nextn_predict_layers=1)
    assert pairing.choose_spec_type(glm, None) is None
    assert pairing.choose_spec_type(glm, None, "b11434") == "draft-mtp"
    unknown = _plain(tmp_path, "u", arch="future", block_count=5, nextn_predict_layers=1)
    assert pairing.choose_spec_type(unknown, None) is None


@pytest.mark.parametrize(
    ("arch", "tensor", "kind"),
    [
        ("eagle3", "d2t", "draft-eagle3"),
        ("dflash", "fc.weight", "draft-dflash"),
        ("dflash", "markov_w1.weight", "draft-dspark"),
    ],
)
def test_readers_of_hidden_states(tmp_path: Path, arch: str, tensor: str, kind: str) -> None:
    target = _plain(tmp_path, "t", block_count=9)
    facts: dict[str, Any] = {
        "arch": arch,
        "target_layers": [1, 4, 7],
        "tokens": VOCABULARY[:30],  # a smaller vocabulary is mapped onto the target's
        "tensors": {tensor: np.zeros(4, np.float32)},
    }
    drafter = _plain(tmp_path, "d", **facts)
    pairing.check_pair(target, drafter)
    assert pairing.choose_spec_type(target, drafter) == kind
    for number, (changes, words) in enumerate(
        [
            ({"embedding_length": 16}, "hidden states of width 16, the target's have 8"),
            ({"target_layers": [1, 4, 70]}, "reads layer 70, the target has 9"),
            ({"target_layers": None}, f"{arch}.target_layers is missing"),
            ({"tokens": ["x", *VOCABULARY[1:]]}, "token 0 is 'x'"),
        ]
    ):
        with pytest.raises(PairingError, match=words):
            pairing.check_pair(target, _plain(tmp_path, f"d{number}", **{**facts, **changes}))


def test_what_can_never_draft_is_called_what_it_is(tmp_path: Path) -> None:
    target = _plain(tmp_path, "t")
    for name, changes, words in (
        ("p", {"arch": "clip"}, "is a projector, not a drafter"),
        ("i", {"keys": {"general.type": "imatrix"}}, "is an imatrix file, not a drafter"),
        ("e", {"pooling_type": 1}, "is an embedding model"),
        ("f", {"arch": "dflash-draft"}, "a fork's dialect of DFlash"),
        ("n", {"tokens": []}, "it has no vocabulary"),
    ):
        with pytest.raises(PairingError, match=words):
            pairing.check_pair(target, _plain(tmp_path, name, **changes))


def test_a_key_left_out_equals_its_default(tmp_path: Path) -> None:
    """Seen: a drafter without add_bos_token beside a target that writes the default down."""
    said = _plain(tmp_path, "t", keys={"tokenizer.ggml.model": "llama", _BOS: True, _BOS_ID: 1})
    silent = _plain(tmp_path, "d", keys={"tokenizer.ggml.model": "llama", _BOS: None})
    pairing.check_pair(said, silent)
    other = _plain(tmp_path, "o", keys={"tokenizer.ggml.model": "llama", _BOS: None, _BOS_ID: 9})
    with pytest.raises(PairingError, match="beginning token is 9, the target's 1"):
        pairing.check_pair(said, other)


_BOS, _BOS_ID = "tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id"


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
        (
            {"tensors": _tensors(**{"masked_embd_centroids.weight": np.zeros((3, 4), _F32)})},
            "40 tokens cannot be shared out among 3 centroids",
        ),
        (
            {"tensors": _tensors(**{"token_embd.weight": np.zeros((39, 4), _F32)})},
            r"token_embd.weight has shape \[4, 39\], must be \[4, 40\]",
        ),
        ({"embedding_length": 8}, "its own width equals the backbone's"),
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
