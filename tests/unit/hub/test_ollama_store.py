"""Reading Ollama's folder: manifests in any spelling, and who is kept out by what (case 40)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ollama_spec.ollama_store import (
    OllamaStore,
    Reader,
    Unreadable,
    require_readable,
    root_of_modelfile,
)

STRANGER = Reader(uid=54321, gids=frozenset([54321]))


def digest(letter: str) -> str:
    return f"sha256:{letter * 64}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with the model Me/Big:Q4 made of a target, a drafter and two parameter layers."""
    root = tmp_path / "models with a space"
    blobs = root / "blobs"
    blobs.mkdir(parents=True)
    media = "application/vnd.ollama.image."
    layers = [
        {"mediaType": f"{media}model", "digest": digest("a"), "size": 10},
        {"mediaType": f"{media}draft", "digest": digest("b"), "size": 3},
        {"mediaType": f"{media}params", "digest": digest("c"), "size": 3},
        {"mediaType": f"{media}params", "digest": digest("d"), "size": 3},
        {"mediaType": "something/else", "digest": digest("e"), "size": 3},
    ]
    manifest = {"config": {"digest": digest("f")}, "layers": layers}
    place = root / "manifests/registry.ollama.ai/Me/Big/Q4"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(manifest))
    contents = {"a": "x" * 10, "b": "y" * 3, "c": '{"top_k": 1}', "d": '{"top_k": 2}', "f": "{}"}
    for letter, text in contents.items():
        (blobs / digest(letter).replace(":", "-")).write_text(text)
    return root


def test_a_model_is_found_in_any_spelling_and_the_last_layer_counts(root: Path) -> None:
    for spelling in ("Me/Big:Q4", "me/big:q4", "registry.ollama.ai/ME/BIG:q4"):
        model = OllamaStore(root).find(spelling)
        assert model is not None
        drafter = model.weight("draft")
        assert drafter is not None and drafter.path.read_text() == "yyy"
        assert model.json("params") == {"top_k": 2}
        assert model.weight("projector") is None
    for missing in ("me/big", "big:q4", "../x", ""):
        assert OllamaStore(root).find(missing) is None


def test_the_servers_own_modelfile_tells_where_the_store_is(root: Path) -> None:
    blob = root / "blobs" / digest("a").replace(":", "-")
    text = f"# Modelfile\n\nFROM {blob}\nDRAFT {blob}\n"
    assert root_of_modelfile(text) == root
    assert root_of_modelfile("FROM llama3\n") is None


def test_case_40_the_blocking_component_and_the_smallest_change_are_named(root: Path) -> None:
    blob = root / "blobs" / digest("a").replace(":", "-")
    for part in [root.parent, *root.parents]:
        if part.stat().st_uid == os.getuid() and part != Path("/") and part != Path("/tmp"):
            part.chmod(part.stat().st_mode | 0o055)
    require_readable(blob, reader=STRANGER)
    (root / "blobs").chmod(0o750)
    with pytest.raises(Unreadable) as caught:
        require_readable(blob, reader=STRANGER)
    assert f"may not enter {root / 'blobs'} (drwxr-x---" in str(caught.value)
    assert "setfacl" in str(caught.value.hint) or "usermod" in str(caught.value.hint)
    assert (root / "blobs").stat().st_mode & 0o777 == 0o750
    (root / "blobs").chmod(0o755)
    blob.chmod(0o600)
    with pytest.raises(Unreadable) as caught:
        require_readable(blob, reader=STRANGER)
    assert f"may not read {blob}" in str(caught.value)
    assert "setfacl -m u:54321:r" in str(caught.value.hint)


def test_a_group_that_may_read_is_the_smaller_change(root: Path) -> None:
    facts = os.stat_result((0o100640, 0, 0, 1, 999, 998, 0, 0, 0, 0))
    assert not STRANGER.may(facts, 4)
    assert Reader(54321, frozenset([998])).may(facts, 4)
    assert Reader(999, frozenset()).may(facts, 4)
    assert Reader(0, frozenset()).may(facts, 4)
