"""Which file is what: the header decides, names only break ties (case 27, catalogue rules 1-9)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes import hub_files
from fakes.hub import FakeHub

from ollama_spec import cli
from ollama_spec.hub import choose

REPO = "me/Mixed-GGUF"


def plan(
    capsys: pytest.CaptureFixture[str], *arguments: str, reference: str = f"hf.co/{REPO}"
) -> dict[str, str]:
    """Role to file of the plan that a dry run makes."""
    assert cli.run(["pull", reference, "--name", "x", "--dry-run", "--json", *arguments]) == 0
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    return {entry["role"]: entry["file"] for entry in value["files"]}


def test_case_27_a_root_head_is_taken_before_the_folder(
    hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.put(REPO, "gemma-Q4_K_M.gguf", hub_files.model(arch="gemma4", bulk=40_000))
    hub.put(REPO, "mtp-gemma.gguf", hub_files.head_only())
    for quant in ("Q8_0", "BF16", "F16", "Q4_0", "Q5_K_M"):
        hub.put(REPO, f"MTP/mtp-gemma-{quant}.gguf", hub_files.head_only(seed=len(quant)))
    assert plan(capsys) == {"target": "gemma-Q4_K_M.gguf", "drafter": "mtp-gemma.gguf"}
    del hub.files[REPO]["mtp-gemma.gguf"]
    assert plan(capsys)["drafter"] == "MTP/mtp-gemma-Q8_0.gguf"


def test_case_27_names_full_of_mtp_do_not_mislead(
    hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.put(REPO, "grug-mtp-Q4_K_M.gguf", hub_files.embedded(bulk=40_000))
    hub.put(REPO, "mmproj-grug-MTP-F16.gguf", hub_files.projector())
    hub.put(REPO, "imatrix-MTP.gguf", hub_files.imatrix())
    assert plan(capsys) == {"target": "grug-mtp-Q4_K_M.gguf"}
    assert plan(capsys, "--projector") == {
        "target": "grug-mtp-Q4_K_M.gguf",
        "projector": "mmproj-grug-MTP-F16.gguf",
    }


def test_a_head_cut_out_of_a_model_is_a_drafter(
    hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.put(REPO, "Qwen-Q4_K_M.gguf", hub_files.model(arch="qwen35", bulk=40_000))
    hub.put(REPO, "mtp-Qwen-Q4_0.gguf", hub_files.separate_head())
    assert plan(capsys) == {"target": "Qwen-Q4_K_M.gguf", "drafter": "mtp-Qwen-Q4_0.gguf"}


def test_case_27_two_models_in_one_repository_are_never_guessed(
    hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.put(REPO, "A-Q4_K_M.gguf", hub_files.model("A"))
    hub.put(REPO, "B-Q4_K_M.gguf", hub_files.model("B"))
    assert cli.run(["pull", f"hf.co/{REPO}", "--name", "x"]) == 6
    err = capsys.readouterr().err
    assert "A-Q4_K_M.gguf, B-Q4_K_M.gguf" in err and "--target-file" in err
    assert plan(capsys, "--target-file", "B-Q4_K_M.gguf") == {"target": "B-Q4_K_M.gguf"}


def test_an_exact_quantisation_is_preferred_to_a_ud_one(
    hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.put(REPO, "A-UD-Q4_K_M.gguf", hub_files.model("A"))
    hub.put(REPO, "A-Q4_K_M.gguf", hub_files.model("A"))
    hub.put(REPO, "A-UD-Q6_K.gguf", hub_files.model("A"))
    assert plan(capsys, reference=f"hf.co/{REPO}:q4_k_m") == {"target": "A-Q4_K_M.gguf"}
    assert plan(capsys, reference=f"hf.co/{REPO}:Q6_K") == {"target": "A-UD-Q6_K.gguf"}


@pytest.mark.parametrize(
    ("arch", "whose"),
    [
        ("gemma4_assistant", "AtomicChat"),
        ("gemma4_mtp", "ik_llama.cpp"),
        ("dflash-draft", "buun"),
    ],
)
def test_a_foreign_dialect_is_refused_by_name_before_any_download(
    hub: FakeHub, capsys: pytest.CaptureFixture[str], arch: str, whose: str
) -> None:
    hub.put(REPO, "T-Q4_K_M.gguf", hub_files.model(arch="gemma4"))
    hub.put("you/Draft-GGUF", "gemma-4-E4B-it-assistant.Q4_K_M.gguf", hub_files.head_only(arch))
    code = cli.run(["pull", f"hf.co/{REPO}", "--draft", "hf.co/you/Draft-GGUF", "--name", "x"])
    assert code == 6
    err = capsys.readouterr().err
    assert repr(arch) in err and whose in err
    assert arch == "dflash-draft" or "unsloth/gemma-4-E4B-it-GGUF" in err
    assert hub.downloads(".gguf") == []


def test_a_drafter_cannot_be_the_target(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.put(REPO, "mtp-Q4_K_M.gguf", hub_files.head_only())
    assert cli.run(["pull", f"hf.co/{REPO}:Q4_K_M", "--name", "x"]) == 4
    assert "a drafter belongs after --draft" in capsys.readouterr().err


def test_a_repository_without_gguf_says_so(
    hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.put(REPO, "model.safetensors", b"x" * 100)
    assert cli.run(["pull", f"hf.co/{REPO}"]) == 4
    assert "holds no GGUF files" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "quant"),
    [
        ("gemma-4-E2B-it-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("MTP/gemma-4-12B-it-Q8_0-MTP.gguf", "Q8_0"),
        ("gemma-4-E4B-it-assistant.Q4_K_M.gguf", "Q4_K_M"),
        ("mmproj-F16.gguf", "F16"),
        ("Qwen3-235B-Q4_K_M-00001-of-00003.gguf", "Q4_K_M"),
        ("Qwen3.6-27B-PRISM-EAGLE3_Q4_K_M.gguf", "Q4_K_M"),
        ("gemma-4-E2B_q4_0-it.gguf", "Q4_0"),
        ("dflash-kquant.gguf", None),
    ],
)
def test_quantisation_is_read_from_names_as_publishers_write_them(
    name: str, quant: str | None
) -> None:
    assert choose.quant_of(name) == quant
