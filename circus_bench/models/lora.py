"""Merge a LoRA or DoRA adapter into the weights of a Qwen-VL model, from the files that the peft package writes.

Doing it here rather than by peft saves a dependency, and a trap: transformers moved the layers of the language model in
version 4.52, and peft goes on with a warning when the names in an older adapter fit no module, which leaves the base
model as it was (embeddings-benchmark/mteb#4673, illuin-tech/colpali#424).
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from circus_bench.errors import FormatError, format_ids

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from circus_bench.models.checkpoint import Checkpoint

_NEUTRAL: dict[str, Any] = {
    "alpha_pattern": {},
    "bias": "none",
    "fan_in_fan_out": False,
    "layer_replication": None,
    "lora_bias": False,
    "modules_to_save": None,
    "peft_type": "LORA",
    "rank_pattern": {},
}
_TENSOR = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<part>A|B|magnitude_vector)(\.weight)?")
_PLACES = (
    (re.compile(r"(model\.)?(language_model\.)?layers\."), "language_model.layers."),
    (re.compile(r"(model\.)?visual\."), "visual."),
)


def merge_adapter(model: Any, adapter: Checkpoint) -> int:
    """Add an adapter to the weights of a model, in float32.

    A weight W becomes W + s B A, where s is alpha / r (arXiv:2106.09685), or alpha / sqrt(r) where the adapter is
    rank-stabilized (arXiv:2312.03732). A DoRA adapter then gives each row the length that its magnitude vector says
    (arXiv:2402.09353).

    Args:
        model: the model without its head, such as `Qwen2VLModel`.
        adapter: has the file `adapter_config.json`, and `adapter_model.safetensors` or `adapter_model.bin`.

    Returns:
        the number of weight matrices that were changed.

    Raises:
        FormatError: the adapter lacks a file, has features that are not known here, or does not fit the model. The
            model is then unchanged.
    """
    import torch

    settings = adapter.json("adapter_config.json")
    strange = sorted(name for name, value in _NEUTRAL.items() if (settings.get(name) or value) != value)
    if strange:
        raise FormatError(f"{adapter.where}: only peft can merge an adapter with the settings {strange}")
    rank: int = settings["r"]
    scale: float = settings["lora_alpha"] / (rank**0.5 if settings.get("use_rslora") else rank)
    file = _weights_file(adapter)
    adapted = _read(file)
    modules = dict(model.named_modules())
    strangers = sorted(name for name in adapted if not hasattr(modules.get(name), "weight"))
    if strangers:
        raise FormatError(
            f"{file}: the model has no such weights ({format_ids(strangers)}); the adapter belongs to another model"
        )
    for name, parts in adapted.items():
        rows, columns = modules[name].weight.shape
        wanted: dict[str, tuple[int, ...]] = {"A": (rank, columns), "B": (rows, rank)}
        wanted |= {"magnitude_vector": (rows,)} if settings.get("use_dora") else {}
        found = {part: tuple(tensor.shape) for part, tensor in parts.items()}
        if found != wanted:
            raise FormatError(f"{file}: {name} needs parts of the shapes {wanted}, not {found}")
    with torch.no_grad():
        for name, parts in adapted.items():
            weight = modules[name].weight
            weight.copy_(_merged(weight, parts, scale))
    return len(adapted)


def _merged(weight: torch.Tensor, parts: dict[str, torch.Tensor], scale: float) -> torch.Tensor:
    on_device = {part: tensor.to(weight.device).float() for part, tensor in parts.items()}
    total = weight.float() + scale * (on_device["B"] @ on_device["A"])
    if "magnitude_vector" in on_device:
        total = total * (on_device["magnitude_vector"] / total.norm(dim=1)).unsqueeze(1)
    return total


def _weights_file(adapter: Checkpoint) -> Path:
    try:
        return adapter.file("adapter_model.safetensors")
    except FormatError:
        return adapter.file("adapter_model.bin")  # what peft wrote before it knew safetensors


def _read(weights: Path) -> dict[str, dict[str, torch.Tensor]]:
    """Read the parts of each adapted module, by the name that the module has in the model of today."""
    import torch
    from safetensors.torch import load_file

    safe = weights.suffix == ".safetensors"
    tensors = load_file(weights) if safe else torch.load(weights, map_location="cpu", weights_only=True)
    modules: dict[str, dict[str, torch.Tensor]] = defaultdict(dict)
    strange = []
    for key, tensor in tensors.items():
        match = _TENSOR.fullmatch(key)
        if match is None:
            strange.append(key)
        else:
            modules[_place(match["module"])][match["part"]] = tensor
    if strange or not modules:
        raise FormatError(f"{weights}: expected the tensors of a LoRA adapter, found others ({format_ids(strange)})")
    return modules


def _place(module: str) -> str:
    for pattern, place in _PLACES:
        match = pattern.match(module)
        if match is not None:
            return place + module[match.end() :]
    return module
