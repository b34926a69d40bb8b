"""`build follow`: when Ollama changes, build for it and switch; if that fails, stay and say so."""

from __future__ import annotations

from ollama_spec.artefacts import ArtefactStore
from ollama_spec.build import engines
from ollama_spec.errors import BuildError
from ollama_spec.profiles import Strict


class FollowResult(Strict):
    tag: str | None
    engine: str | None
    before: str | None  # key in use before
    now: str | None  # key in use now
    changed: bool
    error: str | None = None
    hint: str | None = None


def follow(request: engines.Request) -> FollowResult:
    """Look once. A failed build (a hook that misses, say) is a result, not an exception."""
    store = ArtefactStore()
    current = store.current()
    before = current.manifest.key if current else None
    tag = engine = None
    try:
        choice = engines.choose(request)
        tag, engine = choice.tag, choice.engine
        artefact = engines.build(request, choice)
    except BuildError as error:
        return FollowResult(
            tag=tag,
            engine=engine,
            before=before,
            now=before,
            changed=False,
            error=error.message,
            hint=error.hint,
        )
    now = artefact.manifest.key
    return FollowResult(tag=tag, engine=engine, before=before, now=now, changed=now != before)
