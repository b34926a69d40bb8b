"""`pull` through the command line against a server that speaks the hub's API."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fakes import hub_files
from fakes.hub import FakeHub

from ollama_spec import cli, lock
from ollama_spec.artefacts import ArtefactStore, Manifest
from ollama_spec.hub import download
from ollama_spec.modelfile import memory
from ollama_spec.store import ModelStore, weights_dir

TARGET = "me/Big-GGUF"
DRAFT = "me/Small-GGUF"
PULL = ["pull", f"hf.co/{TARGET}:Q4_K_M", "--draft", f"hf.co/{DRAFT}:Q8_0", "--name", "pair"]


def serve_pair(hub: FakeHub, bulk: int = 300_000) -> None:
    hub.put(TARGET, "Big-Q4_K_M.gguf", hub_files.model("Big", bulk=bulk, seed=1))
    hub.put(TARGET, "README.md", b"# Big", lfs=False)
    hub.put(DRAFT, "Small-Q8_0.gguf", hub_files.model("Small", bulk=5000, seed=2))


def leftovers() -> list[str]:
    return sorted(
        path.name
        for path in weights_dir().rglob("*")
        if path.is_file() and not path.name.endswith(".lock")
    )


def report(text: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(text)
    return value


def test_a_pair_is_fetched_checked_recorded_and_locked(
    hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_pair(hub)
    assert cli.run([*PULL, "--json"]) == 0
    out = report(capsys.readouterr().out)
    assert (out["status"], out["registered"]) == ("pulled", False)
    record = ModelStore().get("pair")
    assert record.drafter is not None
    content = record.target.path.read_bytes()
    assert content == hub.files[TARGET]["Big-Q4_K_M.gguf"]
    assert record.target.sha256 == hashlib.sha256(content).hexdigest()
    assert record.target.revision == hub.commit
    assert record.profile.spec.type == "draft-simple"
    assert leftovers() == ["Big-Q4_K_M.gguf", "Small-Q8_0.gguf"]
    made = lock.find("pair")
    assert made is not None and made.drafter is not None
    assert made.target.files[0].sha256 == record.target.sha256
    assert made.drafter.revision == hub.commit


def test_a_second_pull_moves_no_byte(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    serve_pair(hub)
    assert cli.run(PULL) == 0
    before = len(hub.downloads(".gguf"))
    assert cli.run(PULL) == 0
    assert "up to date" in capsys.readouterr().out
    assert len(hub.downloads(".gguf")) == before


def test_dry_run_fetches_nothing(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    serve_pair(hub)
    assert cli.run([*PULL, "--dry-run"]) == 0
    assert "Big-Q4_K_M.gguf" in capsys.readouterr().out
    assert hub.downloads(".gguf") == []
    assert leftovers() == []


def test_case_25_a_broken_connection_goes_on_within_one_run(hub: FakeHub) -> None:
    serve_pair(hub)
    size = len(hub.files[TARGET]["Big-Q4_K_M.gguf"])
    hub.faults.drop_after = {"Big-Q4_K_M.gguf": size * 6 // 10}
    assert cli.run(PULL) == 0
    transfers = hub.downloads("Big-Q4_K_M.gguf")
    assert sum(item.sent for item in transfers if item.origin == "cdn") == size


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_case_25_a_stopped_pull_goes_on_with_the_rest(hub: FakeHub, how: signal.Signals) -> None:
    serve_pair(hub)
    size = len(hub.files[TARGET]["Big-Q4_K_M.gguf"])
    hub.faults.bytes_per_second = 600_000
    process = subprocess.Popen(
        [sys.executable, "-m", "ollama_spec", *PULL], stderr=subprocess.PIPE, text=True
    )
    while not (partial := list(weights_dir().rglob("Big*.partial"))) or (
        partial[0].stat().st_size < size * 6 // 10
    ):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(how)
    said = process.communicate(timeout=20)[1]
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert "goes on from there" in said
    assert ModelStore().find("pair") is None
    kept = partial[0].stat().st_size
    assert size * 6 // 10 <= kept < size
    hub.faults.bytes_per_second = 0
    before = len(hub.requests)
    assert cli.run(PULL) == 0
    rest = [
        item
        for item in hub.requests[before:]
        if item.path.endswith("Big-Q4_K_M.gguf") and item in hub.downloads("Big-Q4_K_M.gguf")
    ]
    assert [(item.range, item.sent) for item in rest] == [(f"bytes={kept}-", size - kept)]
    assert ModelStore().get("pair").target.path.read_bytes() == hub.files[TARGET]["Big-Q4_K_M.gguf"]


def test_two_pulls_at_once_share_one_transfer(hub: FakeHub) -> None:
    serve_pair(hub)
    size = len(hub.files[TARGET]["Big-Q4_K_M.gguf"])
    hub.faults.bytes_per_second = 800_000
    other_name = [*PULL[:-1], "other"]
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "ollama_spec", *argv], stderr=subprocess.PIPE, text=True
        )
        for argv in (PULL, PULL, other_name)
    ]
    said = [process.communicate(timeout=60)[1] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], said
    assert sum(item.sent for item in hub.downloads("Big-Q4_K_M.gguf")) == size
    assert any("is being fetched by process" in text for text in said)
    assert ModelStore().get("pair").target == ModelStore().get("other").target


def test_case_25_content_that_changed_between_runs_restarts(
    hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_pair(hub)
    listing_folder = weights_dir() / TARGET / hub.commit[:12]
    listing_folder.mkdir(parents=True)
    (listing_folder / "Big-Q4_K_M.gguf.00aa00aa00aa00aa.partial").write_bytes(b"old" * 1000)
    assert cli.run(PULL) == 0
    assert "changed on the hub since an earlier run" in capsys.readouterr().err
    assert leftovers() == ["Big-Q4_K_M.gguf", "Small-Q8_0.gguf"]


def test_a_server_without_ranges_starts_over_and_says_so(
    hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_pair(hub)
    hub.faults.drop_after = {"Big-Q4_K_M.gguf": 500_000}
    hub.faults.drops_left = 1
    hub.faults.ignore_ranges = True
    assert cli.run(PULL) == 0
    assert "starts from the beginning" in capsys.readouterr().err


@pytest.mark.parametrize("at", [100_000, 1_000_000])
def test_case_25_a_flipped_byte_is_found(
    hub: FakeHub, capsys: pytest.CaptureFixture[str], at: int
) -> None:
    serve_pair(hub)
    hub.faults.flip = {"Big-Q4_K_M.gguf": at}
    assert cli.run(PULL) == 5
    assert "arrived damaged" in capsys.readouterr().err
    assert ModelStore().find("pair") is None
    assert leftovers() == []


def test_a_flipped_byte_of_a_file_kept_in_git_is_found_too(
    hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.put(TARGET, "Big-Q4_K_M.gguf", hub_files.model(bulk=4000), lfs=False)
    hub.faults.flip = {"Big-Q4_K_M.gguf": 15_000}
    assert cli.run(["pull", f"hf.co/{TARGET}", "--name", "one"]) == 5
    assert "arrived damaged" in capsys.readouterr().err


def test_an_etag_other_than_the_listed_hash_is_refused(
    hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_pair(hub)
    hub.faults.served_etag = {"Big-Q4_K_M.gguf": "ab" * 32}
    assert cli.run(PULL) == 5
    assert "changed on the hub while" in capsys.readouterr().err
    assert ModelStore().find("pair") is None
    assert leftovers() == []


def test_a_pointer_file_and_a_web_page_are_named_as_such(
    hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    for body, words in (
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "LFS pointer"),
        (b"<!DOCTYPE html><html>please log in</html>", "web page"),
    ):
        hub.put(TARGET, "Big-Q4_K_M.gguf", body)
        assert cli.run(["pull", f"hf.co/{TARGET}:Q4_K_M", "--name", "one"]) == 5
        err = capsys.readouterr().err
        assert words in err and "hint:" in err
        assert leftovers() == []


def test_a_proxy_that_answers_the_download_with_a_page_is_found(
    hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_pair(hub)
    good = hub.files[TARGET]["Big-Q4_K_M.gguf"]
    page = b"<!DOCTYPE html>captive portal".ljust(len(good), b" ")
    hub.faults.body = {"Big-Q4_K_M.gguf": page}
    hub.faults.body_after_headers = True
    assert cli.run(PULL) == 5
    assert "web page" in capsys.readouterr().err
    assert leftovers() == []


def test_shards_come_together_and_a_missing_one_is_named(
    hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (1, 2, 3):
        content = hub_files.model(
            "Split", bulk=3000, seed=number, split__no=number - 1, split__count=3
        )
        hub.put(TARGET, f"Split-Q4_K_M-0000{number}-of-00003.gguf", content)
    assert cli.run(["pull", f"hf.co/{TARGET}:Q4_K_M", "--name", "split"]) == 0
    record = ModelStore().get("split")
    assert record.target.path.name.endswith("-00001-of-00003.gguf")
    assert record.target.size == sum(len(data) for data in hub.files[TARGET].values())
    assert len(leftovers()) == 3
    ModelStore().remove("split")
    assert leftovers() == []
    assert lock.find("split") is None
    del hub.files[TARGET]["Split-Q4_K_M-00002-of-00003.gguf"]
    assert cli.run(["pull", f"hf.co/{TARGET}:Q4_K_M", "--name", "split"]) == 5
    assert "lacks 1 of 3 shards: Split-Q4_K_M-00002-of-00003.gguf" in capsys.readouterr().err


def test_no_space_is_said_before_the_first_byte(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_pair(hub)
    real = shutil.disk_usage

    def nearly_full(path: Path) -> Any:
        return real(path)._replace(free=1_000_000)

    monkeypatch.setattr("shutil.disk_usage", nearly_full)
    assert cli.run(PULL) == 5
    err = capsys.readouterr().err
    assert "are free" in err and "1.0 MB" in err
    assert hub.downloads(".gguf") == []


def test_a_pair_with_different_vocabularies_leaves_nothing(
    hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    other = hub_files.vocabulary()
    other[17] = "something else"
    hub.put(TARGET, "Big-Q4_K_M.gguf", hub_files.model("Big"))
    hub.put(DRAFT, "Small-Q8_0.gguf", hub_files.model("Small", tokens=other))
    assert cli.run(PULL) == 6
    assert "token 17" in capsys.readouterr().err
    assert ModelStore().find("pair") is None
    assert leftovers() == []


def test_a_file_too_large_for_plain_http_comes_through_the_library_and_is_hashed(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(download, "XET_ONLY_BYTES", 100_000)
    serve_pair(hub)
    assert cli.run(PULL) == 0
    assert "an interruption starts it again" in capsys.readouterr().err
    assert ModelStore().get("pair").target.path.read_bytes() == hub.files[TARGET]["Big-Q4_K_M.gguf"]
    assert leftovers() == ["Big-Q4_K_M.gguf", "Small-Q8_0.gguf"]
    ModelStore().remove("pair")
    hub.faults.flip = {"Big-Q4_K_M.gguf": 900_000}
    assert cli.run(PULL) == 5
    assert "arrived damaged" in capsys.readouterr().err
    assert leftovers() == []


def test_case_15_a_runner_too_old_for_the_pair_is_said_before_the_download(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ArtefactStore().root / "old"
    folder.mkdir(parents=True)
    manifest = Manifest(
        key="old", tag="b9409", commit="0" * 40, source="test", overlay=None, engine="native",
        flags=[],
    )  # fmt: skip
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    (folder.parent / "current").symlink_to("old")
    hub.put(TARGET, "gemma-Q4_K_M.gguf", hub_files.model(arch="gemma4", bulk=40_000))
    hub.put(TARGET, "mtp-gemma.gguf", hub_files.head_only())
    assert cli.run(["pull", f"hf.co/{TARGET}", "--name", "late"]) == 6
    err = capsys.readouterr().err
    assert "llama.cpp b9409 cannot run late:latest; needs >= b9549" in err
    assert "ollama-spec build" in err
    assert hub.downloads(".gguf") == []


def test_more_memory_than_is_free_is_told_not_refused(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_pair(hub)
    monkeypatch.setattr(memory, "free_ram", lambda: 1_000_000)
    monkeypatch.setattr(memory, "free_gpu", lambda: 0)
    assert cli.run(PULL) == 0
    assert "of memory at 2048 tokens, 1.0 MB are free now" in capsys.readouterr().err
