"""Define MM-Embed as a transformers model: LLaVA-NeXT's parts around the text embedder NV-Embed-v1.

Module and parameter names are those of the published state dict (nvidia/MM-Embed, model.safetensors.index.json, made by
modeling_nvmmembed.py and, for the latent attention, by modeling_nvembed.py of nvidia/NV-Embed-v1).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import LlavaNextConfig, LlavaNextModel

LATENT_ATTENTION = {"num_latents_value": 512, "num_cross_heads": 8, "cross_dim_head": 4096}
"""Sizes that the published configuration leaves to the defaults of configuration_nvembed.py (nvidia/NV-Embed-v1)."""


class MMEmbedModel(LlavaNextModel):
    """Vision tower, projector, Mistral and latent attention.

    Args:
        config: of LLaVA-NeXT; its text part is NV-Embed-v1's, not causal, with the sizes of the latent attention, where
            they differ from `LATENT_ATTENTION`, under `latent_attention_config`.
    """

    def __init__(self, config: LlavaNextConfig) -> None:
        super().__init__(config)
        text: Any = config.text_config
        sizes = {**LATENT_ATTENTION, **(getattr(text, "latent_attention_config", None) or {})}
        self.latent_attention_model = LatentAttention(
            text.hidden_size,
            latents=sizes["num_latents_value"],
            heads=sizes["num_cross_heads"],
            head_size=sizes["cross_dim_head"],
        )
        self.post_init()  # type: ignore[no-untyped-call]

    @property
    def image_tokens(self) -> int:
        """The number of tokens that an image takes: its patches, and the learned "newline" behind them."""
        vision: Any = self.config.vision_config
        return int((vision.image_size // vision.patch_size) ** 2 + 1)

    def image_features(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Embed images as tokens of the text tower.

        Of LLaVA-NeXT's views of an image MM-Embed uses the global one alone (`global_image_patch_only`).

        Args:
            pixel_values: [images, 3, size, size].

        Returns:
            [images, `image_tokens`, hidden size].
        """
        states = self.vision_tower(pixel_values.to(self.dtype), output_hidden_states=True).hidden_states
        patches = states[self.config.vision_feature_layer][:, 1:]  # without the class token
        projected = self.multi_modal_projector(patches)
        newline = self.image_newline.expand(len(projected), 1, -1)
        return torch.cat([projected, newline], dim=1)

    def forward(  # an embedder generates nothing: no cache, no labels
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        pixel_values: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run the text tower over texts with images in place of their image tokens.

        Args:
            input_ids: int64 [items, tokens], `image_tokens` image tokens for each image.
            attention_mask: 1 for tokens, 0 for padding, on the right.
            pixel_values: [images, 3, size, size], in the order of the items.
            kwargs: for the text tower.

        Returns:
            the text tower's output, with `last_hidden_state` [items, tokens, hidden size].
        """
        is_image = input_ids == self.config.image_token_id
        # The text tower has no embedding for the two tokens that LLaVA-NeXT's tokenizer adds: image and padding.
        embeds = self.get_input_embeddings()(input_ids.masked_fill(is_image | (attention_mask == 0), 0))
        if pixel_values is not None:
            features = self.image_features(pixel_values)
            embeds = embeds.masked_scatter(is_image.unsqueeze(-1), features.to(embeds.dtype))
        return self.language_model(inputs_embeds=embeds, attention_mask=attention_mask, **kwargs)


class LatentAttention(nn.Module):
    """Every hidden state attends to learned latents, then passes a feed-forward block; both are residual.

    Source: NV-Embed (arXiv:2405.17428), section 3.1, and modeling_nvembed.py (nvidia/NV-Embed-v1).

    Args:
        size: of the hidden states and the latents.
        latents: their number.
        heads: of the attention.
        head_size: of each head.
    """

    def __init__(self, size: int, *, latents: int, heads: int, head_size: int) -> None:
        super().__init__()
        attention = _CrossAttention(size, heads, head_size)
        blocks = [_PreNorm(size, attention, with_context=True), _PreNorm(size, _FeedForward(size))]
        self.cross_attend_blocks = nn.ModuleList(blocks)
        self.latents = nn.Parameter(torch.zeros(latents, size))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Refine hidden states [items, tokens, size]; each token on its own."""
        attend, feed_forward = self.cross_attend_blocks
        states = attend(states, self.latents.expand(len(states), -1, -1)) + states
        refined: torch.Tensor = feed_forward(states) + states
        return refined


class _PreNorm(nn.Module):
    def __init__(self, size: int, fn: nn.Module, *, with_context: bool = False) -> None:
        super().__init__()
        self.fn = fn
        self.norm = nn.LayerNorm(size)
        self.norm_context = nn.LayerNorm(size) if with_context else None

    def forward(self, states: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        normed = self.norm(states)
        if self.norm_context is None:
            result: torch.Tensor = self.fn(normed)
        else:
            result = self.fn(normed, self.norm_context(context))
        return result


class _CrossAttention(nn.Module):
    def __init__(self, size: int, heads: int, head_size: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(size, heads * head_size, bias=False)
        self.to_kv = nn.Linear(size, 2 * heads * head_size, bias=False)
        self.to_out = nn.Linear(heads * head_size, size, bias=False)

    def forward(self, states: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        keys, values = self.to_kv(context).chunk(2, dim=-1)
        parts = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.to_q(states), keys, values))
        attended = nn.functional.scaled_dot_product_attention(*parts)
        out: torch.Tensor = self.to_out(attended.transpose(1, 2).flatten(2))
        return out


class _FeedForward(nn.Module):
    """A GELU-gated feed-forward block, four times as wide as its input."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(size, 8 * size), _GatedGELU(), nn.Linear(4 * size, size))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.net(states)
        return out


class _GatedGELU(nn.Module):
    def forward(self, states: torch.Tensor) -> torch.Tensor:
        values, gates = states.chunk(2, dim=-1)
        return values * nn.functional.gelu(gates)
