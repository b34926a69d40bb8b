"""Which Ollama, which tag, which engine (CASES 40)."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ollama_spec.build import (
    check,
    engines,
    llama_version,
    ollamas,
    tags,
)
from ollama_spec.build.detect import EngineVerdict, Report, choose, pick
from ollama_spec.build.gpu import Gpu, GpuReport
from ollama_spec.build.ollamas import Binary, Server
from ollama_spec.build.tags import Conclusion, TagTable
from ollama_spec.errors import BuildError

FACTS = TagTable(
    releases={"0.30.1": "b9479", "0.32.15": "b10488", "0.32.15-rc1": "b10488"},
    commits={"b10380": "abcdef1234567"},
    sdists=[9409, 9484, 10488],
)


@pytest.mark.parametrize(
    ("text", "build", "commit"),
    [
        ("version: 10380 (5a1b2c3d)\nbuilt with GNU", 10380, "5a1b2c3d"),
        ("version: 1 (5a1b2c3d)", None, "5a1b2c3d"),
        ("version: 0.1.2-dev (build 10488, commit 5a1b2c3d4)", 10488, "5a1b2c3d4"),
        ("noise\nversion: 0.2.0-dev (build 1, commit 5a1b2c3d4)", None, "5a1b2c3d4"),
        ("version: 0.1.2-dev (build 10488, commit unknown)", 10488, None),
        ("version: 0 (unknown)", None, None),
    ],
)
def test_every_version_format(text: str, build: int | None, commit: str | None) -> None:
    version = llama_version.parse(text)
    assert version is not None and (version.build, version.commit) == (build, commit)


def test_no_version_line_is_none() -> None:
    assert llama_version.parse("usage: llama-server") is None


def conclude(server: str | None, binary: str | None, llama: str | None = None) -> Conclusion:
    found = llama_version.parse(llama) if llama else None
    return tags.conclude(server, binary, found, FACTS)


def test_the_binarys_build_number_beats_the_release_table() -> None:
    found = conclude("0.32.15", "0.32.15", "version: 10380 (5a1b2c3d)")
    assert found.tag == "b10380" and "build number" in found.how


def test_a_known_commit_names_its_tag() -> None:
    found = conclude(None, "0.32.15", "version: 1 (abcdef12)")
    assert (found.tag, found.commit) == ("b10380", "abcdef12")


def test_build_1_with_an_unknown_commit_falls_back_to_the_table() -> None:
    found = conclude("0.32.15", "0.32.15", "version: 1 (5a1b2c3d)")
    assert (found.tag, found.commit) == ("b10488", "5a1b2c3d")
    assert found.how == "release table: Ollama 0.32.15"


def test_the_server_decides_when_it_differs_from_the_program() -> None:
    found = conclude("0.30.1", "0.32.15", "version: 10488 (5a1b2c3d)")
    assert found.tag == "b9479"
    assert found.warning and "0.30.1" in found.warning and "0.32.15" in found.warning


def test_an_unknown_release_needs_assume() -> None:
    assert conclude("0.32.99", None).tag is None
    assumed = tags.conclude("0.32.99", None, None, FACTS, assume=True)
    assert assumed.tag == "b10488" and "0.32.15" in assumed.how
    with pytest.raises(BuildError, match=r"0\.32\.99 is in no table"):
        tags.require(conclude("0.32.99", None))


def test_what_refresh_learns_is_kept_and_used() -> None:
    tags.learn({"0.99.0": "b20000"}, {"b20000": "fedcba987"})
    tags.learn({"0.99.1": "b20001"}, {})
    facts = tags.table()
    assert (facts.releases["0.99.0"], facts.releases["0.99.1"]) == ("b20000", "b20001")
    assert facts.commits["b20000"] == "fedcba987"
    assert facts.releases["0.32.15"] == "b10488"  # the shipped facts stay


def test_the_shipped_table_holds_all_pins() -> None:
    facts = tags.table()
    pins = tags.pins(facts)
    assert len(facts.releases) >= 104
    assert pins == sorted(pins, key=lambda tag: int(tag[1:])) and pins[0] == "b9452"
    assert {"b9479", "b9888", "b10091", "b10488"} <= set(pins)
    assert tags.nearest_sdist("b9452", facts) == "b9453"
    assert tags.nearest_sdist("b10434", facts) == "b10435"
    assert check.resolve_tags("all")[-1] == "b11434"
    assert check.resolve_tags("b1, b2") == ["b1", "b2"]


@pytest.mark.parametrize(
    ("value", "url"),
    [
        (None, "http://127.0.0.1:11434"),
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        (":8080", "http://127.0.0.1:8080"),
        ("example.com", "http://example.com:11434"),
        ("http://example.com", "http://example.com:80"),
        ("https://example.com", "https://example.com:443"),
        ("https://example.com/ollama/", "https://example.com:443/ollama"),
        (' "10.0.0.1:1234" ', "http://10.0.0.1:1234"),
    ],
)
def test_ollama_host_is_read_as_ollama_reads_it(value: str | None, url: str) -> None:
    assert ollamas.server_url(value) == url


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("ollama version is 0.32.15\n", "0.32.15"),
        ("ollama version is 0.30.1\nWarning: client version is 0.31.0\n", "0.31.0"),
        (
            "Warning: could not connect to a running Ollama instance\n"
            "Warning: client version is 0.32.15\n",
            "0.32.15",
        ),
        ("something", None),
    ],
)
def test_the_client_line_is_the_programs_own_version(text: str, version: str | None) -> None:
    assert ollamas.parse_client_version(text) == version


def test_programs_and_libraries_are_found_through_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "real/bin/ollama"
    library = tmp_path / "real/lib/ollama"
    (library / "cuda_v12").mkdir(parents=True)
    (library / "libggml-cpu-haswell.so").touch()
    (library / "cuda_v12/libggml-cuda.so").touch()
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'ollama version is 9.9.9'\n")
    program.chmod(0o755)
    (tmp_path / "path").mkdir()
    (tmp_path / "path/ollama").symlink_to(program)
    monkeypatch.setenv("PATH", f"{tmp_path}/path{os.pathsep}/bin")

    found = ollamas.candidates()
    assert "PATH" in found[program]
    binary = ollamas.inspect(program, found[program])
    assert (binary.version, binary.library, binary.llama_server) == ("9.9.9", library, None)
    assert binary.backends == ["cpu", "cuda_v12"]


def binary(version: str, *found: str, server: bool = True) -> Binary:
    path = Path(f"/opt/{version}/bin/ollama")
    return Binary(
        path=path,
        found=list(found),
        version=version,
        library=path.parent,
        llama_server=path.parent / "llama-server" if server else None,
    )


def test_the_program_of_the_running_server_is_chosen() -> None:
    old, new = binary("0.30.1", "process"), binary("0.32.15", "PATH")
    assert choose(Server(url="u", version="0.30.1"), [new, old]) == old
    assert choose(Server(url="u"), [new, binary("0.32.15", "PATH", server=False)]) == new
    assert choose(Server(url="u"), []) is None


def verdicts(**works: bool) -> list[EngineVerdict]:
    return [EngineVerdict(engine=name, works=ok, reason="") for name, ok in works.items()]


def test_engines_are_picked_in_order() -> None:
    gpu = GpuReport(gpus=[Gpu(name="x", compute_capability="8.9")])
    assert pick(verdicts(thin=True, docker=True, native=True), gpu) == "thin"
    assert pick(verdicts(thin=False, docker=True, native=True), gpu) == "docker"
    assert pick(verdicts(thin=False, docker=True, native=True), GpuReport()) == "native"


def report(tag: str | None, engine: str = "thin") -> Report:
    item = binary("0.32.15", "PATH")
    return Report(
        server=Server(url="u"),
        binaries=[item],
        chosen=item.path,
        conclusion=Conclusion(tag=tag, how="h"),
        confirmed="not asked",
        gpu=GpuReport(),
        engines=[],
        engine=engine,
    )


def test_a_gpu_decides_what_auto_and_native_build(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = GpuReport(gpus=[Gpu(name="x", compute_capability="8.6")])
    works = [EngineVerdict(engine=name, works=True, reason="") for name in ("thin", "docker")]
    here = report("b10380").model_copy(update={"gpu": gpus, "engines": works})
    assert engines.decide(engines.Request(tag="b9409"), here).engine == "docker"
    without = here.model_copy(update={"engines": works[:1]})
    assert engines.decide(engines.Request(tag="b9409"), without).engine == "native"
    monkeypatch.setattr(engines.gpu, "report", lambda: gpus)
    monkeypatch.setattr(engines.cuda_toolkit, "home", lambda: Path("/usr/local/cuda"))
    assert engines.native_backend(engines.Request()) == "cuda"
    assert engines.native_backend(engines.Request(backend="cpu")) == "cpu"
    asked = engines.Request(tag="b9409", backend="cuda")
    assert engines.decide(asked, without).engine == "native"
    assert engines.decide(asked, here).engine == "docker"
    monkeypatch.setattr(engines.cuda_toolkit, "home", lambda: None)
    assert engines.native_backend(engines.Request()) == "cpu"


def test_auto_builds_what_ollama_carries() -> None:
    choice = engines.decide(engines.Request(), report("b10380"))
    assert (choice.tag, choice.engine) == ("b10380", "thin")
    other = engines.decide(engines.Request(tag="b9409"), report("b10380"))
    assert (other.tag, other.engine) == ("b9409", "native")
    with pytest.raises(BuildError, match=r"no llama.cpp tag could be concluded"):
        engines.decide(engines.Request(), report(None))


@pytest.mark.parametrize(
    ("engine", "option", "value", "words"),
    [
        ("docker", "stock", True, "--stock is for the engine native; this build takes docker"),
        ("native", "library", Path("/x"), "--library is for the engine thin"),
        ("native", "base_image", "debian:12", "--base-image is for the engine docker"),
        ("native", "in_container", True, "--in-container is for the engine docker"),
    ],
)
def test_options_the_engine_does_not_know_are_refused(
    engine: str, option: str, value: object, words: str
) -> None:
    request = engines.Request(tag="b9409", engine=engine)
    assert engines.choose(request).engine == engine
    with pytest.raises(BuildError) as caught:
        engines.choose(replace(request, **{option: value}))  # type: ignore[arg-type]
    assert words in caught.value.message and "--engine" in str(caught.value.hint)


def test_the_table_gives_the_commit_a_binary_does_not_tell() -> None:
    facts = tags.table()
    silent = Conclusion(tag="b10488", how="llama-server's build number")
    found = tags.with_commit(silent, facts)
    assert found.commit == "9d77fa17254e1dee4b9e92504c91611a60b1359f"
    assert found.commit_by == "table of tags"
    told = silent.model_copy(update={"commit": "9d77fa172"})
    assert tags.with_commit(told, facts) == told and told.commit_by == "llama-server"
    unknown = Conclusion(tag="b1", how="x")
    assert tags.with_commit(unknown, facts).commit is None
    assert all(len(commit) in (9, 40) for commit in facts.commits.values())
