"""Whether a drafter fits a target, decided from the two headers before anything is started.

A plain drafter must speak the target's vocabulary exactly as llama.cpp checks it; an assistant
reads the target's hidden state and KV cache, so its shapes must match the target's.
"""

from __future__ import annotations

import re

from gguf.constants import GGMLQuantizationType

from ollama_spec.errors import PairingError
from ollama_spec.gguf import GgufHeader

# llama.cpp's own test (common/speculative.cpp): ids below 5 may differ, sizes may by 128.
FIRST_COMPARED_ID = 5
MAX_SIZE_DIFFERENCE = 128
_INTEGERS = {GGMLQuantizationType.I8, GGMLQuantizationType.I16, GGMLQuantizationType.I32}
_INTEGERS |= {GGMLQuantizationType.I64}

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
# First llama.cpp tag that runs a kind of drafter (CATALOG_FACTS 1).
MINIMUM_TAG = {
    GEMMA4_ASSISTANT: 9549,
    "eagle3": 9628,
    "dflash": 9831,
    "dspark": 10236,
    "embedded": 9180,
}


def is_drafter(header: GgufHeader) -> bool:
    """Whether the header says the file cannot answer on its own."""
    arch = header.arch
    trunk = header.block_count - header.nextn_layers
    headless = header.nextn_layers > 0 and trunk <= 0
    return arch == GEMMA4_ASSISTANT or arch in _READERS or arch in FOREIGN or headless


def kind_of(target: GgufHeader, drafter: GgufHeader | None) -> str | None:
    """What drafts: an architecture of a special drafter, "simple", "embedded", or None."""
    if drafter is None:
        return "embedded" if target.nextn_layers else None
    if drafter.arch == "dflash" and "markov_w1.weight" in drafter.tensors:
        return "dspark"
    if drafter.arch == GEMMA4_ASSISTANT or drafter.arch in _READERS:
        return drafter.arch
    return "embedded" if is_drafter(drafter) else "simple"


def choose_spec_type(target: GgufHeader, drafter: GgufHeader | None) -> str | None:
    """llama-server's `--spec-type` for the pair; None: nothing to draft with."""
    kind = kind_of(target, drafter)
    if kind in (GEMMA4_ASSISTANT, "embedded"):
        return "draft-mtp"
    return f"draft-{kind}" if kind else None


def check_target(target: GgufHeader) -> None:
    """A FROM file must be a whole model of its own."""
    if is_drafter(target):
        raise PairingError(
            f"{target.path} is a drafter ({target.arch}), not a model that can answer",
            hint="use it in DRAFT, and put its target in FROM",
        )
    if target.arch == "clip" or target.kv.get("general.type") in ("mmproj", "projector"):
        raise PairingError(
            f"{target.path} is a projector, not a language model",
            hint="put the language model in the first FROM; the projector may follow",
        )
    if target.kv.get("general.type") == "imatrix" or not target.block_count:
        raise PairingError(f"{target.path} holds no language model", hint="name another file")


def check_pair(target: GgufHeader, drafter: GgufHeader) -> None:
    """Raises PairingError naming both files and the first thing that does not fit."""
    if target.path.resolve() == drafter.path.resolve():
        raise PairingError(
            f"DRAFT must not reference the same local path as FROM: {drafter.path}",
            hint="a drafter is another, smaller model",
        )
    if drafter.arch in FOREIGN:
        raise PairingError(
            f"{drafter.path} has architecture {drafter.arch!r}: {FOREIGN[drafter.arch]}",
            hint="llama.cpp, and so Ollama, cannot load this file",
        )
    kind = kind_of(target, drafter)
    if kind == GEMMA4_ASSISTANT:
        _check_assistant(target, drafter)
    elif kind in ("eagle3", "dflash", "dspark"):
        _check_reader(target, drafter)
    elif kind == "embedded":
        _check_separate_head(target, drafter)
    else:
        _check_no_embedded_head(target, drafter)
        check_vocabulary(target, drafter)


def check_tag(target: GgufHeader, drafter: GgufHeader | None, tag: str) -> None:
    """Whether llama.cpp `tag` runs this pair (CASES 15)."""
    need = MINIMUM_TAG.get(kind_of(target, drafter) or "", 0)
    match = re.fullmatch(r"b(\d+)", tag)
    if match and int(match.group(1)) < need:
        raise PairingError(
            f"llama.cpp {tag} cannot run this pair; needs >= b{need}",
            hint=f"build a newer runner: `ollama-spec build --tag b{max(need, 10488)}`",
        )


def _mismatch(target: GgufHeader, drafter: GgufHeader, what: str) -> PairingError:
    return PairingError(
        f"{drafter.path.name} does not fit {target.path.name}: {what}",
        hint="use a drafter made for this very target, or of the same model family",
    )


def _check_no_embedded_head(target: GgufHeader, drafter: GgufHeader) -> None:
    if target.nextn_layers:
        raise _mismatch(
            target,
            drafter,
            "the target has its own multi-token-prediction head, and one kind of drafting is all a "
            "runner can do; leave DRAFT out",
        )


def check_vocabulary(target: GgufHeader, drafter: GgufHeader) -> None:
    """Exactly llama.cpp's test for plain drafters, with the first difference named."""
    mine, its = _vocabulary_facts(target), _vocabulary_facts(drafter)
    for name, value in mine.items():
        if its[name] != value:
            raise _mismatch(target, drafter, f"{name} is {its[name]!r}, the target's {value!r}")
    wanted, given = target.tokens(), drafter.tokens()
    for number in range(FIRST_COMPARED_ID, min(len(wanted), len(given))):
        if wanted[number] != given[number]:
            raise _mismatch(
                target,
                drafter,
                f"another vocabulary: token {number} is {_text(given[number])}, the target's "
                f"{_text(wanted[number])}",
            )
    if abs(len(wanted) - len(given)) > MAX_SIZE_DIFFERENCE:
        raise _mismatch(
            target,
            drafter,
            f"another vocabulary: {len(given)} tokens, the target has {len(wanted)} "
            f"(at most {MAX_SIZE_DIFFERENCE} of padding are allowed)",
        )


def _text(token: bytes) -> str:
    return repr(token.decode("utf-8", "replace"))


def _vocabulary_facts(header: GgufHeader) -> dict[str, object]:
    kv = header.kv
    adds_bos = kv.get("tokenizer.ggml.add_bos_token")
    adds_eos = kv.get("tokenizer.ggml.add_eos_token")
    return {
        "vocabulary type": kv.get("tokenizer.ggml.model"),
        "add_bos_token": adds_bos,
        "beginning token": header.bos_id if adds_bos else None,
        "add_eos_token": adds_eos,
        "end token": header.eos_id if adds_eos else None,
    }


def _same_tokens(target: GgufHeader, drafter: GgufHeader) -> None:
    wanted, given = target.tokens(), drafter.tokens()
    if not given:
        return  # a head without a vocabulary of its own
    for number, (one, other) in enumerate(zip(wanted, given, strict=False)):
        if one != other:
            raise _mismatch(
                target,
                drafter,
                f"another vocabulary: token {number} is {_text(other)}, the target's {_text(one)}",
            )
    if len(wanted) != len(given):
        raise _mismatch(
            target,
            drafter,
            f"another vocabulary: {len(given)} tokens, the target has {len(wanted)}",
        )


def _check_separate_head(target: GgufHeader, drafter: GgufHeader) -> None:
    if drafter.arch != target.arch:
        raise _mismatch(
            target,
            drafter,
            f"its head was made for {drafter.arch!r}, the target is {target.arch!r}",
        )
    if drafter.embedding_length != target.embedding_length:
        raise _mismatch(
            target,
            drafter,
            f"its width is {drafter.embedding_length}, the target's {target.embedding_length}",
        )
    _same_tokens(target, drafter)


def _check_reader(target: GgufHeader, drafter: GgufHeader) -> None:
    width = drafter.count_of_arch("target_hidden_size") or drafter.count_of_arch("embedding_length")
    if width and width != target.embedding_length:
        raise _mismatch(
            target,
            drafter,
            f"it reads hidden states of width {width}, the target's have {target.embedding_length}",
        )
    if drafter.vocab_size and drafter.tokens():
        _same_tokens(target, drafter)


def _check_assistant(target: GgufHeader, drafter: GgufHeader) -> None:
    """The invariants of a Gemma 4 assistant (seed 002 section 3, and what llama.cpp asserts)."""
    if target.arch != "gemma4":
        raise _mismatch(
            target, drafter, f"a Gemma 4 assistant needs a gemma4 target, this is {target.arch!r}"
        )
    backbone = drafter.count_of_arch("embedding_length_out")
    width, own = target.embedding_length, drafter.embedding_length
    if backbone != width:
        raise _mismatch(
            target, drafter, f"its backbone width is {backbone}, the target's width {width}"
        )
    if backbone == own:
        raise _mismatch(target, drafter, f"its own width equals the backbone's ({own})")
    if drafter.nextn_layers != drafter.block_count:
        raise _mismatch(
            target,
            drafter,
            f"nextn_predict_layers is {drafter.nextn_layers}, its blocks are {drafter.block_count}",
        )
    for key in ("key_length", "value_length", "key_length_swa", "value_length_swa"):
        one, other = target.of_arch(f"attention.{key}"), drafter.of_arch(f"attention.{key}")
        if one != other:
            raise _mismatch(
                target, drafter, f"attention {key} is {other}, the target's cache has {one}"
            )
    _shape(target, drafter, "nextn.pre_projection.weight", (2 * width, own))
    _shape(target, drafter, "nextn.post_projection.weight", (own, width))
    _check_centroids(target, drafter)
    _same_tokens(target, drafter)


def _shape(target: GgufHeader, drafter: GgufHeader, name: str, shape: tuple[int, ...]) -> None:
    tensor = drafter.tensors.get(name)
    if tensor is None:
        raise _mismatch(target, drafter, f"it lacks the tensor {name}")
    if tensor.shape != shape:
        raise _mismatch(
            target, drafter, f"{name} has shape {list(tensor.shape)}, must be {list(shape)}"
        )


def _check_centroids(target: GgufHeader, drafter: GgufHeader) -> None:
    """The centroid head of E2B and E4B: both tensors or neither; the ordering stays integer."""
    centroids = drafter.tensors.get("masked_embd_centroids.weight")
    ordering = next(
        (item for name, item in drafter.tensors.items() if name.startswith("masked_embd_ordering")),
        None,
    )
    if (centroids is None) != (ordering is None):
        lacking = "masked_embd_ordering" if ordering is None else "masked_embd_centroids"
        raise _mismatch(target, drafter, f"half a centroid head: it lacks {lacking}")
    if centroids is None or ordering is None:
        return
    if ordering.type not in _INTEGERS:
        raise _mismatch(
            target,
            drafter,
            f"token_ordering is {ordering.type.name}, must be an integer type: it was quantised",
        )
    if ordering.elements != drafter.vocab_size:
        raise _mismatch(
            target,
            drafter,
            f"token_ordering has {ordering.elements} entries for {drafter.vocab_size} tokens",
        )
    if centroids.shape[0] != drafter.embedding_length:
        raise _mismatch(
            target,
            drafter,
            f"centroids have width {centroids.shape[0]}, the drafter {drafter.embedding_length}",
        )
