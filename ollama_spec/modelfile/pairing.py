"""Whether a drafter fits a target, decided from the two headers before anything is started.

A plain drafter must speak the target's vocabulary exactly as llama.cpp checks it; the other kinds
read the target's hidden state or cache, so their shapes must match the target's.
"""

from __future__ import annotations

import re

from ollama_spec.errors import PairingError
from ollama_spec.gguf import GgufHeader
from ollama_spec.modelfile import assistant
from ollama_spec.modelfile.vocabulary import check_vocabulary, mismatch

__all__ = [
    "check_pair", "check_tag", "check_target", "check_vocabulary", "choose_spec_type",
    "is_drafter", "is_projector", "kind_of", "minimum_tag",
]  # fmt: skip

GEMMA4_ASSISTANT = "gemma4-assistant"
# Forks write the same weights in dialects that llama.cpp cannot load (CATALOG_FACTS rules 1, 2).
FOREIGN = {
    "gemma4_assistant": "the AtomicChat fork's dialect of a Gemma 4 assistant; take the file "
    "mtp-gemma-4-*.gguf of unsloth/gemma-4-<size>-it-GGUF instead",
    "gemma4_mtp": "ik_llama's dialect of a Gemma 4 assistant; take the file mtp-gemma-4-*.gguf of "
    "unsloth/gemma-4-<size>-it-GGUF instead",
    "dflash-draft": "a fork's dialect of DFlash; take a file whose architecture is `dflash`",
}
_READERS = {"eagle3", "dflash"}  # read the target's hidden states; shapes follow the target
# First llama.cpp build known to run a kind of drafter (CATALOG_FACTS 1: upper ends of brackets).
_MINIMUM = {GEMMA4_ASSISTANT: 9549, "eagle3": 9628, "dflash": 9831, "dspark": 10236}
_MINIMUM_HEAD = {
    "qwen35": 9180, "qwen35moe": 9180, "step35": 9509, "cohere2moe": 9628, "hy_v3": 10091,
    "qwen3next": 10240, "deepseek32": 10240, "deepseek4": 10240, "glm-dsa": 10240, "mimo2": 10240,
    "nemotron_h": 10488, "nemotron_h_moe": 10488, "deepseek2": 10488, "bailingmoe3": 10488,
    "qwen4exp": 11434, "glm5-next": 11434, "glm4moe": 11434,
}  # fmt: skip
_EAGLE3_QWEN35 = 9840
_SUGGESTED_BUILD = 10488


def is_drafter(header: GgufHeader) -> bool:
    """Whether the header says the file cannot answer on its own."""
    arch = header.arch
    return arch == GEMMA4_ASSISTANT or arch in _READERS or arch in FOREIGN or _headless(header)


def _headless(header: GgufHeader) -> bool:
    """A head cut out of its model keeps the model's block count: only the tensors tell."""
    if not header.nextn_layers:
        return False
    trunk = header.block_count - header.nextn_layers
    if trunk <= 0:
        return True
    blocks = {
        int(match[1]) for name in header.tensors if (match := re.match(r"blk\.(\d+)\.", name))
    }
    # A first shard may hold no blocks at all; a head alone has blocks, all beyond the trunk.
    return bool(blocks) and min(blocks) >= trunk


def kind_of(target: GgufHeader, drafter: GgufHeader | None) -> str | None:
    """What drafts: an architecture of a special drafter, "simple", "embedded", or None."""
    if drafter is None:
        return "embedded" if target.nextn_layers and target.arch in _MINIMUM_HEAD else None
    if drafter.arch == "dflash" and "markov_w1.weight" in drafter.tensors:
        return "dspark"
    if drafter.arch == GEMMA4_ASSISTANT or drafter.arch in _READERS:
        return drafter.arch
    return "embedded" if is_drafter(drafter) else "simple"


def choose_spec_type(
    target: GgufHeader, drafter: GgufHeader | None, tag: str | None = None
) -> str | None:
    """llama-server's `--spec-type` for the pair; None: nothing to draft with.

    An embedded head that llama.cpp `tag` (None: b10488) cannot run counts as absent: the model
    itself still answers.
    """
    kind = kind_of(target, drafter)
    if kind == "embedded" and drafter is None:
        build = _number(tag) if tag else _SUGGESTED_BUILD
        if build is not None and build < minimum_tag(target, None):
            return None
    if kind in (GEMMA4_ASSISTANT, "embedded"):
        return "draft-mtp"
    return f"draft-{kind}" if kind else None


def check_target(target: GgufHeader) -> None:
    """A FROM file must be a whole model of its own."""
    if target.arch in FOREIGN:
        raise _foreign(target)
    if is_drafter(target):
        raise PairingError(
            f"{target.path} is a drafter ({target.arch}), not a model that can answer",
            hint="this is a drafter, use it in DRAFT, and put its target in FROM",
        )
    if is_projector(target):
        raise PairingError(
            f"{target.path} is a projector, not a language model",
            hint="put the language model in the first FROM; the projector may follow",
        )
    if target.kv.get("general.type") in ("imatrix", "adapter") or not target.block_count:
        raise PairingError(f"{target.path} holds no language model", hint="name another file")


def check_pair(target: GgufHeader, drafter: GgufHeader) -> None:
    """Raises PairingError naming both files and the first thing that does not fit."""
    if target.path.resolve() == drafter.path.resolve():
        raise PairingError(
            f"DRAFT must not reference the same local path as FROM: {drafter.path}",
            hint="a drafter is another, smaller model",
        )
    if drafter.arch in FOREIGN:
        raise _foreign(drafter)
    if is_projector(drafter) or drafter.kv.get("general.type") in ("imatrix", "adapter"):
        raise PairingError(
            f"{drafter.path} is {_role(drafter)}, not a drafter",
            hint="a projector goes in a second FROM; DRAFT takes a small model or a head",
        )
    if drafter.pooling_type is not None:
        raise PairingError(
            f"{drafter.path} is an embedding model: it cannot draft", hint="name another DRAFT"
        )
    kind = kind_of(target, drafter)
    if kind == GEMMA4_ASSISTANT:
        assistant.check_gemma4_assistant(target, drafter)
    elif kind in ("eagle3", "dflash", "dspark"):
        assistant.check_reader(target, drafter)
    elif kind == "embedded":
        assistant.check_separate_head(target, drafter)
    else:
        _check_no_embedded_head(target, drafter)
        check_vocabulary(target, drafter)


def minimum_tag(target: GgufHeader, drafter: GgufHeader | None) -> int:
    """Build number of the first llama.cpp known to run the pair; 0: any that we support."""
    kind = kind_of(target, drafter)
    if kind == "embedded":
        return _MINIMUM_HEAD.get((drafter or target).arch, _SUGGESTED_BUILD)
    if kind == "eagle3" and target.arch in ("qwen35", "qwen35moe"):
        return _EAGLE3_QWEN35
    return _MINIMUM.get(kind or "", 0)


def check_tag(target: GgufHeader, drafter: GgufHeader | None, tag: str) -> None:
    """Whether llama.cpp `tag` runs this pair (CASES 15); a tag of another form is not judged."""
    need, build = minimum_tag(target, drafter), _number(tag)
    if build is not None and build < need:
        raise PairingError(
            f"llama.cpp {tag} cannot run this pair; needs >= b{need}",
            hint=f"build a newer runner: `ollama-spec build --tag b{max(need, _SUGGESTED_BUILD)}`",
        )


def _number(tag: str) -> int | None:
    match = re.fullmatch(r"b(\d+)", tag)
    return int(match[1]) if match else None


def is_projector(header: GgufHeader) -> bool:
    return header.arch == "clip" or header.kv.get("general.type") in ("mmproj", "projector")


def _role(header: GgufHeader) -> str:
    return "a projector" if is_projector(header) else f"an {header.kv['general.type']} file"


def _foreign(header: GgufHeader) -> PairingError:
    return PairingError(
        f"{header.path} has architecture {header.arch!r}: {FOREIGN[header.arch]}",
        hint="llama.cpp, and so Ollama, cannot load this file",
    )


def _check_no_embedded_head(target: GgufHeader, drafter: GgufHeader) -> None:
    if kind_of(target, None) == "embedded":
        raise mismatch(
            target,
            drafter,
            "the target has its own multi-token-prediction head, and one kind of drafting is all a "
            "runner can do; leave DRAFT out",
        )
