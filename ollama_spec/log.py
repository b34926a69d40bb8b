"""Logging set-up: standard library, on stderr; WARNING by default, -v INFO, -vv DEBUG."""

from __future__ import annotations

import logging
import os
import re

# Tokens of Hugging Face and bearer headers never reach a log.
_SECRETS = re.compile(r"(hf_[A-Za-z0-9]{8,}|[Bb]earer\s+\S+)")


class _Redact(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if _SECRETS.search(text):
            record.msg, record.args = _SECRETS.sub("[redacted]", text), ()
        return True


def setup(verbosity: int) -> None:
    level = {0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG)
    # journald adds its own time stamps
    stamp = "" if os.environ.get("JOURNAL_STREAM") else "%(asctime)s "
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"{stamp}%(levelname)s %(name)s: %(message)s"))
    handler.addFilter(_Redact())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("ollama_spec").setLevel(level)
