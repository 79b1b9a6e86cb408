"""Tiny random checkpoints of the Qwen-VL architectures, written to disk as real ones are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
DIM = 32


def tiny_tokenizer() -> Any:
    """A byte-level tokenizer of the Qwen family: one token a byte, and the special tokens of the chat template."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import AddedToken, Qwen2Tokenizer

    vocab = {symbol: index for index, symbol in enumerate(sorted(ByteLevel.alphabet()))}
    tokenizer = Qwen2Tokenizer(vocab=vocab, merges=[], eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.add_tokens([AddedToken(token, special=True) for token in SPECIAL])
    return tokenizer


def tiny_config(architecture: str, tokenizer: Any) -> Any:
    """The configuration of `qwen2_vl`, `qwen2_5_vl` or `qwen3_vl`, as small as their code allows."""
    import transformers

    text = {
        "hidden_size": DIM,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": len(tokenizer) + 3,  # real checkpoints have spare rows, too
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]},
        "initializer_range": 0.3,  # wide enough for attention to matter
        "pad_token_id": None,
    }
    shared = {
        "image_token_id": tokenizer.convert_tokens_to_ids("<|image_pad|>"),
        "video_token_id": tokenizer.convert_tokens_to_ids("<|video_pad|>"),
        "vision_start_token_id": tokenizer.convert_tokens_to_ids("<|vision_start|>"),
        "vision_end_token_id": tokenizer.convert_tokens_to_ids("<|vision_end|>"),
        "tie_word_embeddings": False,
    }
    vision: dict[str, Any] = {"depth": 2, "num_heads": 2, "initializer_range": 0.3}
    if architecture == "qwen2_vl":
        vision |= {"embed_dim": 16, "hidden_size": DIM}
        return transformers.Qwen2VLConfig(text_config=text, vision_config=vision, **shared)
    if architecture == "qwen2_5_vl":
        vision |= {"hidden_size": 16, "intermediate_size": 24, "out_hidden_size": DIM, "fullatt_block_indexes": [1]}
        return transformers.Qwen2_5_VLConfig(text_config=text, vision_config=vision, **shared)
    vision |= {"hidden_size": 16, "intermediate_size": 24, "out_hidden_size": DIM, "num_position_embeddings": 16}
    vision |= {"deepstack_visual_indexes": [0, 1]}
    return transformers.Qwen3VLConfig(text_config=text | {"head_dim": 8}, vision_config=vision, **shared)


def save_tiny_qwen(folder: Path, architecture: str, *, tokenizer: Any = None, base: bool = False) -> Path:
    """Write a checkpoint with seeded random weights.

    Args:
        folder: where to.
        architecture: `qwen2_vl`, `qwen2_5_vl` or `qwen3_vl`.
        tokenizer: `tiny_tokenizer()` when None.
        base: whether to leave out the language head, as some embedders do.
    """
    import torch
    import transformers
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    tokenizer = tokenizer or tiny_tokenizer()
    prefix = {"qwen2_vl": "Qwen2VL", "qwen2_5_vl": "Qwen2_5_VL", "qwen3_vl": "Qwen3VL"}[architecture]
    cls = getattr(transformers, prefix + ("Model" if base else "ForConditionalGeneration"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        cls(tiny_config(architecture, tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    numbers = {"patch_size": 16, "image_mean": [0.5] * 3, "image_std": [0.5] * 3} if architecture == "qwen3_vl" else {}
    Qwen2VLImageProcessorPil(**numbers).save_pretrained(folder)
    return folder
