"""Whether two models number their tokens alike, judged as llama.cpp judges it (b10488).

llama.cpp refuses a plain drafter (common/speculative.cpp) unless the vocabularies are of one type,
add the same tokens at either end, differ by at most 128 entries and agree in the text of every id
from 5 on. Keys that a header leaves out have defaults by tokenizer (src/llama-vocab.cpp).
"""

from __future__ import annotations

from ollama_spec.errors import PairingError
from ollama_spec.gguf import GgufHeader

FIRST_COMPARED_ID = 5
MAX_SIZE_DIFFERENCE = 128
_TYPES = {"hybriddna": "gpt2", "whitespace": "gpt2"}  # other names of one type
_GEMMA4 = "gemma4"  # a type of its own by name; always begins with BOS, whatever the header says
_ADDS_BOS = {"llama", "bert", _GEMMA4}
_ADDS_EOS = {"t5"}
# Pre-tokenizers of byte-pair vocabularies that begin with BOS unless told otherwise.
_BOS_PRE = {
    "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
    "jina-v5-nano", "tekken", "chameleon",
}  # fmt: skip
_BOS = {"llama": 1, "bert": 101, "gpt2": 11, "plamo2": 1}
_EOS = {"llama": 2, "gpt2": 11, "t5": 1, "plamo2": 2}


def mismatch(target: GgufHeader, drafter: GgufHeader, what: str) -> PairingError:
    return PairingError(
        f"{drafter.path.name} does not fit {target.path.name}: {what}",
        hint="use a drafter made for this very target, or of the same model family",
    )


def check_vocabulary(target: GgufHeader, drafter: GgufHeader) -> None:
    """llama.cpp's test for plain drafters, with the first difference named; PairingError."""
    if not drafter.vocab_size or not drafter.tokens():
        raise mismatch(target, drafter, "it has no vocabulary")
    its, mine = _facts(drafter), _facts(target)
    for name, value in mine.items():
        if its[name] != value:
            raise mismatch(target, drafter, f"{name} is {its[name]!r}, the target's {value!r}")
    wanted, given = target.tokens(), drafter.tokens()
    _compare(target, drafter, wanted, given, FIRST_COMPARED_ID)
    if abs(len(wanted) - len(given)) > MAX_SIZE_DIFFERENCE:
        raise mismatch(
            target,
            drafter,
            f"another vocabulary: {len(given)} tokens, the target has {len(wanted)} "
            f"(at most {MAX_SIZE_DIFFERENCE} of padding are allowed)",
        )


def check_same_tokens(target: GgufHeader, drafter: GgufHeader, *, exact_size: bool) -> None:
    """For heads and assistants: every id they share means the same token; PairingError.

    A drafter without tokens of its own uses the target's. EAGLE-3 and DFlash map a smaller
    vocabulary onto the target's, so their size says nothing (`exact_size` False).
    """
    given = drafter.tokens()
    if not given:
        return
    wanted = target.tokens()
    _compare(target, drafter, wanted, given, 0)
    if exact_size and len(wanted) != len(given):
        raise mismatch(
            target,
            drafter,
            f"another vocabulary: {len(given)} tokens, the target has {len(wanted)}",
        )


def _compare(
    target: GgufHeader, drafter: GgufHeader, wanted: list[bytes], given: list[bytes], first: int
) -> None:
    for number in range(first, min(len(wanted), len(given))):
        if wanted[number] != given[number]:
            raise mismatch(
                target,
                drafter,
                f"another vocabulary: token {number} is {_text(given[number])}, the target's "
                f"{_text(wanted[number])}",
            )


def _text(token: bytes) -> str:
    return repr(token.decode("utf-8", "replace"))


def _facts(header: GgufHeader) -> dict[str, object]:
    """What is in force, not what is written: a key left out equals its default."""
    kind = str(header.kv.get("tokenizer.ggml.model", ""))
    kind = _TYPES.get(kind, kind)
    pre = header.kv.get("tokenizer.ggml.pre")
    bos = header.kv.get("tokenizer.ggml.add_bos_token")
    eos = header.kv.get("tokenizer.ggml.add_eos_token")
    if bos is None or kind == _GEMMA4:
        bos = kind in _ADDS_BOS or (kind == "gpt2" and pre in _BOS_PRE)
    if eos is None:
        eos = kind in _ADDS_EOS
    bos_id = header.bos_id if header.bos_id is not None else _BOS.get(kind)
    eos_id = header.eos_id if header.eos_id is not None else _EOS.get(kind)
    return {
        "vocabulary type": kind,
        "add_bos_token": bos,
        "beginning token": bos_id if bos else None,
        "add_eos_token": eos,
        "end token": eos_id if eos else None,
    }
