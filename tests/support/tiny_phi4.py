"""A random Phi-4-multimodal of a few thousand weights, saved as the published one is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from support.tiny_qwen import DIM, tiny_tokenizer

_SPECIAL = ("<|user|>", "<|assistant|>", "<|end|>", "<|endoftext10|>")
_RANK = 2
_PUBLISHED_NAMES = (
    (r"img_projection_up\.", "img_projection.0."),
    (r"img_projection_down\.", "img_projection.2."),
    (r"global_img_feature_extensor", "glb_GN"),
    (r"sub_img_feature_extensor", "sub_GN"),
    (r"^(layers\.\d+\.(?:self_attn|mlp)\.\w+)\.", r"\1.base_layer."),
)


def published_config(tokenizer: Any) -> dict[str, Any]:
    """The content of config.json, in the layout of the published one; the vision tower's sizes are an addition."""
    factors = [1.0, 2.0, 3.0]
    return {
        "model_type": "phi4mm",
        "architectures": ["Phi4MMForCausalLM"],
        "auto_map": {"AutoConfig": "configuration_phi4mm.Phi4MMConfig"},
        "audio_processor": {"config": {"attention_dim": 1024}, "name": "cascades"},
        "embd_layer": {"image_embd_layer": {"crop_size": 56}, "audio_embd_layer": {"downsample_rate": 1}},
        "vision_lora": {"r": _RANK, "lora_alpha": 4, "dp": 0.0},
        "speech_lora": {"r": _RANK, "lora_alpha": 4, "dp": 0.01},
        "vision_config": {
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "image_size": 56,
            "patch_size": 14,
            "image_token_id": tokenizer.convert_tokens_to_ids("<|endoftext10|>"),
        },
        "hidden_size": DIM,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": len(tokenizer) + 3,
        "pad_token_id": 0,
        "bos_token_id": 0,
        "max_position_embeddings": 4096,
        "original_max_position_embeddings": 128,
        "partial_rotary_factor": 0.75,
        "rope_theta": 10000.0,
        "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 3, "long_factor": factors},
        "sliding_window": 262144,
        "tie_word_embeddings": True,
    }


def save_tiny_phi4(folder: Path) -> Path:
    """Write a checkpoint of two shards with seeded random weights, and return its folder."""
    import torch
    from safetensors.torch import save_file
    from transformers import AddedToken

    from circus_bench.models.families.phi4_multimodal_modeling import Phi4VisionModel, configuration

    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([AddedToken(token, special=True) for token in _SPECIAL])
    tokenizer.save_pretrained(folder)
    published = published_config(tokenizer)
    (folder / "config.json").write_text(json.dumps(published), encoding="utf-8")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        state = {}
        for name, tensor in Phi4VisionModel(configuration(published)).state_dict().items():
            state[_published(name)] = torch.randn_like(tensor) * 0.3
            if re.search(r"^layers\.\d+\.(self_attn|mlp)\.", name):
                module = "model." + name.removesuffix(".weight")
                rows, columns = tensor.shape
                for adapter in ("vision", "speech"):
                    state[f"{module}.lora_A.{adapter}.weight"] = torch.randn(_RANK, columns) * 0.3
                    state[f"{module}.lora_B.{adapter}.weight"] = torch.randn(rows, _RANK) * 0.3
        state["model.embed_tokens_extend.audio_embed.encoder.encoders.0.layer_norm.weight"] = torch.randn(1024)
    names = sorted(state)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, held in shards.items():
        save_file({name: state[name] for name in held}, folder / file, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: file for file, held in shards.items() for name in held}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return folder


def _published(name: str) -> str:
    for pattern, replacement in _PUBLISHED_NAMES:
        name = re.sub(pattern, replacement, name)
    return f"model.{name}"
