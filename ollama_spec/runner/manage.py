"""DELETE /api/delete and POST /api/copy for models of ours (contract 1.11)."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from ollama_spec import names
from ollama_spec.runner.apierror import ApiError
from ollama_spec.runner.pool import Pool
from ollama_spec.store import ModelRecord, ModelStore


async def delete(record: ModelRecord, pool: Pool) -> web.Response:
    """Forget our record. Weights that are Ollama's or the user's stay where they are."""
    pool.unload(record.name)
    await asyncio.to_thread(ModelStore().remove, record.name)
    return web.Response()


async def copy(record: ModelRecord, destination: Any) -> web.Response:
    try:
        name = names.parse(destination if isinstance(destination, str) else "")
    except names.InvalidName:
        raise ApiError(400, f'destination "{destination}" is invalid') from None
    copied = record.model_copy(update={"name": name.display})
    await asyncio.to_thread(ModelStore().put, copied)
    return web.Response()
