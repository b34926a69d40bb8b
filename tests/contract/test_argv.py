"""Flags follow what the binary's help lists (CASES 16); no process is started here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes.sidecar import HELP, PATCHED_HELP, Sidecar, chat_steps, tiny_gguf

from ollama_spec.profiles import AcceptSettings, PrefillSettings, Profile, SpecSettings, WeightFile
from ollama_spec.runner.apierror import ApiError
from ollama_spec.runner.argv import Wanted, server_argv
from ollama_spec.runner.binary import Binary, parse_help
from ollama_spec.store import ModelRecord

OLD_HELP = HELP.replace("--load-mode MODE", "--no-mmap").replace("-lm,   ", "")


def binary(text: str) -> Binary:
    return parse_help(Path("/opt/llama-server"), text, "test")


def wanted(tmp_path: Path, **fields: Any) -> Wanted:
    file = tiny_gguf(tmp_path / "t.gguf")
    weights = WeightFile(path=file, size=1)
    profile = fields.pop("profile", Profile())
    record = ModelRecord(name="m", target=weights, drafter=weights, profile=profile)
    facts = {"num_ctx": 512, "parallel": 2, "shift": True, "load": {}, "num_keep": 4}
    facts |= {"spec_type": "draft-simple", "n_max": 3}
    return Wanted(record=record, **{**facts, **fields})


def test_help_is_read_with_aliases_and_removed_options_left_out() -> None:
    found = binary(HELP)
    assert {"-np", "--parallel", "--no-ui", "--no-webui", "--spec-draft-n-max"} <= found.flags
    assert not {"--draft", "--draft-n", "--draft-max"} & found.flags
    assert found.spec_types >= {"none", "draft-simple", "draft-mtp"}
    assert found.unix_socket
    assert not found.relaxed
    assert binary(PATCHED_HELP).relaxed


def test_case_16_a_drafter_always_comes_with_its_type(tmp_path: Path) -> None:
    argv = server_argv(binary(HELP), wanted(tmp_path), "/run/x.sock")
    assert argv[argv.index("--spec-type") + 1] == "draft-simple"
    assert argv[argv.index("--spec-draft-n-max") + 1] == "3"
    assert argv[argv.index("--spec-draft-model") + 1].endswith("t.gguf")
    assert argv[argv.index("-c") + 1] == "1024"
    assert argv[argv.index("-np") + 1] == "2"
    assert argv[argv.index("--host") + 1] == "/run/x.sock"
    assert argv[argv.index("--keep") + 1] == "4"


def test_case_16_no_wanted_flag_is_dropped_in_silence(tmp_path: Path) -> None:
    old = binary(HELP.replace("--spec-draft-n-max N", "--something-else N"))
    with pytest.raises(ApiError, match="has no --spec-draft-n-max"):
        server_argv(old, wanted(tmp_path), "/run/x.sock")


def test_case_16_a_type_the_runner_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(ApiError, match="cannot draft with draft-dspark; it offers: draft-dflash"):
        server_argv(binary(HELP), wanted(tmp_path, spec_type="draft-dspark"), "/run/x.sock")


def test_older_ways_of_saying_the_same(tmp_path: Path) -> None:
    load = {"use_mmap": False, "num_gpu": 0, "num_thread": 2}
    new = server_argv(binary(HELP), wanted(tmp_path, load=load), "/run/x.sock")
    old = server_argv(binary(OLD_HELP), wanted(tmp_path, load=load), "/run/x.sock")
    assert new[new.index("--load-mode") + 1] == "none"
    assert "--no-mmap" in old
    assert new[new.index("-ngl") + 1] == "0"
    assert new[new.index("-t") + 1] == "2"


def test_relaxed_profiles_need_our_runner(tmp_path: Path) -> None:
    accept = AcceptSettings(mode="relaxed", top_n=7, ratio=0.5)
    profile = Profile(spec=SpecSettings(accept=accept, skip_streak=4))
    relaxed = wanted(tmp_path, profile=profile)
    argv = server_argv(binary(PATCHED_HELP), relaxed, "/run/x.sock")
    assert argv[argv.index("--spec-draft-relaxed-top-n") + 1] == "7"
    assert argv[argv.index("--spec-draft-skip-streak") + 1] == "4"
    with pytest.raises(ApiError, match="has no --spec-draft-skip-streak"):
        server_argv(binary(HELP), relaxed, "/run/x.sock")
    sparse = wanted(tmp_path, profile=Profile(prefill=PrefillSettings(mode="sparse")))
    assert "--specprefill" in server_argv(binary(PATCHED_HELP), sparse, "/run/x.sock")


def test_a_binary_without_unix_sockets_gets_a_port(tmp_path: Path) -> None:
    argv = server_argv(binary(HELP), wanted(tmp_path), "127.0.0.1:4000")
    assert argv[argv.index("--port") + 1] == "4000"


async def test_case_16_loaded_but_never_drafting_is_said(front: Sidecar) -> None:
    front.fake.script(steps=chat_steps("x", predicted_n=40))
    for _ in range(2):
        await front.chat()
    spec = (await front.get("/api/ps"))["models"][0]["spec"]
    assert spec["type"] == "draft-simple"
    assert "2 answers had no drafted token" in spec["problem"]
    front.fake.script(steps=chat_steps("x", predicted_n=40, draft_n=3, draft_n_accepted=1))
    await front.chat()
    assert (await front.get("/api/ps"))["models"][0]["spec"]["problem"] is None
