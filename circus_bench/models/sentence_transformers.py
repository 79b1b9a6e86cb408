"""Load sentence-transformers models that read an image and a text at once, as encoders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from circus_bench.errors import CircusError
from circus_bench.models.spec import Fusion, ModelSpec

if TYPE_CHECKING:
    from mteb.models import SentenceTransformerEncoderWrapper


def load_sentence_transformer(
    spec: ModelSpec, *, revision: str | None = None, device: str | None = None
) -> SentenceTransformerEncoderWrapper:
    """Load a sentence-transformers model behind mteb's wrapper.

    A query is given to it as a dictionary with `image` and `text`. It sees the prompts that it was saved with (`query`,
    `document`), if any; the instruction of a protocol is not shown to it.

    Args:
        spec: which one.
        revision: of the repository; its newest when None.
        device: such as `cpu` or `cuda:0`; the library's own choice when None.

    Raises:
        CircusError: the model is none of sentence-transformers, or it cannot read image and text at once.
    """
    from mteb.models import SentenceTransformerEncoderWrapper
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.util import is_sentence_transformer_model

    if not is_sentence_transformer_model(spec.source, revision=revision):
        # The library would load it all the same, and make up a mean over its tokens.
        raise CircusError(f"{spec.source}: no modules.json, so this is no sentence-transformers model")
    model: Any = SentenceTransformer(spec.source, revision=revision, device=device)
    if not model.supports(("image", "text")):
        hint = f"; for one encoder per input, name a fusion: dual:{Fusion.MEAN}:{spec.source}"
        raise CircusError(
            f"{spec.source}: reads {', '.join(model.modalities)}, but not an image and a text at once"
            + (hint if model.supports("image") and model.supports("text") else "")
        )
    encoder = SentenceTransformerEncoderWrapper(model)
    encoder.mteb_model_meta = encoder.mteb_model_meta.model_copy(
        update={
            "name": spec.name,
            "revision": spec.revision(revision, file="modules.json"),
            "modalities": ["text", "image"],  # mteb reads `text` off every model of the library
        }
    )
    return encoder
