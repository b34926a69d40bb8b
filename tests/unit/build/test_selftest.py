"""The self-test's reading of a runner's words, and its tiny model."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGUFReader

from ollama_spec.build import selftest, tiny_model
from ollama_spec.errors import ArtefactUnusable

HELP = """\
----- common params -----

-h,    --help, --usage                  print usage and exit
--spec-draft-n-max N                    number of tokens, see also --not-an-option-here
-ctk,  --cache-type-k TYPE              KV cache data type
                                        (env: LLAMA_ARG_CACHE_TYPE_K) --neither-this
"""


def test_options_come_from_the_left_column_only() -> None:
    names = ["--cache-type-k", "--help", "--spec-draft-n-max", "--usage"]
    assert selftest.option_names(HELP) == names


@pytest.mark.parametrize(
    ("version", "fits"),
    [
        ("version: 0.1.2-dev (build 10488, commit unknown)", True),
        ("version: 10488 (5a1b2c3)", True),
        ("version: 1 (5a1b2c3)", False),
        ("version: 110488 (x)", False),
    ],
)
def test_the_version_must_name_the_tag(version: str, fits: bool) -> None:
    assert selftest.names_tag(version, "b10488") is fits


def test_a_runner_that_does_not_start_is_unusable(tmp_path: Path) -> None:
    server = tmp_path / "llama-server"
    server.write_text("#!/bin/sh\necho 'cannot open libx.so' >&2; exit 127\n")
    server.chmod(0o755)
    with pytest.raises(ArtefactUnusable, match=r"code 127: cannot open libx.so"):
        selftest.check(server, "b1")


def test_the_tiny_model_is_a_small_valid_file(tmp_path: Path) -> None:
    path = tiny_model.write(tmp_path / "tiny.gguf")
    reader = GGUFReader(path)
    names = {tensor.name for tensor in reader.tensors}
    assert {"token_embd.weight", "output.weight", "blk.0.ffn_down.weight"} <= names
    assert path.stat().st_size < 500_000
