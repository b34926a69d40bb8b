"""Recipes: ours are sound, a user's extend them, tags have a grammar, pulls follow recipes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes import hub_files
from fakes.hub import FakeHub

from ollama_spec import catalog, cli
from ollama_spec.errors import ConfigError, NotFoundError

RECIPE = """
recipes:
  - family: tiny
    size: 1b
    kind: draft
    arch: llama
    drafter_arch: llama
    target: {repo: me/Big-GGUF, file: [Big-Q4_K_M.gguf], sha256: 0123456789ab}
    drafter: {repo: me/Small-GGUF, file: [gone.gguf, "Small-*.gguf"]}
    speculator: {repo: me/Small-GGUF, quant: Q8_0}
    min_tag: 9409
    profile: {spec: {type: draft-simple, n_max: 5}}
    evidence: [measured at home]
"""


def add_recipe(text: str) -> None:
    catalog.user_folder().mkdir(parents=True)
    (catalog.user_folder() / "mine.yaml").write_text(text)


def test_ours_hold_what_the_first_catalogue_promises() -> None:
    by_name = {recipe.name: recipe for recipe in catalog.available()}
    depth = {"e2b": 2, "e4b": 2, "12b": 3, "26b": 1, "31b": 3}
    for size, n_max in depth.items():
        recipe = by_name[f"gemma4:{size}-mtp"]
        assert recipe.drafter_arch == "gemma4-assistant"
        assert recipe.profile.spec.n_max == n_max
        assert recipe.profile.lossless
    assert by_name["qwen3.6:35b-mtp"].profile.spec.p_min == 0
    assert by_name["qwen3.5:4b-mtp"].drafter is None
    assert {recipe.kind for recipe in by_name.values()} == {
        "mtp", "eagle3", "dflash", "dspark", "draft",
    }  # fmt: skip


def test_tags_are_family_size_quantisation_and_kind() -> None:
    assert catalog.find("gemma4:e2b-mtp").quant is None
    found = catalog.find("Gemma4:E2B-Q8_0-MTP")
    assert (found.recipe.size, found.quant, found.name) == ("e2b", "Q8_0", "gemma4:e2b-q8_0-mtp")
    assert catalog.find("gemma4:26b-ud-q6_k-mtp").quant == "UD-Q6_K"
    for bad in ("gemma4", "gemma4:e2b", "gemma4:e3b-mtp", "no name!", "gemma4:e2b-dflash"):
        with pytest.raises(NotFoundError):
            catalog.find(bad)
    with pytest.raises(NotFoundError) as caught:
        catalog.find("gema4:e2b-mtp")
    assert "gemma4:e2b-mtp" in str(caught.value.hint)


def test_a_users_recipe_is_pulled_with_its_profile_and_says_when_files_are_newer(
    hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    add_recipe(RECIPE)
    hub.put("me/Big-GGUF", "Big-Q4_K_M.gguf", hub_files.model("Big"))
    hub.put("me/Big-GGUF", "Big-Q8_0.gguf", hub_files.model("Big", seed=3))
    hub.put("me/Small-GGUF", "Small-Q8_0.gguf", hub_files.model("Small", seed=4))
    assert cli.run(["pull", "tiny:1b-draft", "--json", "--speculator"]) == 0
    captured = capsys.readouterr()
    out: dict[str, Any] = json.loads(captured.out)
    assert out["profile"]["spec"]["n_max"] == 5
    assert [entry["role"] for entry in out["files"]] == ["target", "drafter", "speculator"]
    assert "is newer than the catalogue" in captured.err
    assert cli.run(["pull", "tiny:1b-q8_0-draft", "--dry-run"]) == 0
    assert "Big-Q8_0.gguf" in capsys.readouterr().out


def test_a_recipe_whose_files_became_something_else_is_refused(
    hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    add_recipe(RECIPE)
    hub.put("me/Big-GGUF", "Big-Q4_K_M.gguf", hub_files.model("Big", arch="qwen3"))
    hub.put("me/Small-GGUF", "Small-Q8_0.gguf", hub_files.model("Small"))
    assert cli.run(["pull", "tiny:1b-draft"]) == 6
    assert "'qwen3', not 'llama'" in capsys.readouterr().err
    assert hub.downloads(".gguf") == []


def test_an_embedded_recipe_needs_the_head_inside(
    hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    repo = "unsloth/Qwen3.5-4B-MTP-GGUF"
    hub.put(repo, "Qwen3.5-4B-Q4_K_M.gguf", hub_files.model(arch="qwen35"))
    assert cli.run(["pull", "qwen3.5:4b-mtp"]) == 6
    assert "no drafting head inside" in capsys.readouterr().err
    hub.put(repo, "Qwen3.5-4B-Q4_K_M.gguf", hub_files.embedded())
    assert cli.run(["pull", "qwen3.5:4b-mtp", "--no-register"]) == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("kind: draft", "kind: magic"), "kind"),
        (("    evidence: [measured at home]\n", ""), "says nowhere how we know"),
        (("me/Big-GGUF", "https://x/y/z"), "OWNER/REPOSITORY"),
        (("min_tag: 9409", "min_tag: soon"), "min_tag"),
        (("recipes:", "recipes: ["), "not YAML"),
    ],
)
def test_a_broken_recipe_is_an_error_that_names_the_file(
    change: tuple[str, str], words: str
) -> None:
    add_recipe(RECIPE.replace(*change))
    with pytest.raises(ConfigError) as caught:
        catalog.available()
    assert "mine.yaml" in str(caught.value) and words in str(caught.value)
