"""From the hub library's exceptions to ours: one message and one next step for each cause."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub import get_token
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from ollama_spec.errors import AuthError, GatedError, HubError, NotFoundError, OllamaSpecError

# The library brings its own HTTP client, whose name changed between versions: ask it.
TRANSPORT_ERROR: type[Exception] = HfHubHTTPError.__bases__[0]

_LOGIN = "log in with `hf auth login`, or set HF_TOKEN to a token of yours"


@contextmanager
def explained(repo: str, endpoint: str, file: str | None = None) -> Iterator[None]:
    """Turn what the hub's client raises inside the block into one of our errors."""
    try:
        yield
    except OllamaSpecError:
        raise
    except (TRANSPORT_ERROR, HfHubHTTPError, OfflineModeIsEnabled) as error:
        raise explain(error, repo, endpoint, file) from error
    except HFValidationError as error:
        raise NotFoundError(
            f"{repo!r} is not a repository name", hint="write it as hf.co/OWNER/REPOSITORY"
        ) from error
    except ValueError as error:  # an answer that is not JSON, or lacks what the API promises
        raise HubError(
            f"{_place(endpoint)} did not answer like a model hub for {repo}: {error}",
            hint=_endpoint_hint(endpoint),
        ) from error


def explain(error: Exception, repo: str, endpoint: str, file: str | None) -> OllamaSpecError:
    what = f"{repo}/{file}" if file else repo
    if isinstance(error, OfflineModeIsEnabled):
        return HubError(
            f"{what} is not here and offline mode is on",
            hint="unset HF_HUB_OFFLINE, or fetch the model on a machine that is online",
        )
    if isinstance(error, HfHubHTTPError):
        return _refused(error, repo, endpoint, file)
    return HubError(
        f"cannot reach {_place(endpoint)} for {what}: {str(error) or type(error).__name__}",
        hint=_endpoint_hint(endpoint),
    )


def _refused(error: HfHubHTTPError, repo: str, endpoint: str, file: str | None) -> OllamaSpecError:
    what = f"{repo}/{file}" if file else repo
    status = error.response.status_code if error.response is not None else 0
    token = get_token() is not None
    if isinstance(error, GatedRepoError):
        if status == 401 or not token:
            return AuthError(
                f"{repo} is gated: the hub must know who you are",
                hint=f"{_LOGIN}; then accept its terms at {endpoint}/{repo}",
            )
        return GatedError(
            f"{repo} is gated, and your account has not accepted its terms",
            hint=f"accept them at {endpoint}/{repo}, then run this again",
        )
    if isinstance(error, RevisionNotFoundError):
        return NotFoundError(f"{repo} has no such revision", hint="leave the revision out")
    if isinstance(error, RemoteEntryNotFoundError):
        return NotFoundError(f"{what}: no such file", hint=f"see {endpoint}/{repo}/tree/main")
    if status == 401 and token and _says_invalid(error):
        return AuthError(
            f"the hub rejected your token (asked for {repo})",
            hint="make a new one, then `hf auth login`; HF_TOKEN wins over the stored one",
        )
    if status == 403:
        return AuthError(
            f"your token may not read {repo}: it lacks the scope",
            hint="give the token read access to this repository, or use another token",
        )
    if isinstance(error, RepositoryNotFoundError):
        if token:
            hint = "check the spelling; if it is private, your account needs access to it"
        else:
            hint = f"check the spelling; if it is private, {_LOGIN}"
        return NotFoundError(f"{repo}: no such repository, or a private one", hint=hint)
    return HubError(
        f"{_place(endpoint)} answered {status} for {what}", hint=_endpoint_hint(endpoint)
    )


def _says_invalid(error: HfHubHTTPError) -> bool:
    text = error.response.headers.get("X-Error-Message", "") if error.response is not None else ""
    return "invalid" in text.lower()


def _place(endpoint: str) -> str:
    return f"HF_ENDPOINT={endpoint}" if os.environ.get("HF_ENDPOINT") else endpoint


def _endpoint_hint(endpoint: str) -> str:
    if os.environ.get("HF_ENDPOINT"):
        return f"HF_ENDPOINT sends requests to {endpoint}: check that mirror, or unset it"
    return "check your connection; behind a mirror set HF_ENDPOINT"
