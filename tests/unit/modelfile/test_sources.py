"""What FROM may name besides one file: shards, Ollama's own models; and runners too old (15)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures import gguf_make

from ollama_spec.artefacts import ArtefactStore, Manifest
from ollama_spec.cli import run
from ollama_spec.modelfile import parser, writer
from ollama_spec.store import ModelStore


def _create(folder: Path, text: str, name: str = "made") -> int:
    (folder / "Modelfile").write_text(text)
    return run(["create", name, "-f", str(folder / "Modelfile")])


def _shard(folder: Path, number: int, count: int = 2) -> Path:
    return gguf_make.write(
        folder / f"m-{number:05}-of-{count:05}.gguf",
        tensors={f"blk.{number}.ffn_norm.weight": np.zeros(8, np.float32)},
        keys={"split.no": number - 1, "split.count": count},
    )


def test_all_shards_count_and_all_must_be_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = _shard(tmp_path, 1)
    assert _create(tmp_path, f"FROM {first}") == 6
    assert "shard m-00002-of-00002.gguf is missing" in capsys.readouterr().err
    second = _shard(tmp_path, 2)
    assert _create(tmp_path, f"FROM {second}") == 6
    assert "name the first one: m-00001-of-00002.gguf" in capsys.readouterr().err
    assert _create(tmp_path, "FROM .") == 0
    target = ModelStore().get("made").target
    assert target.path == first
    assert target.size == first.stat().st_size + second.stat().st_size
    second.write_bytes(second.read_bytes()[:-8])
    assert _create(tmp_path, f"FROM {first}") == 6
    assert f"{second} is truncated" in capsys.readouterr().err


def _put_in_ollama(root: Path, name: str, layers: dict[str, bytes], config: dict[str, Any]) -> None:
    def blob(data: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        (root / "blobs" / f"sha256-{digest}").write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data)}

    folder = root / "manifests/registry.ollama.ai/library" / name
    folder.mkdir(parents=True)
    (root / "blobs").mkdir(exist_ok=True)
    manifest = {
        "config": blob(json.dumps(config).encode()),
        "layers": [
            {"mediaType": f"application/vnd.ollama.image.{kind}", **blob(data)}
            for kind, data in layers.items()
        ],
    }
    (folder / "latest").write_text(json.dumps(manifest))


def test_case_11_a_model_of_ollama_gets_a_drafter_and_keeps_all_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "models"
    weights = gguf_make.write(tmp_path / "t.gguf").read_bytes()
    gguf_make.write(tmp_path / "d.gguf", block_count=2)
    _put_in_ollama(
        root,
        "base",
        {
            "model": weights,
            "template": b"{{ .Prompt }}",
            "system": b"Be kind.",
            "params": b'{"stop": ["<end>"], "top_k": 5}',
            "license": b"MIT",
            "messages": b'[{"role": "user", "content": "hi"}]',
        },
        {"renderer": "gemma4", "parser": "gemma4"},
    )
    monkeypatch.setenv("OLLAMA_MODELS", str(root))
    assert _create(tmp_path, "FROM Base\nDRAFT ./d.gguf\nPARAMETER top_p 0.5") == 0
    made = ModelStore().get("made")
    assert made.target.path.parent == root / "blobs"  # no second copy
    assert made.drafter is not None and made.drafter.path == tmp_path / "d.gguf"
    assert (made.template, made.system, made.license) == ("{{ .Prompt }}", "Be kind.", ["MIT"])
    assert (made.renderer, made.parser) == ("gemma4", "gemma4")
    assert made.parameters == {"stop": ["<end>"], "top_k": 5, "top_p": 0.5}
    again = parser.parse(writer.of_record(made))
    assert (again.renderer, again.parser, again.template) == ("gemma4", "gemma4", "{{ .Prompt }}")
    assert again.messages == (("user", "hi"),)


def test_case_31_a_model_and_a_file_in_two_from_lines_is_refused_either_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gguf_make.write(tmp_path / "t.gguf")
    assert _create(tmp_path, "FROM ./t.gguf", "ours") == 0
    for text in ("FROM ours\nFROM ./t.gguf", "FROM ./t.gguf\nFROM ours"):
        assert _create(tmp_path, text) == 6
        assert "a second model in FROM" in capsys.readouterr().err


def test_case_15_the_runner_in_use_is_too_old_for_the_pair(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ArtefactStore()
    manifest = Manifest(
        key="old", tag="b9409", commit="0", source="x", overlay=None, engine="native", flags=[]
    )
    store.use(store.publish(store.staging("old"), manifest))
    gguf_make.gemma4_target(tmp_path / "t.gguf")
    gguf_make.gemma4_assistant(tmp_path / "a.gguf")
    assert _create(tmp_path, "FROM ./t.gguf\nDRAFT ./a.gguf") == 6
    assert "llama.cpp b9409 cannot run this pair; needs >= b9549" in capsys.readouterr().err
    assert ModelStore().list() == []
