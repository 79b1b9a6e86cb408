"""Describe models to mteb that circus-bench loads itself. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mteb.models import ModelMeta
from mteb.models.model_meta import ScoringFunction


class CircusModelMeta(ModelMeta):
    """A ModelMeta that asks for none of mteb's extras.

    mteb wants torchvision (its `image` extra) for every model that sees images, before it calls the loader. Our loaders
    read images with Pillow, and say themselves what they need beyond the packages that circus-bench installs.
    """

    def _resolve_extras_groups(self) -> list[str]:
        return []


def describe_model(loader: Callable[..., Any] | None, **fields: Any) -> CircusModelMeta:
    """Describe a model of images and texts.

    Args:
        loader: called by mteb with the name and the revision.
        fields: of `ModelMeta`. What is left out is None, or what most of our models have: open weights, for PyTorch and
            Transformers, that take instructions and occupy two bytes per parameter.
    """
    parameters = fields.get("n_parameters")
    common: dict[str, Any] = {
        "release_date": None,
        "languages": None,
        "n_parameters": None,
        "memory_usage_mb": None if parameters is None else round(2 * parameters / 2**20),
        "embed_dim": None,
        "license": None,
        "open_weights": True,
        "public_training_code": None,
        "public_training_data": None,
        "framework": ["PyTorch", "Transformers", "safetensors"],
        "similarity_fn_name": ScoringFunction.COSINE,
        "use_instructions": True,
        "training_datasets": None,
        "modalities": ["text", "image"],
    }
    return CircusModelMeta.model_validate({**common, "loader": loader, **fields})


def adapt_meta(meta: ModelMeta, loader: Callable[..., Any], **changes: Any) -> CircusModelMeta:
    """Copy mteb's description of a model, with our loader, which reads texts and images, and without mteb's extras."""
    ours = {"loader": loader, "modalities": ["text", "image"], "extra_requirements_groups": None}
    return CircusModelMeta.model_validate({**dict(meta), **ours, **changes})
