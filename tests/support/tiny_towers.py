"""Tiny random checkpoints, written to disk as real ones are: CLIP, SigLIP, and a LLaVA that reads both at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SIDE = 16
TOKENS = 24  # of a text
_WORDS = ("red", "blue", "make", "it", "the", "a", "dress", "longer", "and", "with", "sleeves", "image", "of")


def save_tiny_clip(folder: Path) -> Path:
    """Write a CLIP of 8 dimensions."""
    from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel

    tokenizer = _tokenizer(["<pad>", "<start>", "<end>", "<unknown>"], template="<start> $A <end>")
    shared = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = CLIPConfig(
        text_config={
            **shared,
            "vocab_size": len(tokenizer),
            "max_position_embeddings": TOKENS,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 0,
        },
        vision_config={**shared, "image_size": SIDE, "patch_size": 8},
        projection_dim=8,
    )
    processor = CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
    return _save(folder, CLIPModel, config, tokenizer, processor)


def save_tiny_siglip(folder: Path) -> Path:
    """Write a SigLIP: its texts are padded to one length, and its text vector is that of the last position."""
    from transformers import SiglipConfig, SiglipImageProcessorPil, SiglipModel

    tokenizer = _tokenizer(["<pad>", "<end>", "<unknown>"], template="$A <end>", inputs=["input_ids"])
    shared = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {"vocab_size": len(tokenizer), "max_position_embeddings": TOKENS, "pad_token_id": 0, "eos_token_id": 1}
    config = SiglipConfig(
        text_config={**shared, **text, "projection_size": 16},
        vision_config={**shared, "image_size": SIDE, "patch_size": 8},
    )
    processor = SiglipImageProcessorPil(size={"height": SIDE, "width": SIDE})
    return _save(folder, SiglipModel, config, tokenizer, processor)


def save_tiny_llava(folder: Path) -> Path:
    """Write a LLaVA (CLIP tower, Llama) with its processor and chat template."""
    from transformers import (
        CLIPImageProcessorPil,
        CLIPVisionConfig,
        LlamaConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
        LlavaProcessor,
    )

    tokenizer = _tokenizer(["<pad>", "<start>", "<end>", "<unknown>", "<image>"], template="<start> $A")
    template = (
        "{% for message in messages %}{{ message['role'] }} {% for part in message['content'] %}"
        "{% if part['type'] == 'image' %}<image> {% else %}{{ part['text'] }} {% endif %}{% endfor %}{% endfor %}"
    )
    vision = CLIPVisionConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, image_size=SIDE, patch_size=8
    )
    text = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=256,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=4, vision_feature_layer=-1)
    processor = LlavaProcessor(
        CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}),
        tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        chat_template=template,
        image_token="<image>",
        num_additional_image_tokens=1,
    )
    return _save(folder, LlavaForConditionalGeneration, config, processor)


def _tokenizer(special: list[str], *, template: str, inputs: list[str] | None = None) -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace, WhitespaceSplit
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    vocab = {word: index for index, word in enumerate((*special, *_WORDS))}
    tokenizer = Tokenizer(WordLevel(vocab, unk_token="<unknown>"))
    tokenizer.pre_tokenizer = WhitespaceSplit() if "<image>" in special else Whitespace()
    used = [(token, vocab[token]) for token in special if token in template]
    tokenizer.post_processor = TemplateProcessing(single=template, special_tokens=used)
    names = {"<pad>": "pad_token", "<start>": "bos_token", "<end>": "eos_token", "<unknown>": "unk_token"}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=TOKENS if "<image>" not in special else 256,
        **{names[token]: token for token in special if token in names},
        **({"additional_special_tokens": ["<image>"]} if "<image>" in special else {}),
        **({"model_input_names": inputs} if inputs else {}),
    )


def _save(folder: Path, cls: Any, config: Any, *parts: Any) -> Path:
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = cls(config)
        # Wide enough for every input to matter.
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        model.save_pretrained(folder)
    for part in parts:
        part.save_pretrained(folder)
    return folder
