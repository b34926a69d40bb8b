"""Every error a user can cause or meet. `cli.py` is the only place that turns one into text."""

from __future__ import annotations


class OllamaSpecError(Exception):
    """A failure with a message for the user and, in `hint`, what to do next."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConfigError(OllamaSpecError):
    exit_code = 3


class NotFoundError(OllamaSpecError):
    exit_code = 4


class HubError(OllamaSpecError):
    exit_code = 5


class AuthError(HubError):
    pass


class GatedError(HubError):
    pass


class SpaceError(HubError):
    pass


class IntegrityError(HubError):
    pass


class PairingError(OllamaSpecError):
    """Target and drafter do not fit, or a file is not what its role needs."""

    exit_code = 6


class ModelfileError(PairingError):
    """A Modelfile that cannot be read: the message names file, line and text."""


class BuildError(OllamaSpecError):
    exit_code = 7


class DockerUnavailable(BuildError):
    pass


class DockerPermission(BuildError):
    pass


class OverlayError(BuildError):
    """A hook of the overlay did not match the source it was applied to."""


class CompileFailed(BuildError):
    pass


class ArtefactUnusable(BuildError):
    pass


class RunnerError(OllamaSpecError):
    exit_code = 8


class PortInUse(RunnerError):
    pass


class StartFailed(RunnerError):
    pass


class Crashed(RunnerError):
    pass
