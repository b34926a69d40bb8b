"""No child outlives its use: groups, TERM and KILL, orphans (CASES 38, Done-when 4)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest
from fakes.sidecar import FakeRunner, Sidecar, add_model

from ollama_spec import paths
from ollama_spec.runner import orphans


def start_serve(fake: FakeRunner, tmp_path: Path) -> tuple[subprocess.Popen[bytes], str]:
    ready = tmp_path / "ready.json"
    argv = [sys.executable, "-m", "ollama_spec", "serve", "--host", "127.0.0.1:0"]
    argv += ["--upstream", "", "--ready-file", str(ready), "--runner", str(fake.path)]
    process = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not ready.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    return process, json.loads(ready.read_text())["url"]


def wait_gone(pid: int, limit: float) -> None:
    deadline = time.monotonic() + limit
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.02)


def ask(url: str) -> None:
    body = {"model": "pair", "messages": [{"role": "user", "content": "hi"}], "stream": False}
    assert httpx.post(f"{url}/api/chat", json=body, timeout=30).status_code == 200


@pytest.mark.parametrize("stubborn", [False, True])
def test_case_38_kill_9_of_serve_leaves_no_child(
    fake: FakeRunner, tmp_path: Path, stubborn: bool
) -> None:
    add_model(tmp_path)
    fake.script(ignore_term=stubborn)
    process, url = start_serve(fake, tmp_path)
    ask(url)
    child = fake.events("start")[0]["pid"]
    process.kill()
    process.wait()
    wait_gone(child, 2)


def test_term_of_serve_ends_a_stubborn_child_and_its_child(
    fake: FakeRunner, tmp_path: Path
) -> None:
    add_model(tmp_path)
    fake.script(ignore_term=True, grandchild=True)
    process, url = start_serve(fake, tmp_path)
    ask(url)
    child = fake.events("start")[0]["pid"]
    grandchild = fake.events("grandchild")[0]["child"]
    process.terminate()
    assert process.wait(timeout=15) == 0
    wait_gone(child, 1)
    wait_gone(grandchild, 1)
    assert not list((paths.state_dir() / "children").glob("*.json"))
    assert not list(paths.runtime_dir().glob(f"{process.pid}-*.sock"))


def test_case_38_the_next_start_ends_what_the_last_one_left(
    fake: FakeRunner, tmp_path: Path
) -> None:
    """The grandchild survives kill -9 of serve (its parent only dies); the sweep ends the group."""
    add_model(tmp_path)
    orphan = subprocess.Popen(
        [str(fake.path), "--host", str(tmp_path / "o.sock")], start_new_session=True
    )
    time.sleep(0.3)
    record = orphans.PidRecord(
        pid=orphan.pid,
        started=psutil.Process(orphan.pid).create_time(),
        executable=str(fake.path),
        socket=str(tmp_path / "o.sock"),
        model="pair",
        owner=2**22 + 1,
        owner_started=1.0,
    )
    folder = paths.state_dir() / "children"
    paths.atomic_write(folder / f"{orphan.pid}.json", record.model_dump_json().encode())
    process, _ = start_serve(fake, tmp_path)
    assert orphan.wait(timeout=5) == -signal.SIGTERM
    process.terminate()
    process.wait()


def test_case_38_a_reused_pid_is_left_alone(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "30"], start_new_session=True)
    try:
        facts = {"executable": "/x/llama-server", "socket": "/x/1.sock", "model": "m"}
        record = orphans.PidRecord(
            pid=other.pid,
            started=psutil.Process(other.pid).create_time(),
            owner=2**22 + 1,
            owner_started=1.0,
            **facts,
        )
        path = paths.state_dir() / "children" / f"{other.pid}.json"
        paths.atomic_write(path, record.model_dump_json().encode())
        assert orphans.sweep() == []
        assert other.poll() is None
        assert not path.exists()
    finally:
        other.kill()
        other.wait()


async def test_children_of_a_living_sidecar_are_left_alone(front: Sidecar) -> None:
    await front.chat()
    assert orphans.sweep() == []
    assert (await front.chat())[0] == 200
    assert len(front.fake.events("start")) == 1


async def test_the_child_listens_where_only_we_can_reach_it(front: Sidecar) -> None:
    await front.chat()
    argv = front.fake.events("start")[0]["argv"]
    address = Path(argv[argv.index("--host") + 1])
    assert address.suffix == ".sock"
    assert os.stat(address.parent).st_mode & 0o077 == 0  # noqa: PTH116
    assert "--port" not in argv


def test_a_port_in_use_is_one_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        argv = [sys.executable, "-m", "ollama_spec", "serve", "--host", address]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    assert done.returncode == 8
    assert f"{address} is in use" in done.stderr
    assert "hint:" in done.stderr
