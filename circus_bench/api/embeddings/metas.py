"""API models as mteb knows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mteb.models.model_meta import ScoringFunction

from circus_bench.api.embeddings.vendor import Vendor
from circus_bench.models.metas import CircusModelMeta

if TYPE_CHECKING:
    from mteb.models import ModelMeta


def api_meta(
    loader: Callable[..., Any], vendor: Vendor, *, release_date: str, max_tokens: int, reference: str
) -> ModelMeta:
    """The metadata of a model behind an API.

    Args:
        loader: called by mteb with the name and the revision.
        vendor: the model.
        release_date: ISO 8601.
        max_tokens: of one input.
        reference: the vendor's page about it.
    """
    return CircusModelMeta(
        loader=loader,
        name=vendor.name,
        revision=vendor.revision,
        release_date=release_date,
        languages=None,
        n_parameters=None,
        n_embedding_parameters=None,
        memory_usage_mb=None,
        max_tokens=max_tokens,
        embed_dim=vendor.dimensions,
        license=None,
        open_weights=False,
        public_training_code=None,
        public_training_data=None,
        framework=["API"],
        reference=reference,
        similarity_fn_name=ScoringFunction.COSINE,
        use_instructions=True,
        training_datasets=None,
        modalities=["text", "image"],
    )
