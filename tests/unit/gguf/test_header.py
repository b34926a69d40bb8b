"""A GGUF header's facts, and files that only look like one."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixtures import gguf_make
from hypothesis import given, settings
from hypothesis import strategies as st

from ollama_spec.errors import PairingError
from ollama_spec.gguf import read_header


def test_facts_of_a_small_model(tmp_path: Path) -> None:
    header = read_header(
        gguf_make.write(
            tmp_path / "m.gguf",
            nextn_predict_layers=0,
            keys={"general.file_type": 15, "tokenizer.chat_template": "{{ messages }}"},
        )
    )
    assert (header.arch, header.vocab_size, header.context_length) == ("llama", 40, 64)
    assert (header.embedding_length, header.block_count, header.nextn_layers) == (8, 1, 0)
    assert header.file_type == "Q4_K_M"
    assert header.chat_template == "{{ messages }}"
    assert header.parameter_count == 40 * 8
    assert header.tokens()[:2] == [b"t0", b"t1"]


def test_a_long_vocabulary_is_left_out_of_the_values_and_read_on_demand(tmp_path: Path) -> None:
    words = [f"w{number}" for number in range(3000)]
    header = read_header(gguf_make.write(tmp_path / "m.gguf", tokens=words))
    assert "tokenizer.ggml.tokens" not in header.kv
    assert header.vocab_size == 3000
    assert header.tokens()[2999] == b"w2999"


def test_per_layer_arrays_give_their_largest_entry(tmp_path: Path) -> None:
    header = read_header(gguf_make.write(tmp_path / "m.gguf", feed_forward_length=[64, 128]))
    assert header.count_of_arch("feed_forward_length") == 128


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "Git LFS pointer"),
        (b'{"error": "not found"}', "JSON"),
        (b"PK\x03\x04zip", "not a GGUF file"),
        (b"GGUF\x00\x00\x00\x03" + bytes(64), "big-endian"),
        (b"GGUF\x03\x00\x00\x00", "cut off inside its header"),
    ],
)
def test_other_files_are_called_what_they_are(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(PairingError, match=words) as caught:
        read_header(path)
    assert str(path) in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.95, 0.999])
def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path: Path, kept: float) -> None:
    whole = gguf_make.write(tmp_path / "whole.gguf").read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[: int(len(whole) * kept)])
    with pytest.raises(PairingError, match=r"truncated|cut off"):
        read_header(path)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(PairingError, match="no such file"):
        read_header(tmp_path / "none.gguf")
    with pytest.raises(PairingError, match="is a folder"):
        read_header(tmp_path)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_damaged_header_is_an_error_of_ours_or_still_readable(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    words = [f"w{number}" for number in range(600)]  # long enough to be skipped over
    whole = bytearray(gguf_make.write(folder / "m.gguf", tokens=words).read_bytes())
    header = whole.index(b"token_embd.weight") + 60
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(4, header))
        spoilt = data.draw(st.binary(min_size=1, max_size=8))
        whole[start : start + len(spoilt)] = spoilt
    path = folder / "damaged.gguf"
    path.write_bytes(whole)
    try:
        found = read_header(path)
    except PairingError as error:
        assert str(path) in error.message
        return
    assert isinstance(found.tokens(), list) and found.vocab_size >= 0
    assert found.block_count >= 0 and found.split_count >= 0 and found.file_type


def test_keys_of_the_wrong_type_and_nested_arrays_do_no_harm(tmp_path: Path) -> None:
    odd = read_header(gguf_make.write(tmp_path / "m.gguf", block_count="many"))
    assert odd.block_count == 0
    nested = bytearray((tmp_path / "m.gguf").read_bytes())
    at = nested.index(b"tokenizer.ggml.tokens") + len(b"tokenizer.ggml.tokens")
    nested[at + 4] = 9  # the element type of the array, after its own type
    (tmp_path / "n.gguf").write_bytes(nested)
    with pytest.raises(PairingError, match="array of arrays"):
        read_header(tmp_path / "n.gguf")
