"""A random MM-Embed of a few thousand weights, saved as the published one is."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, trainers
from tokenizers.processors import TemplateProcessing
from transformers import LlavaNextConfig

from circus_bench.models.families.mm_embed_modeling import MMEmbedModel

_CORPUS = [
    "Instruct: Retrieve a day-to-day image that aligns with the modification instructions of the provided image.",
    "Query: the same dog but on a beach with a red ball",
]
LATENTS = {"model_type": "latent_attention", "num_latents_value": 5, "num_cross_heads": 2, "cross_dim_head": 8}
VISION = {
    "model_type": "clip_vision_model",
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 28,
    "patch_size": 14,
    "projection_dim": 16,
}


def save_tiny_mm_embed(folder: Path, *, seed: int = 0) -> Path:
    """Write checkpoint, tokenizer and the text embedder's configuration below a folder; return the checkpoint's."""
    checkpoint, retriever = folder / "MM-Embed", folder / "NV-Embed-v1"
    checkpoint.mkdir()
    retriever.mkdir()
    words = _save_tokenizer(checkpoint)
    text = {
        "model_type": "bidir_mistral",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": words,
        "rope_theta": 10000.0,
        "sliding_window": 4,
    }
    _write(retriever / "config.json", {"text_config": text, "latent_attention_config": LATENTS})
    # As published: the text sizes in MM-Embed's own configuration are those of another model.
    other_text = {"model_type": "mistral", "vocab_size": words + 64, "rope_theta": 1000000.0, "hidden_size": 999}
    own = {"image_token_index": words, "vision_config": VISION, "vision_feature_layer": -2}
    _write(
        checkpoint / "config.json",
        {"model_type": "llava_next", "retriever": str(retriever), "text_config": other_text, **own},
    )
    _write(
        checkpoint / "preprocessor_config.json",
        {
            "image_processor_type": "LlavaNextImageProcessor",
            "crop_size": {"height": 28, "width": 28},
            "size": {"shortest_edge": 28},
            "do_center_crop": True,
            "do_resize": True,
            "resample": 3,
            "image_mean": [0.48145466, 0.4578275, 0.40821073],
            "image_std": [0.26862954, 0.26130258, 0.27577711],
            "image_grid_pinpoints": [[28, 56], [56, 28], [56, 56]],
        },
    )
    torch.manual_seed(seed)
    latents = {"latent_attention_config": LATENTS}
    model = MMEmbedModel(LlavaNextConfig(text_config={**text, "model_type": "mistral", **latents}, **own))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    state = {name.replace("vision_tower.", "vision_tower.vision_model."): t for name, t in model.state_dict().items()}
    save_file(state, checkpoint / "model.safetensors", metadata={"format": "pt"})
    return checkpoint


def _save_tokenizer(folder: Path) -> int:
    """A SentencePiece-like tokenizer with the two tokens that LLaVA-NeXT adds; return the size without them."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    special = ["<unk>", "<s>", "</s>", "<0x0A>"]
    tokenizer.train_from_iterator(_CORPUS, trainers.BpeTrainer(vocab_size=150, special_tokens=special))
    words = tokenizer.get_vocab_size()
    tokenizer.add_special_tokens(["<image>", "<pad>"])
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    _write(folder / "tokenizer_config.json", {"tokenizer_class": "LlamaTokenizer", **names})
    return words


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")
