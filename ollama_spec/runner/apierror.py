"""A failure that a client sees, and the words llama-server or Ollama use for it."""

from __future__ import annotations

from typing import Any

CONNECTION_LOST = (
    "model runner has unexpectedly stopped, this may be due to resource limitations or an "
    "internal error, check ollama server logs for details"
)


class ApiError(Exception):
    """HTTP `status` and the text of the `error` field (contract 0.4).

    `late`: Ollama meets it inside the stream; as a stream's first item it then still sets the
    status but its content type has no charset (contract 0.3).
    """

    def __init__(self, status: int, message: str, *, late: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.late = late


class RunnerLost(ApiError):
    """The runner went away during a request: another one may still answer it."""


class NotStarted(Exception):
    """No child could be started for a request; nothing was sent, so another may still serve it.

    Not an ApiError: it passes the routes by and is decided where the fallback is known.
    """

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


def native_body(error: ApiError) -> dict[str, Any]:
    return {"error": error.message}


def openai_body(error: ApiError) -> dict[str, Any]:
    kinds = {400: "invalid_request_error", 404: "not_found_error"}
    kind = kinds.get(error.status, "api_error")
    return {"error": {"message": error.message, "type": kind, "param": None, "code": None}}
