"""The command line: global options, lazily loaded verbs, and the only error boundary."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import traceback
from typing import Any

import click

from ollama_spec import __version__, commands, log, output
from ollama_spec.errors import OllamaSpecError


class _Verbs(click.Group):
    """Finds `commands/<verb>.py`; importing only the verb asked for keeps start-up quick."""

    @staticmethod
    def _modules() -> dict[str, str]:
        """Verb -> module; a trailing underscore keeps clear of Python's own words (`import_`)."""
        found = [module.name for module in pkgutil.iter_modules(commands.__path__)]
        return {name.rstrip("_").replace("_", "-"): name for name in found if name[0] != "_"}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._modules())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = self._modules().get(cmd_name)
        if module is None:
            return None
        loaded = importlib.import_module(f"ollama_spec.commands.{module}")
        command: click.Command = loaded.command
        return command


@click.group(
    cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, "--version", message="ollama-spec version %(version)s")
@click.option("-v", "--verbose", count=True, help="More log output; -vv also shows tracebacks.")
@click.pass_context
def cli(ctx: click.Context, verbose: int) -> None:
    """Faster, honestly measured local inference for Ollama users."""
    log.setup(verbose)
    ctx.obj = {"verbose": verbose}


def main(argv: list[str] | None = None) -> None:
    """Run the program and exit: 0 success, 1-8 our errors (errors.py), 2 usage, 130 Ctrl-C."""
    sys.exit(run(argv if argv is not None else sys.argv[1:]))


def run(argv: list[str]) -> int:
    verbose = sum(arg.count("v") for arg in argv if arg in ("-v", "-vv", "-vvv", "--verbose"))
    try:
        outcome: Any = cli.main(
            args=argv,
            prog_name="ollama-spec",
            standalone_mode=False,
            auto_envvar_prefix="OLLAMA_SPEC",
        )
    except click.exceptions.NoArgsIsHelpError as error:
        output.note(error.format_message())
        return 2
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        output.note("interrupted")
        return 130
    except OllamaSpecError as error:
        _explain(error, verbose)
        return error.exit_code
    except BrokenPipeError:
        return 141
    except OSError as error:
        _explain(OllamaSpecError(_os_error_text(error)), verbose)
        return 1
    except Exception as error:
        _explain(
            OllamaSpecError(
                f"internal error: {type(error).__name__}: {error}",
                hint="this is a bug in ollama-spec; run again with -vv and report what it prints",
            ),
            verbose,
        )
        return 1
    return outcome if isinstance(outcome, int) else 0


def _os_error_text(error: OSError) -> str:
    text = error.strerror or str(error)
    return f"{error.filename}: {text}" if error.filename else text


def _explain(error: OllamaSpecError, verbose: int) -> None:
    if verbose >= 2:
        traceback.print_exc()
    output.note(f"error: {error.message}")
    if error.hint:
        output.note(f"hint: {error.hint}")
