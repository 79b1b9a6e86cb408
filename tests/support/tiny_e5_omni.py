"""A random thinker of Qwen2.5-Omni of a few thousand weights, saved as a published one is."""

from __future__ import annotations

from pathlib import Path

from support.tiny_qwen import DIM, tiny_tokenizer

_SPECIAL = (
    "<|AUDIO|>",
    "<|audio_bos|>",
    "<|audio_eos|>",
    "<|vision_bos|>",
    "<|vision_eos|>",
    "<|IMAGE|>",
    "<|VIDEO|>",
)


def save_tiny_e5_omni(folder: Path) -> Path:
    """Write a checkpoint with seeded random weights, and return its folder."""
    import torch
    from transformers import AddedToken, Qwen2_5OmniThinkerConfig, Qwen2_5OmniThinkerForConditionalGeneration
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([AddedToken(token, special=True) for token in _SPECIAL])
    token = tokenizer.convert_tokens_to_ids
    config = Qwen2_5OmniThinkerConfig(
        text_config={
            "hidden_size": DIM,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": len(tokenizer) + 3,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]},
            "initializer_range": 0.3,
        },
        vision_config={
            "depth": 2,
            "num_heads": 2,
            "hidden_size": 16,
            "intermediate_size": 24,
            "out_hidden_size": DIM,
            "fullatt_block_indexes": [1],
            "initializer_range": 0.3,
        },
        audio_config={
            "d_model": 16,
            "encoder_layers": 1,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 16,
            "num_mel_bins": 8,
            "output_dim": DIM,
        },
        image_token_index=token("<|IMAGE|>"),
        video_token_index=token("<|VIDEO|>"),
        audio_token_index=token("<|AUDIO|>"),
        audio_start_token_id=token("<|audio_bos|>"),
        audio_end_token_id=token("<|audio_eos|>"),
        vision_start_token_id=token("<|vision_bos|>"),
        vision_end_token_id=token("<|vision_eos|>"),
        initializer_range=0.3,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        Qwen2_5OmniThinkerForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    Qwen2VLImageProcessorPil().save_pretrained(folder)
    return folder
