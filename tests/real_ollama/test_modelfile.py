"""Our Modelfiles, read by the real `ollama create`: the same model comes out (CASES 11, 30, 31)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from fixtures import wired
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from real_ollama.servers import RealOllama

from ollama_spec.cli import run
from ollama_spec.errors import ModelfileError
from ollama_spec.modelfile import parser, writer
from ollama_spec.modelfile.syntax import Instruction
from ollama_spec.store import ModelStore

_AWKWARD = [
    "<|im_end|>",
    'has "quotes" inside',
    '"quoted"',
    ' """ in the middle',
    "  spaces around  ",
    "a # b",
    "two\nlines\n\n",
    'ends with a quote"',
    '"',
    "user: colon",
    "naïve 日本語 🚀",
]


def _create(server: RealOllama, name: str, text: str, folder: Path) -> str:
    """`ollama create`; its error text, empty when it worked."""
    (folder / "Modelfile").write_text(text)
    argv = [str(server.program), "create", name, "-f", str(folder / "Modelfile")]
    done = subprocess.run(argv, env=server.env, capture_output=True, text=True, timeout=120)
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def _layers(server: RealOllama, name: str) -> dict[str, list[str]]:
    """Text of the small layers by kind, in order."""
    path = server.models / "manifests/registry.ollama.ai/library" / name / "latest"
    found: dict[str, list[str]] = {}
    for layer in json.loads(path.read_bytes())["layers"]:
        kind = layer["mediaType"].rpartition(".")[2]
        if kind in ("system", "template", "params", "messages", "license"):
            blob = server.models / "blobs" / layer["digest"].replace(":", "-")
            # Bytes, for reading as text would turn line ends into others.
            found.setdefault(kind, []).append(blob.read_bytes().decode())
    return found


def _agrees(server: RealOllama, name: str, want: parser.Modelfile) -> None:
    layers = _layers(server, name)
    assert layers.get("system") == ([want.system] if want.system else None)
    if want.template:
        assert layers["template"] == [want.template]
    assert layers.get("license", []) == list(want.licenses)
    messages = [(item["role"], item["content"]) for item in json.loads(_one(layers, "messages"))]
    assert messages == list(want.messages)
    stored = json.loads(_one(layers, "params", "{}"))
    for key, value in want.parameters.items():
        expected = pytest.approx(value, rel=1e-6) if isinstance(value, float) else value
        assert stored[key] == expected, key


def _one(layers: dict[str, list[str]], kind: str, absent: str = "[]") -> str:
    return layers[kind][0] if kind in layers else absent


@pytest.mark.parametrize("value", _AWKWARD)
def test_case_30_what_we_write_the_real_ollama_reads(
    real_ollama: RealOllama, tmp_path: Path, value: str
) -> None:
    wanted = parser.Modelfile(
        froms=(Instruction("from", "", "smol", 1),),
        system=value,
        licenses=(value, "MIT"),
        messages=(("user", value), ("assistant", "yes")),
        parameters={"stop": [value, "b"], "temperature": 0.3, "num_ctx": 2048, "top_k": 7},
    )
    text = writer.write(wanted)
    assert _create(real_ollama, "awkward", text, tmp_path) == ""
    _agrees(real_ollama, "awkward", wanted)
    _agrees(real_ollama, "awkward", parser.parse(text))


_TEXT = st.text(st.characters(exclude_categories=("Cs",)) | st.sampled_from('\n" \t#{}%'))


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(system=_TEXT, stops=st.lists(_TEXT, max_size=2), answer=_TEXT)
def test_any_text_that_we_write_is_read_alike(
    real_ollama: RealOllama, tmp_path: Path, system: str, stops: list[str], answer: str
) -> None:
    parameters: dict[str, Any] = {"stop": stops} if stops else {}
    wanted = parser.Modelfile(
        froms=(Instruction("from", "", "smol", 1),),
        system=system,
        messages=(("user", "x"), ("assistant", answer)),
        parameters=parameters,
    )
    try:
        text = writer.write(wanted)
    except ModelfileError:
        return  # said to be unwritable, so nothing is changed in silence
    assert _create(real_ollama, "any", text, tmp_path) == ""
    _agrees(real_ollama, "any", wanted)


@pytest.mark.parametrize(
    "text",
    [
        'FROM smol\nSYSTEM """one\ntwo"""\n',
        'FROM smol\nSYSTEM "a" b\nc"\n',
        "from smol\r\nsystem hello   \r\nPARAMETER stop x\r\n",
        "# c\n  FROM smol\n\tSYSTEM  a\u00a0b\u200dc \u3000\n",
        "FROM smol\nSYSTEM one\nSYSTEM two\nPARAMETER top_p 0.5\nPARAMETER top_p 0.7",
        "FROM smol\nMESSAGE user a: b\nPARAMETER stop a b\nPARAMETER stop c\nPARAMETER seed -1\n",
        'FROM smol\nSYSTEM "\n\n spaced \n"   \nLICENSE x\n',
        "FROM smol\nTEMPLATE {{ .System }} {{ .Prompt }}\nPARAMETER use_mmap false\nSYSTEM 'x'",
        "FROM smol\nSYSTEM \nPARAMETER mirostat 1\n",
    ],
)
def test_what_both_read_is_the_same(real_ollama: RealOllama, tmp_path: Path, text: str) -> None:
    assert _create(real_ollama, "both", text, tmp_path) == ""
    _agrees(real_ollama, "both", parser.parse(text))


@pytest.mark.parametrize(
    "text",
    [
        "SYSTEM x\n",
        "FROM smol\nFORM x\n",
        "FROM smol\nMESSAGE robot x\n",
        'FROM smol\nSYSTEM """open\n',
        "FROM smol\nPARAMETER num_ctx many\n",
        "FROM smol\nPARAMETER foo 1\n",
        "FROM smol\nREQUIRES soon\n",
        "FROM\n",
    ],
)
def test_what_the_real_ollama_refuses_we_refuse(
    real_ollama: RealOllama, tmp_path: Path, text: str
) -> None:
    assert _create(real_ollama, "refused", text, tmp_path) != ""
    with pytest.raises(ModelfileError):
        parser.parse(text)


def test_case_11_a_model_of_ollama_through_our_writer_keeps_its_capabilities(
    real_ollama: RealOllama,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (
        "FROM smol\nRENDERER qwen3-coder\nPARSER deepseek3\nPARAMETER stop <end>\nSYSTEM Be kind.\n"
    )
    assert _create(real_ollama, "capable", text, tmp_path) == ""
    monkeypatch.setenv("OLLAMA_MODELS", str(real_ollama.models))
    (tmp_path / "Ours").write_text("FROM capable\nPARAMETER top_k 7\n")
    assert run(["create", "ours", "-f", str(tmp_path / "Ours")]) == 0
    capsys.readouterr()
    assert run(["modelfile", "ours"]) == 0
    assert _create(real_ollama, "copy", capsys.readouterr().out, tmp_path) == ""
    before, after = _show(real_ollama, "capable"), _show(real_ollama, "copy")
    assert "thinking" in before["capabilities"] and "tools" in before["capabilities"]
    assert after["capabilities"] == before["capabilities"]
    assert after["system"] == before["system"] == "Be kind."
    assert "RENDERER qwen3-coder" in after["modelfile"]
    assert "PARSER deepseek3" in after["modelfile"]


def _show(server: RealOllama, name: str) -> dict[str, Any]:
    reply = httpx.post(f"{server.url}/api/show", json={"model": name}, trust_env=False)
    found: dict[str, Any] = reply.json()
    return found


def test_a_gemma4_pair_of_ours_drafts_in_plain_ollama(
    real_ollama: RealOllama, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Issue 6: create here, print the Modelfile, create there, see DRAFT, get an answer."""
    pair = wired.pair()
    (tmp_path / "Ours").write_text(
        f"FROM {pair.target}\nDRAFT {pair.drafter}\nSYSTEM Be brief.\n"
        "PARAMETER num_ctx 2048\nPARAMETER num_predict 40\nPARAMETER draft_num_predict 3\n"
    )
    assert run(["create", "wired", "-f", str(tmp_path / "Ours")]) == 0
    capsys.readouterr()
    assert run(["modelfile", "wired"]) == 0
    assert _create(real_ollama, "wired", capsys.readouterr().out, tmp_path) == ""
    program, env = str(real_ollama.program), real_ollama.env
    shown = subprocess.run(
        [program, "show", "--modelfile", "wired"], env=env, capture_output=True, text=True
    ).stdout
    record = ModelStore().get("wired")
    assert record.drafter is not None
    assert f"DRAFT {real_ollama.blob('wired', 'draft')}" in shown
    assert (record.drafter.sha256 or "?") in shown
    listed = subprocess.run([program, "list"], env=env, capture_output=True, text=True).stdout
    assert "wired:latest" in listed
    answer = subprocess.run(
        [program, "run", "wired", "The statement"],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert answer.returncode == 0 and answer.stdout.strip()
    log = (real_ollama.home / "ollama.log").read_text()
    assert "draft-mtp" in log
