"""Define the mini encoders: a convolutional network makes nine image slots, a fusion lets the text change them.

Queries and gallery images go through the same weights. An image without text is fused with an empty text; a text
without image is fused with learned slots that stand for "no image"; a black image is an image like any other.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from transformers import PreTrainedModel

from circus_bench.models.mini.configuration import MiniConfig, MiniFusion

SLOTS = 9  # the 3 x 3 feature map of the convolutions


class MiniModel(PreTrainedModel):
    """A composed image-text encoder of about a million parameters; see `MiniConfig`."""

    config_class = MiniConfig
    base_model_prefix = "mini"
    main_input_name = "pixel_values"

    def __init__(self, config: MiniConfig) -> None:
        super().__init__(config)
        width = config.hidden_size
        first, second, third = config.channels
        # 60 pixels -> 30 -> 15 -> 15 -> 3: one slot for each third of the image in either direction.
        self.convolutions = nn.Sequential(
            nn.Conv2d(3, first, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(first, second, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(second, third, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(third, width, 5, stride=5),
        )
        self.slot_positions = nn.Parameter(torch.randn(SLOTS, width) * 0.2)
        self.no_image = nn.Parameter(torch.randn(SLOTS, width) * 0.2)
        self.words = nn.Embedding(config.vocab_size, width)
        self.word_positions = nn.Parameter(torch.randn(config.max_position_embeddings, width) * 0.1)
        fusions = {MiniFusion.JOINT: _JointFusion, MiniFusion.FILM: _FilmFusion, MiniFusion.CROSS: _CrossFusion}
        self.fusion = fusions[MiniFusion(config.fusion)](config)
        self.slot_output = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, config.slot_size))
        self.projection = nn.Linear(SLOTS * config.slot_size, config.embedding_size)
        self.temperature = nn.Parameter(torch.tensor(3.0))  # logarithm of the scale that training learns
        self.post_init()  # type: ignore[no-untyped-call]

    def _init_weights(self, module: nn.Module) -> None:
        """Keep PyTorch's initial weights, except for the word embeddings."""
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.3)

    def forward(
        self,
        pixel_values: Tensor | None = None,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Embed images, texts, or pairs of both.

        Args:
            pixel_values: uint8 RGB pixels, shape (batch, image_size, image_size, 3), or None for no image.
            input_ids: token ids, shape (batch, tokens), or None for no text.
            attention_mask: 1 for a token and 0 for padding; all tokens count when None.

        Returns:
            float32 unit vectors, shape (batch, embedding_size).

        Raises:
            ValueError: neither images nor texts were given.
        """
        if pixel_values is not None:
            slots = self.image_slots(pixel_values)
        elif input_ids is not None:
            slots = self.no_image.expand(len(input_ids), -1, -1)
        else:
            raise ValueError("give pixel_values, input_ids or both")
        return self.fuse(slots, input_ids, attention_mask)[0]

    def image_slots(self, pixel_values: Tensor) -> Tensor:
        """Compute the image slots by the convolutions, shape (batch, SLOTS, hidden_size)."""
        margin = self.config.margin
        inner = slice(margin, self.config.image_size - margin)
        pixels = pixel_values[:, inner, inner].permute(0, 3, 1, 2).to(self.slot_positions.dtype) / 127.5 - 1
        features: Tensor = self.convolutions(pixels)
        return features.flatten(2).transpose(1, 2)

    def fuse(
        self, slots: Tensor, input_ids: Tensor | None = None, attention_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Let the texts change the image slots.

        Returns:
            The embeddings, and the slots they are made of, shape (batch, SLOTS, slot_size).
        """
        if input_ids is None:
            start = self.config.bos_token_id
            input_ids = torch.full((len(slots), 1), start, dtype=torch.long, device=slots.device)
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        mask = attention_mask.bool()
        words = self.words(input_ids) + self.word_positions[: input_ids.shape[1]]
        fused = self.slot_output(self.fusion(slots + self.slot_positions, words, mask))
        embeddings = F.normalize(self.projection(fused.flatten(1)).float(), dim=-1)
        return embeddings, fused


class _Attention(nn.Module):
    """A pre-norm transformer layer: attention over `context`, or over itself, then a feed-forward network."""

    def __init__(self, width: int, heads: int, *, cross: bool = False, expansion: int = 3) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.context_norm = nn.LayerNorm(width) if cross else None
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)
        self.feed_forward = _feed_forward(width, expansion)

    def forward(self, x: Tensor, mask: Tensor | None = None, context: Tensor | None = None) -> Tensor:
        own = self.norm(x)
        read = own if context is None or self.context_norm is None else self.context_norm(context)
        key, value = self.key_value(read).chunk(2, -1)
        query, key, value = (self._split(part).float() for part in (self.query(own), key, value))
        # In bfloat16 the backward pass of attention is about three times slower on CPUs than in float32.
        with torch.autocast(x.device.type, enabled=False):
            allowed = None if mask is None else mask[:, None, None]
            attended: Tensor = F.scaled_dot_product_attention(query, key, value, attn_mask=allowed)
        attended = attended.transpose(1, 2).flatten(2).to(own.dtype)
        x = x + self.output(attended)
        result: Tensor = x + self.feed_forward(x)
        return result

    def _split(self, x: Tensor) -> Tensor:
        parts: Tensor = x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return parts


class _Film(nn.Module):
    """A mixer over slots and a feed-forward network, both scaled and shifted by a text vector."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mixer_norm, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.modulation = nn.Linear(width, 4 * width)
        self.mixer = nn.Sequential(nn.Linear(SLOTS, 32), nn.GELU(), nn.Linear(32, SLOTS))
        self.feed_forward = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        mix_scale, mix_shift, scale, shift = self.modulation(text)[:, None].chunk(4, -1)
        mixed: Tensor = self.mixer((self.mixer_norm(x) * (1 + mix_scale) + mix_shift).transpose(1, 2))
        x = x + mixed.transpose(1, 2)
        result: Tensor = x + self.feed_forward(self.norm(x) * (1 + scale) + shift)
        return result


class _JointFusion(nn.Module):
    def __init__(self, config: MiniConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Attention(config.hidden_size, config.heads) for _ in range(config.layers))

    def forward(self, slots: Tensor, words: Tensor, mask: Tensor) -> Tensor:
        x = torch.cat([slots, words], 1)
        mask = torch.cat([mask.new_ones(len(slots), SLOTS), mask], 1)
        for layer in self.layers:
            x = layer(x, mask)
        return x[:, :SLOTS]


class _FilmFusion(nn.Module):
    def __init__(self, config: MiniConfig) -> None:
        super().__init__()
        self.text_layers = nn.ModuleList(
            _Attention(config.hidden_size, config.heads) for _ in range(config.text_layers)
        )
        self.layers = nn.ModuleList(_Film(config.hidden_size) for _ in range(config.layers))

    def forward(self, slots: Tensor, words: Tensor, mask: Tensor) -> Tensor:
        for layer in self.text_layers:
            words = layer(words, mask)
        text = (words * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        for layer in self.layers:
            slots = layer(slots, text)
        return slots


class _CrossFusion(nn.Module):
    def __init__(self, config: MiniConfig) -> None:
        super().__init__()
        width, heads = config.hidden_size, config.heads
        self.text_layers = nn.ModuleList(_Attention(width, heads) for _ in range(config.text_layers))
        self.layers = nn.ModuleList(_Attention(width, heads, cross=True) for _ in range(config.layers))
        self.between = nn.ModuleList(_Attention(width, heads, expansion=1) for _ in range(config.layers - 1))

    def forward(self, slots: Tensor, words: Tensor, mask: Tensor) -> Tensor:
        for layer in self.text_layers:
            words = layer(words, mask)
        for index, layer in enumerate(self.layers):
            slots = layer(slots, mask, words)
            if index < len(self.between):
                slots = self.between[index](slots)
        return slots


def _feed_forward(width: int, expansion: int) -> nn.Module:
    hidden = expansion * width
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
