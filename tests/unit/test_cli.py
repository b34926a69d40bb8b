"""The error boundary: one line, a hint, an exit code; no traceback without -vv."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from ollama_spec import cli, commands
from ollama_spec.errors import BuildError, OllamaSpecError


def _verb(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    @click.command("boom")
    def boom() -> None:
        raise error

    monkeypatch.setitem(cli.cli.commands, "boom", boom)
    monkeypatch.setattr(cli._Verbs, "get_command", lambda self, ctx, name: self.commands.get(name))


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (OllamaSpecError("it broke", hint="mend it"), 1, "error: it broke\nhint: mend it\n"),
        (BuildError("no compiler"), 7, "error: no compiler\n"),
        (FileNotFoundError(2, "No such file or directory", "/x"), 1, "error: /x: No such file"),
        (ZeroDivisionError("oops"), 1, "error: internal error: ZeroDivisionError: oops\nhint: "),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_errors_become_lines_and_codes(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    text: str,
) -> None:
    _verb(monkeypatch, error)
    assert cli.run(["boom"]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.lstrip().startswith(text)
    assert "Traceback" not in shown.err


def test_double_verbose_shows_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _verb(monkeypatch, OllamaSpecError("it broke"))
    assert cli.run(["-vv", "boom"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_every_verb_loads_and_explains_itself() -> None:
    context = click.Context(cli.cli)
    verbs = cli.cli.list_commands(context)
    assert "demo" in verbs
    for verb in verbs:
        command = cli.cli.get_command(context, verb)
        assert command is not None and command.get_short_help_str(), verb


def test_the_program_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ollama_spec", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("ollama-spec version ")
    assert commands.__path__
