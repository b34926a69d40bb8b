"""A one-layer model with random weights, a few hundred kB: enough to see a runner answer."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

_WIDTH, _HEADS, _FEED, _CONTEXT = 64, 2, 96, 256
LETTER_A = 3 + ord("a")  # token id: three special tokens, then the bytes


def write(path: Path) -> Path:
    """Write a llama-architecture GGUF (F32, byte-level SPM vocabulary, seeded) to `path`."""
    tokens = [b"<unk>", b"<s>", b"</s>", *(f"<0x{byte:02X}>".encode() for byte in range(256))]
    tokens += [b"\xe2\x96\x81"]  # the SPM space
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    kinds += [gguf.TokenType.BYTE] * 256 + [gguf.TokenType.NORMAL]

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("ollama-spec self-test")
    writer.add_context_length(_CONTEXT)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(_FEED)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_HEADS)
    writer.add_rope_dimension_count(_WIDTH // _HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)

    random = np.random.default_rng(0)

    def tensor(name: str, *shape: int) -> None:
        writer.add_tensor(name, random.normal(0, 0.05, shape).astype(np.float32))

    def ones(name: str) -> None:
        writer.add_tensor(name, np.ones(_WIDTH, dtype=np.float32))

    tensor("token_embd.weight", len(tokens), _WIDTH)
    tensor("output.weight", len(tokens), _WIDTH)
    for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
        tensor(f"blk.0.{part}.weight", _WIDTH, _WIDTH)
    tensor("blk.0.ffn_gate.weight", _FEED, _WIDTH)
    tensor("blk.0.ffn_up.weight", _FEED, _WIDTH)
    tensor("blk.0.ffn_down.weight", _WIDTH, _FEED)
    for name in ("blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"):
        ones(name)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
