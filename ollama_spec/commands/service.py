"""`service`: let systemd run the sidecar; `--takeover` puts it at Ollama's own address."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

import click

from ollama_spec import output, service
from ollama_spec.errors import ConfigError


@click.group("service", short_help="Let systemd run the sidecar.")
def command() -> None:
    """Install or remove the sidecar as a systemd service."""


@command.command("install")
@click.option("--system", is_flag=True, help="A unit of the system (as root), not of your own.")
@click.option("--user", help="system: who runs it.  [default: who called sudo]")
@click.option(
    "--takeover",
    is_flag=True,
    help="Listen where Ollama's service does now and move Ollama behind it; implies --system.",
)
@click.option(
    "--follow", is_flag=True, help="Also look every hour for a new Ollama and build for it."
)
@click.option(
    "--print", "print_only", is_flag=True, help="Show files and commands; change nothing."
)
def install_command(
    system: bool, user: str | None, takeover: bool, follow: bool, print_only: bool
) -> None:
    """Start the sidecar now and with the system."""
    system = system or takeover
    owner = user or os.environ.get("SUDO_USER") or getpass.getuser()
    plan = service.plan_install(
        _folder(system),
        user=owner if system else None,
        takeover=takeover,
        listen=service.ollama_listens() if takeover else service.DEFAULT_LISTEN,
        gpu=service.gpu_node(),
        follow=follow,
    )
    if print_only:
        output.result(_text(plan))
        return
    _need_root(system)
    service.install(plan)
    for note in plan.notes:
        output.note(f"note: {note}")
    output.result(f"{service.UNIT} is installed and runs")


@command.command("uninstall")
@click.option("--system", is_flag=True, help="The unit of the system (as root).")
@click.option(
    "--print", "print_only", is_flag=True, help="Show files and commands; change nothing."
)
def uninstall_command(system: bool, print_only: bool) -> None:
    """Stop the service and remove what `install` wrote; Ollama returns to its own address."""
    owner = "root" if system else None
    plan = service.plan_uninstall(_folder(system), user=owner)
    if not plan.files:
        output.result("there is no service of ours")
        return
    if print_only:
        output.result("\n".join(f"remove {path}" for path in plan.files))
        return
    _need_root(system)
    service.uninstall(plan, user=owner)
    output.result(f"{service.UNIT} is removed")


def _folder(system: bool) -> Path:
    return service.SYSTEM_FOLDER if system else service.user_folder()


def _need_root(system: bool) -> None:
    if system and os.geteuid() != 0:
        raise ConfigError(
            "a unit of the system needs root", hint="call it with sudo, or see it with --print"
        )


def _text(plan: service.Plan) -> str:
    files = [f"# {path}\n{text}" for path, text in plan.files.items()]
    return "\n".join([*files, *("$ " + " ".join(command) for command in plan.commands)])
