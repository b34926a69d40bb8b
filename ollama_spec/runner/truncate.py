"""Prompts longer than the context (contract 4.6). Nothing is cut without a warning in the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from ollama_spec.runner.apierror import ApiError
from ollama_spec.runner.pool import Lease

log = logging.getLogger(__name__)

_IMAGE_TOKENS = 768
_TEMPLATE_BYTES = 2048  # what a chat template may add; no token is shorter than a byte
TOO_LONG = (
    "the prompt is longer than the context length currently available to the model; shorten the "
    "prompt, adjust the context length in settings, or use a model with a longer context length"
)
Messages = list[dict[str, Any]]


async def fit(
    lease: Lease,
    body: Mapping[str, Any],
    messages: Messages,
    to_native: Callable[[Mapping[str, Any]], dict[str, Any]],
) -> Messages:
    """Drop the oldest messages, never system ones and never the last, until the rest fits."""
    if _surely_fits(messages, body, lease.num_ctx):
        return messages
    kept = messages
    while True:
        native = {**body, "messages": [to_native(message) for message in kept]}
        prompt = await lease.client.apply_template(native)
        images = sum(len(message.get("images") or []) for message in kept)
        tokens = len(await lease.client.tokenize(prompt)) + _IMAGE_TOKENS * images
        droppable = [i for i, item in enumerate(kept[:-1]) if item["role"] != "system"]
        if tokens <= lease.num_ctx or not droppable:
            break
        kept = kept[: droppable[0]] + kept[droppable[0] + 1 :]
    if len(kept) < len(messages):
        log.warning(
            "%d of %d messages left out: the context holds %d tokens",
            len(messages) - len(kept),
            len(messages),
            lease.num_ctx,
        )
    return kept


def _surely_fits(messages: Messages, body: Mapping[str, Any], num_ctx: int) -> bool:
    """Cheap and on the safe side: bytes bound tokens from above."""
    size = _TEMPLATE_BYTES + 64 * len(messages) + 4 * len(str(body.get("tools") or ""))
    for message in messages:
        size += len(str(message.get("content", "")).encode(errors="replace"))
        size += len(str(message.get("tool_calls") or ""))
        size += _IMAGE_TOKENS * len(message.get("images") or [])
    return size <= num_ctx


async def shorten(lease: Lease, prompt: str, *, shift: bool, num_keep: int) -> str | list[int]:
    """A prompt for /completion that fits; 400 when it must not be shortened."""
    if len(prompt.encode(errors="replace")) < lease.num_ctx - 1:
        return prompt
    tokens = await lease.client.tokenize(prompt, special=True)
    limit = lease.num_ctx
    if len(tokens) <= limit - 1:
        return prompt
    if not shift:
        raise ApiError(400, TOO_LONG)
    keep = min(max(num_keep, 0), limit - 1)
    target = limit - max((limit - keep) // 2, 1)
    tail = max(target - keep, 1)
    log.warning("prompt of %d tokens cut to %d: the context holds %d", len(tokens), target, limit)
    return tokens[:keep] + tokens[-tail:]
