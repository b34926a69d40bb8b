"""The command line of a runner that runs in its image; the containers are test_docker's."""

from __future__ import annotations

from pathlib import Path

import pytest

from ollama_spec.build import boxed


def test_files_are_read_only_and_what_is_to_be_made_is_writable(tmp_path: Path) -> None:
    models, blobs, run = (tmp_path / name for name in ("models", "blobs", "run"))
    for folder in (models, blobs, run):
        folder.mkdir()
    (blobs / "sha256-1").touch()
    (models / "a.gguf").symlink_to(blobs / "sha256-1")
    (run / "template.jinja").touch()
    arguments = ["--model", f"{models}/a.gguf", "--host", f"{run}/x.sock"]
    arguments += ["--chat-template-file", f"{run}/template.jinja", "--ctx-size", "512"]
    # A folder that holds both a file and the socket must be writable.
    assert boxed.mounts(arguments) == {models: "ro", blobs: "ro", run: "rw"}
    assert boxed.mounts(["/no/such/folder/file", "relative/file"]) == {}


def test_a_port_needs_the_hosts_network_and_a_socket_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GGML_SCHED_DEBUG", "1")
    closed = boxed.command("docker", "img", False, tmp_path, "llama-server", ["--host", "/s/x"])
    assert closed[closed.index("--network") + 1] == "none" and "--gpus" not in closed
    assert closed[closed.index("GGML_SCHED_DEBUG") - 1] == "--env"
    opened = boxed.command("docker", "img", True, tmp_path, "llama-server", ["--port", "80"])
    assert opened[opened.index("--network") + 1] == "host"
    assert opened[opened.index("--gpus") + 1] == "all"
    assert opened[-3:] == ["/ollama-spec/llama-server", "--port", "80"]
