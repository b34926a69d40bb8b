"""The start of a GGUF file, as far as it was fetched, and the role it gives the file.

Keys like the architecture stand before the vocabulary, so 128 KB are nearly always enough; only a
head that must be told from a whole model needs the tensor table behind it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from gguf.constants import GGMLQuantizationType

from ollama_spec.errors import IntegrityError, PairingError
from ollama_spec.gguf import GgufHeader, Tensor, check_magic

Role = Literal["target", "drafter", "projector", "adapter", "imatrix", "foreign"]

FIRST_READ = 128 * 1024
_LATER_READS = (1 << 20, 8 << 20, 64 << 20)
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?"}
_NUMBERS |= {10: "<Q", 11: "<q", 12: "<d"}

DRAFTER_KINDS = {
    "gemma4-assistant": "draft-mtp",
    "eagle3": "draft-eagle3",
    "dflash": "draft-dflash",
}
# Architectures that only other people's forks read: file names do not tell them apart.
_FOREIGN = {
    "gemma4_assistant": "the AtomicChat fork of llama.cpp",
    "gemma4_mtp": "ik_llama.cpp",
    "dflash-draft": "the buun fork of llama.cpp",
}


@dataclass(frozen=True)
class Start:
    """Keys read so far; `tensors` is None until the table was reached."""

    kv: dict[str, Any] = field(default_factory=dict)
    tensors: tuple[str, ...] | None = None

    @property
    def arch(self) -> str:
        return str(self.kv.get("general.architecture", ""))

    def number(self, key: str) -> int:
        value = self.kv.get(f"{self.arch}.{key}", 0)
        return int(max(value, default=0) if isinstance(value, list) else value)

    @property
    def split_count(self) -> int:
        return int(self.kv.get("split.count", 1)) or 1

    @property
    def embedded_head(self) -> bool:
        """A whole model that brings its own multi-token-prediction layers."""
        return self.role == "target" and self.number("nextn_predict_layers") > 0

    @property
    def role(self) -> Role:
        kind = str(self.kv.get("general.type", ""))
        if kind == "imatrix" or "imatrix.datasets" in self.kv:
            return "imatrix"
        if kind in ("mmproj", "projector") or self.arch == "clip":
            return "projector"
        if kind == "adapter":
            return "adapter"
        if self.arch in _FOREIGN:
            return "foreign"
        if self.arch in DRAFTER_KINDS or self._only_a_head:
            return "drafter"
        return "target"

    @property
    def _only_a_head(self) -> bool:
        if not self.number("nextn_predict_layers") or self.tensors is None:
            return False
        # A whole model starts at block 0; a head alone has only the layers after the trunk.
        return not any(name.startswith("blk.0.") for name in self.tensors)

    def as_header(self, label: str, size: int) -> GgufHeader:
        """As the header of a file not here yet: keys and tensor names only, no shapes."""
        names = self.tensors or ()
        tensors = {name: Tensor(name, (), GGMLQuantizationType.F32, 0, 0) for name in names}
        return GgufHeader(Path(label), size, self.kv, tensors)

    @property
    def spec_type(self) -> str | None:
        """llama-server's `--spec-type` for this file as a drafter."""
        if self.arch == "dflash" and "markov_w1.weight" in (self.tensors or ()):
            return "draft-dspark"
        if self.arch in DRAFTER_KINDS:
            return DRAFTER_KINDS[self.arch]
        return "draft-mtp" if self.role == "drafter" else "draft-simple"


def read(fetch: Callable[[int], bytes], size: int, label: str) -> Start:
    """Header of a remote file, with as few bytes as its role needs.

    `fetch(n)` returns the first n bytes; `label` names the file in messages. Raises IntegrityError
    for what is no GGUF file at all, saying what it is.
    """
    data = fetch(min(FIRST_READ, size))
    try:
        check_magic(Path(label), data[:256])
    except PairingError as error:
        raise IntegrityError(
            error.message, hint="the repository holds a broken upload: choose another file"
        ) from error
    start = parse(data)
    for length in _LATER_READS:
        unsure = start.number("nextn_predict_layers") or start.arch == "dflash" or not start.arch
        if start.tensors is not None or not unsure or len(data) >= size:
            break
        data = fetch(min(length, size))
        start = parse(data)
    return start


def parse(data: bytes) -> Start:
    """As much of a header as `data` holds; never fails on data that ends early."""
    kv: dict[str, Any] = {}
    try:
        version, tensor_count, kv_count = struct.unpack_from("<IQQ", data, 4)
        at = 24
        if version not in (2, 3):
            return Start(kv)
        for _ in range(kv_count):
            key, at = _text(data, at)
            (kind,) = struct.unpack_from("<I", data, at)
            kv[key], at = _value(data, at + 4, kind)
        names = []
        for _ in range(tensor_count):
            name, at = _text(data, at)
            (dimensions,) = struct.unpack_from("<I", data, at)
            at += 4 + 8 * dimensions + 12
            names.append(name)
        if at > len(data):
            return Start(kv)
        return Start(kv, tuple(names))
    except struct.error:
        return Start(kv)


def _text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<Q", data, at)
    end = at + 8 + length
    if end > len(data):
        raise struct.error("cut")
    return data[at + 8 : end].decode("utf-8", "replace"), end


def _value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind == 8:
        return _text(data, at)
    if kind == 9:
        item, count = struct.unpack_from("<IQ", data, at)
        at += 12
        if item in _NUMBERS and count > 512:
            at += count * struct.calcsize(_NUMBERS[item])
            if at > len(data):
                raise struct.error("cut")
            return None, at
        values = []
        for _ in range(count):
            value, at = _value(data, at, item)
            values.append(value)
        return values, at
    form = _NUMBERS.get(kind)
    if form is None:
        raise struct.error("unknown type")
    (number,) = struct.unpack_from(form, data, at)
    return number, at + struct.calcsize(form)


def refuse_foreign(start: Start, label: str) -> None:
    """Name a fork's dialect and what to take instead; raises PairingError."""
    if start.role != "foreign":
        return
    size = re.search(r"(E2B|E4B|12B|26B-A4B|31B)", label, re.IGNORECASE)
    repo = f"unsloth/gemma-4-{size[1] if size else 'SIZE'}-it-GGUF"
    if start.arch == "dflash-draft":
        hint = "use a DFlash file whose architecture is `dflash`: `ollama-spec list --available`"
    else:
        hint = f"use the drafter mtp-*.gguf of {repo}; its architecture is `gemma4-assistant`"
    raise PairingError(
        f"{label} has the architecture {start.arch!r}, which only {_FOREIGN[start.arch]} can read",
        hint=hint,
    )
