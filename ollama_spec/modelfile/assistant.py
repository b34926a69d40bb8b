"""Drafters that read the target's hidden state or cache: shapes that must match (seed 002 §3).

llama.cpp asserts some of these while loading and reads others wrongly without a word, so all are
checked here, by name, before anything starts.
"""

from __future__ import annotations

from gguf.constants import GGMLQuantizationType

from ollama_spec.gguf import GgufHeader, Tensor
from ollama_spec.modelfile.vocabulary import check_same_tokens, mismatch

_INTEGERS = {GGMLQuantizationType.I8, GGMLQuantizationType.I16, GGMLQuantizationType.I32}
_INTEGERS |= {GGMLQuantizationType.I64}
_CACHE_KEYS = ("key_length", "value_length", "key_length_swa", "value_length_swa")


def check_gemma4_assistant(target: GgufHeader, drafter: GgufHeader) -> None:
    """The invariants of a Gemma 4 assistant; PairingError names the first that is broken."""
    if target.arch != "gemma4":
        raise mismatch(
            target, drafter, f"a Gemma 4 assistant needs a gemma4 target, this is {target.arch!r}"
        )
    backbone = drafter.count_of_arch("embedding_length_out")
    width, own = target.embedding_length, drafter.embedding_length
    if backbone != width:
        raise mismatch(
            target, drafter, f"its backbone width is {backbone}, the target's width {width}"
        )
    if backbone == own:
        raise mismatch(target, drafter, f"its own width equals the backbone's ({own})")
    if drafter.nextn_layers != drafter.block_count:
        raise mismatch(
            target,
            drafter,
            f"nextn_predict_layers is {drafter.nextn_layers}, its blocks are {drafter.block_count}",
        )
    for key in _CACHE_KEYS:
        one, other = target.of_arch(f"attention.{key}"), drafter.of_arch(f"attention.{key}")
        if one != other:
            raise mismatch(
                target, drafter, f"attention {key} is {other}, the target's cache has {one}"
            )
    _shape(target, drafter, "token_embd.weight", (own, drafter.vocab_size or target.vocab_size))
    _shape(target, drafter, "nextn.pre_projection.weight", (2 * width, own))
    _shape(target, drafter, "nextn.post_projection.weight", (own, width))
    _check_centroids(target, drafter)
    check_same_tokens(target, drafter, exact_size=True)


def check_separate_head(target: GgufHeader, drafter: GgufHeader) -> None:
    """A multi-token-prediction head in a file of its own belongs to one architecture and width."""
    if drafter.arch != target.arch:
        raise mismatch(
            target,
            drafter,
            f"its head was made for {drafter.arch!r}, the target is {target.arch!r}",
        )
    if drafter.embedding_length != target.embedding_length:
        raise mismatch(
            target,
            drafter,
            f"its width is {drafter.embedding_length}, the target's {target.embedding_length}",
        )
    output = drafter.tensors.get("output.weight") or drafter.tensors.get("token_embd.weight")
    if output and target.vocab_size and output.shape[-1] != target.vocab_size:
        # Heads trimmed to 32k tokens for another program: llama.cpp refuses their shape.
        raise mismatch(
            target,
            drafter,
            f"its output has {output.shape[-1]} rows, the target's vocabulary {target.vocab_size}",
        )
    check_same_tokens(target, drafter, exact_size=True)


def check_reader(target: GgufHeader, drafter: GgufHeader) -> None:
    """EAGLE-3 and DFlash read hidden states of some of the target's layers."""
    width = drafter.count_of_arch("target_hidden_size") or drafter.embedding_length
    if width and width != target.embedding_length:
        raise mismatch(
            target,
            drafter,
            f"it reads hidden states of width {width}, the target's have {target.embedding_length}",
        )
    layers = drafter.of_arch("target_layers")
    if not isinstance(layers, list) or not layers:
        raise mismatch(target, drafter, f"{drafter.arch}.target_layers is missing")
    if drafter.arch == "eagle3" and len(layers) != 3:
        raise mismatch(target, drafter, f"it reads {len(layers)} layers, EAGLE-3 reads 3")
    beyond = [layer for layer in layers if not 0 <= layer <= target.block_count]
    if beyond:
        raise mismatch(
            target, drafter, f"it reads layer {beyond[0]}, the target has {target.block_count}"
        )
    check_same_tokens(target, drafter, exact_size=False)


def _shape(target: GgufHeader, drafter: GgufHeader, name: str, shape: tuple[int, ...]) -> None:
    tensor = drafter.tensors.get(name)
    if tensor is None:
        raise mismatch(target, drafter, f"it lacks the tensor {name}")
    if tensor.shape != shape:
        raise mismatch(
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
        raise mismatch(target, drafter, f"half a centroid head: it lacks {lacking}")
    if centroids is not None and ordering is not None:
        _check_centroid_shapes(target, drafter, centroids, ordering)


def _check_centroid_shapes(
    target: GgufHeader, drafter: GgufHeader, centroids: Tensor, ordering: Tensor
) -> None:
    tokens = drafter.vocab_size or target.vocab_size
    if ordering.type not in _INTEGERS:
        raise mismatch(
            target,
            drafter,
            f"token_ordering is {ordering.type.name}, must be an integer type: it was quantised",
        )
    if ordering.elements != tokens:
        raise mismatch(
            target, drafter, f"token_ordering has {ordering.elements} entries for {tokens} tokens"
        )
    if centroids.shape[0] != drafter.embedding_length:
        raise mismatch(
            target,
            drafter,
            f"centroids have width {centroids.shape[0]}, the drafter {drafter.embedding_length}",
        )
    count = centroids.elements // centroids.shape[0]
    if tokens % count:
        raise mismatch(
            target, drafter, f"{tokens} tokens cannot be shared out among {count} centroids"
        )
