"""The systemd units: what is written and run, what a takeover moves, and that nothing is left.

systemd itself is not PID 1 here, so `systemctl` is a recorder; `systemd-analyze` is the real one.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ollama_spec import service
from ollama_spec.cli import run
from ollama_spec.errors import ConfigError, OllamaSpecError


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `systemctl` that writes down its arguments; it fails on what the file `fail` holds."""
    folder = tmp_path / "bin"
    folder.mkdir()
    log = tmp_path / "calls"
    log.touch()
    program = folder / "systemctl"
    program.write_text(
        f"""#!/bin/sh
echo "$*" >> {log}
[ -f {tmp_path}/fail ] && case "$*" in
  *"$(cat {tmp_path}/fail)"*) echo no such luck >&2; exit 1;;
esac
[ "$1" = show ] && cat {tmp_path}/environment 2>/dev/null
exit 0
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return log


def test_a_unit_of_ones_own_is_installed_started_and_removed(
    calls: Path, isolated_home: Path
) -> None:
    unit = isolated_home / "config" / "systemd" / "user" / service.UNIT
    assert run(["service", "install"]) == 0
    assert "-m ollama_spec serve\n" in unit.read_text()
    assert "User=" not in unit.read_text()
    assert calls.read_text().splitlines() == [
        "--user daemon-reload",
        "--user enable --now ollama-spec.service",
    ]
    assert run(["service", "uninstall"]) == 0
    assert not unit.exists()
    assert "--user disable --now ollama-spec.service" in calls.read_text()


def test_a_timer_follows_ollama_and_goes_with_the_service(calls: Path) -> None:
    folder = service.user_folder()
    assert run(["service", "install", "--follow"]) == 0
    assert "-m ollama_spec build follow\n" in (folder / service.FOLLOW).read_text()
    assert calls.read_text().splitlines() == [
        "--user daemon-reload",
        "--user enable --now ollama-spec.service",
        "--user enable --now ollama-spec-follow.timer",
    ]
    assert run(["service", "uninstall"]) == 0
    assert list(folder.iterdir()) == []
    assert "--user disable --now ollama-spec-follow.timer" in calls.read_text()


def test_print_changes_nothing(
    calls: Path, isolated_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["service", "install", "--print"]) == 0
    assert "ExecStart=" in capsys.readouterr().out
    assert calls.read_text() == ""
    assert not (isolated_home / "config" / "systemd").exists()


@pytest.mark.parametrize(
    ("environment", "listen"),
    [
        ("", "127.0.0.1:11434"),
        ("PATH=/usr/bin OLLAMA_HOST=0.0.0.0:11434", "0.0.0.0:11434"),
        ("OLLAMA_HOST=http://127.0.0.1:9999/", "127.0.0.1:9999"),
        ("OLLAMA_HOST=0.0.0.0", "0.0.0.0:11434"),
        ("OLLAMA_HOST=[::]:80", "[::]:80"),
        ("OLLAMA_HOST=:11434", "0.0.0.0:11434"),
        ("OLLAMA_HOST=127.0.0.1:11436", "127.0.0.1:11434"),  # our own drop-in is no old address
    ],
)
def test_a_takeover_listens_where_ollama_did(
    calls: Path, tmp_path: Path, environment: str, listen: str
) -> None:
    (tmp_path / "environment").write_text(environment)
    assert service.ollama_listens() == listen


def test_a_takeover_moves_ollama_and_comes_off_again(calls: Path, tmp_path: Path) -> None:
    folder = tmp_path / "system"
    theirs = folder / "ollama.service.d" / "override.conf"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("[Service]\nEnvironment=OLLAMA_HOST=0.0.0.0:11434\n")
    plan = service.plan_install(folder, user="ann", takeover=True, listen="0.0.0.0:11434")
    service.install(plan)
    unit = (folder / service.UNIT).read_text()
    assert "serve --host 0.0.0.0:11434 --upstream http://127.0.0.1:11436" in unit
    assert "User=ann" in unit
    drop_in = folder / service.DROP_IN
    assert "Environment=OLLAMA_HOST=127.0.0.1:11436" in drop_in.read_text()
    assert sorted(theirs.parent.iterdir()) == [theirs, drop_in]  # ours is read last and wins
    assert calls.read_text().splitlines() == [
        "daemon-reload",
        "restart ollama.service",
        "enable --now ollama-spec.service",
    ]
    service.uninstall(service.plan_uninstall(folder, user="ann"), user="ann")
    assert sorted(path for path in folder.rglob("*") if path.is_file()) == [theirs]
    assert calls.read_text().splitlines()[-1] == "restart ollama.service"


def test_a_start_that_fails_leaves_ollama_where_it_was(calls: Path, tmp_path: Path) -> None:
    (tmp_path / "fail").write_text("enable --now")
    folder = tmp_path / "system"
    with pytest.raises(OllamaSpecError, match="no such luck"):
        service.install(service.plan_install(folder, user="ann", takeover=True))
    assert not [path for path in folder.rglob("*") if path.is_file()]
    assert calls.read_text().splitlines()[-3:] == [
        "disable --now ollama-spec.service",
        "daemon-reload",
        "restart ollama.service",
    ]


def test_a_unit_of_somebody_else_is_never_overwritten(calls: Path, tmp_path: Path) -> None:
    (tmp_path / service.UNIT).write_text("[Unit]\n")
    with pytest.raises(ConfigError, match="not ours"):
        service.install(service.plan_install(tmp_path))
    assert (tmp_path / service.UNIT).read_text() == "[Unit]\n"


def test_without_systemd_it_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(["service", "install"]) == 1
    error = capsys.readouterr().err
    assert "not run by systemd" in error
    assert "ollama-spec serve" in error
    assert not service.user_folder().joinpath(service.UNIT).exists()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is missing")
@pytest.mark.parametrize("takeover", [False, True])
def test_case_39_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path, takeover: bool) -> None:
    plan = service.plan_install(
        tmp_path,
        user="root" if takeover else None,
        takeover=takeover,
        gpu=Path("/dev/nvidiactl") if takeover else None,
    )
    unit = tmp_path / service.UNIT
    text = plan.files[unit]
    assert ("ExecStartPre=" in text and "/dev/nvidiactl" in text) == takeover
    for line in ("Restart=on-failure", "KillMode=mixed", "StartLimitBurst=5"):
        assert line in text.splitlines()
    unit.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is missing")
def test_systemd_finds_nothing_wrong_with_the_timer(tmp_path: Path) -> None:
    plan = service.plan_install(tmp_path, follow=True)
    units = [tmp_path / service.FOLLOW, tmp_path / service.TIMER]
    for unit in units:
        unit.write_text(plan.files[unit])
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", *map(str, units)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
