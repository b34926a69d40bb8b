"""The made models as files: what llama.cpp's loader and the measurements rely on."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from fixtures.wired import pair

from ollama_spec.measure.fixtures import bpe, corpus, ngram
from ollama_spec.measure.fixtures.inflate import inflate
from ollama_spec.measure.fixtures.wired import DEFAULT, Options, make_pair


def test_text_is_prose_every_machine_has() -> None:
    text = corpus.paragraphs()
    assert sum(map(len, text)) > 100_000
    assert len(set(text)) == len(text)
    assert all(char == "\n" or " " <= char <= "~" for block in text for char in block)


def test_merges_follow_frequency_and_never_cross_a_word() -> None:
    vocabulary, ids = bpe.build(["aa ab aa", "aa ab"], 3)
    assert vocabulary.merges == (f"{bpe.SPACE} a", f"{bpe.SPACE}a b", "a a")
    assert "".join(vocabulary.tokens[i] for i in ids) == "aa ab aa\naa ab".replace(" ", bpe.SPACE)


def test_rows_get_one_norm_and_keep_their_direction() -> None:
    rows = np.array([[3.0, 4.0], [0.3, 0.4]])
    padded, scale = ngram.fixed_norm(rows, 2.0)
    assert np.allclose(np.linalg.norm(padded, axis=1), 2.0)
    assert np.allclose(padded[:, :2], rows * scale)


def test_same_options_give_the_same_bytes(tmp_path: Path) -> None:
    # Not the shared pair: another number of BLAS threads, when that was made, rounds differently.
    one, again = make_pair(tmp_path / "one"), make_pair(tmp_path / "again")
    assert again.target.read_bytes() == one.target.read_bytes()
    assert again.drafter.read_bytes() == one.drafter.read_bytes()


def test_drafter_is_narrower_and_fits_its_target() -> None:
    target, drafter = (gguf.GGUFReader(str(path)) for path in (pair().target, pair().drafter))
    width = target.fields["gemma4.embedding_length"].contents()
    assert drafter.fields["gemma4-assistant.embedding_length_out"].contents() == width
    assert drafter.fields["gemma4-assistant.embedding_length"].contents() < width
    assert len(drafter.fields["tokenizer.ggml.tokens"].data) == len(
        target.fields["tokenizer.ggml.tokens"].data
    )


@pytest.mark.parametrize("cut", ["h", "kv"])
def test_an_ablation_zeroes_just_its_way_in(cut: str) -> None:
    whole = _tensors(pair(DEFAULT).drafter)
    without = _tensors(pair(Options(ablate=cut)).drafter)  # type: ignore[arg-type]
    changed = {name for name in whole if not np.array_equal(whole[name], without[name])}
    way = "nextn.pre_projection.weight" if cut == "h" else "blk.3.post_attention_norm.weight"
    assert changed == {way}


def test_inflated_copies_are_silent(tmp_path: Path) -> None:
    source = pair().target
    larger = gguf.GGUFReader(str(inflate(source, tmp_path / "x3.gguf", 3)))
    assert larger.fields["gemma4.block_count"].contents() == 18
    tensors = {tensor.name: tensor.data for tensor in larger.tensors}
    original = _tensors(source)
    for layer in range(6):
        for part in ("attn_output.weight", "ffn_down.weight", "attn_q.weight"):
            first = tensors[f"blk.{3 * layer}.{part}"]
            assert np.array_equal(first, original[f"blk.{layer}.{part}"])
            copy = tensors[f"blk.{3 * layer + 2}.{part}"]
            assert copy.any() == (part == "attn_q.weight" and bool(first.any()))


def _tensors(path: Path) -> dict[str, np.ndarray]:
    return {tensor.name: tensor.data.copy() for tensor in gguf.GGUFReader(str(path)).tensors}
