"""Configure the mini encoders."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from transformers import PretrainedConfig


class MiniFusion(StrEnum):
    """The fusion of image and text in a mini encoder."""

    JOINT = "joint"
    """One transformer reads image slots and text tokens as one sequence."""
    FILM = "film"
    """A mean text vector scales and shifts the features of a slot mixer (feature-wise linear modulation)."""
    CROSS = "cross"
    """Image slots attend to the text by cross-attention, and to each other."""


class MiniConfig(PretrainedConfig):
    """Sizes of a mini encoder.

    Args:
        fusion: a `MiniFusion` value.
        vocab_size: entries of the tokenizer, special tokens included.
        hidden_size: width of a slot and of a token.
        heads: attention heads.
        layers: fusion layers.
        text_layers: layers that read the text before the fusion (FILM and CROSS).
        channels: widths of the first three convolutions.
        image_size: side of the square input, in pixels.
        margin: pixels cut off on each side before the first convolution.
        max_position_embeddings: tokens after which a text is cut.
        slot_size: width of one slot of the output, before the slots are joined.
        embedding_size: width of the embedding.
    """

    model_type = "circus_mini"

    def __init__(
        self,
        fusion: str = MiniFusion.JOINT,
        vocab_size: int = 118,
        *,
        hidden_size: int = 128,
        heads: int = 4,
        layers: int = 3,
        text_layers: int = 2,
        channels: Sequence[int] = (24, 48, 64),
        image_size: int = 64,
        margin: int = 2,
        max_position_embeddings: int = 40,
        slot_size: int = 40,
        embedding_size: int = 192,
        **kwargs: Any,
    ) -> None:
        self.fusion = str(fusion)
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.heads = heads
        self.layers = layers
        self.text_layers = text_layers
        self.channels = list(channels)
        self.image_size = image_size
        self.margin = margin
        self.max_position_embeddings = max_position_embeddings
        self.slot_size = slot_size
        self.embedding_size = embedding_size
        super().__init__(**kwargs)
