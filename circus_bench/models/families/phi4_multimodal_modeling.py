"""Define Phi-4-multimodal without speech: the published checkpoint in the classes of transformers, and its images.

The checkpoint (microsoft/Phi-4-multimodal-instruct) is laid out for the code that comes with it. The names differ from
those of transformers as its convert_phi4_multimodal_weights_to_hf.py lists them; images are prepared as in the
repository's processing_phi4mm.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from transformers import Phi4MultimodalConfig, Phi4MultimodalModel

RENAMED = {
    r"\.base_layer\.": ".",
    r"image_embed\.img_projection\.0\.": "image_embed.img_projection_up.",
    r"image_embed\.img_projection\.2\.": "image_embed.img_projection_down.",
    r"image_embed\.glb_GN$": "image_embed.global_img_feature_extensor",
    r"image_embed\.sub_GN$": "image_embed.sub_img_feature_extensor",
}
"""Published names, as regular expressions, and what stands for them in transformers."""

_SIZES = (
    "bos_token_id",
    "hidden_act",
    "hidden_size",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "original_max_position_embeddings",
    "pad_token_id",
    "partial_rotary_factor",
    "rms_norm_eps",
    "rope_scaling",
    "rope_theta",
    "sliding_window",
    "vocab_size",
)
# The speech encoder is left out; the class of transformers wants to build one all the same.
_NO_SPEECH = {
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_blocks": 1,
    "num_attention_heads": 1,
    "ext_pw_out_channel": 8,
    "depthwise_separable_out_channel": 8,
    "nemo_conv_channels": 8,
}
_SHORTEST = 10  # pixels; processing_phi4mm.py refuses images that become narrower, here they are widened


def configuration(published: Mapping[str, Any]) -> Phi4MultimodalConfig:
    """Write the published configuration in the terms of transformers.

    Args:
        published: content of config.json. The sizes of the vision tower do not stand there but in the published code,
            and are the defaults of transformers; an entry `vision_config` overrides them.
    """
    crop = published["embd_layer"]["image_embd_layer"]["crop_size"]
    return Phi4MultimodalConfig(
        **{name: published[name] for name in _SIZES if name in published},
        vision_config={"crop_size": crop, **published.get("vision_config", {})},
        audio_config=_NO_SPEECH,
    )


class Phi4VisionModel(Phi4MultimodalModel):
    """The vision tower and the language model."""

    # The adapters are read separately, by `VisionAdapter`'s maker; speech is left out.
    _keys_to_ignore_on_load_unexpected = [r"\.lora_[AB]\.", r"\.audio_embed\."]  # noqa: RUF012  # transformers' type

    def __init__(self, config: Phi4MultimodalConfig) -> None:
        super().__init__(config)
        del self.embed_tokens_extend.audio_embed
        # transformers leaves out the mask when no patch of a batch is padding, and then goes by this flag, which says
        # "causal"; the published code (vision_siglip_navit.py) attends in both directions.
        for layer in self.embed_tokens_extend.image_embed.img_processor.encoder.layers:
            layer.self_attn.is_causal = False
        self.post_init()  # type: ignore[no-untyped-call]


class VisionAdapter:
    """The low-rank matrices that the language model adds to its weights when, and only when, there is an image.

    Args:
        model: has the modules named.
        matrices: A and B of each module, by its name.
        scale: what their product is multiplied by.

    Attributes:
        active: whether they are added.
    """

    def __init__(
        self, model: nn.Module, matrices: Mapping[str, tuple[torch.Tensor, torch.Tensor]], *, scale: float
    ) -> None:
        self.active = False
        for name, (down, up) in matrices.items():
            module = model.get_submodule(name)
            weight = module.get_parameter("weight")
            module.register_forward_hook(self._hook(down.to(weight), up.to(weight), scale))

    def _hook(self, down: torch.Tensor, up: torch.Tensor, scale: float) -> Any:
        def add(_: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
            return output + scale * (inputs[0] @ down.T @ up.T) if self.active else output

        return add


@dataclass(frozen=True, slots=True)
class Crops:
    """The crops of an image.

    Attributes:
        size: pixels on the side of a crop.
        patch: pixels on the side of a patch of the vision tower.
        limit: at most so many crops per image, the overview not counted.
    """

    size: int
    patch: int
    limit: int = 36  # dynamic_hd in preprocessor_config.json

    @property
    def side(self) -> int:
        """Patches on the side of a crop."""
        return self.size // self.patch

    def grid(self, width: int, height: int) -> tuple[int, int]:
        """Choose columns and rows of crops for an image of the given size in pixels."""
        columns, rows = math.ceil(width / self.size), math.ceil(height / self.size)
        if columns * rows <= self.limit:
            return columns, rows
        best, best_difference = (1, 1), math.inf
        shapes = [(i, j) for i in range(1, self.limit + 1) for j in range(1, self.limit // i + 1)]
        for shape in sorted(shapes, key=lambda shape: (shape[0] * shape[1], shape)):
            difference = abs(width / height - shape[0] / shape[1])
            roomy = width * height > 0.5 * self.size**2 * shape[0] * shape[1]
            if difference < best_difference or (difference == best_difference and roomy):
                best, best_difference = shape, difference
        return best

    def scaled(self, width: int, height: int) -> tuple[int, int]:
        """Compute width and height in pixels at which an image fills its grid in one direction."""
        columns, rows = self.grid(width, height)
        ratio_width, ratio_height = columns * self.size / width, rows * self.size / height
        if ratio_width < ratio_height:
            return columns * self.size, max(int(height * ratio_width), _SHORTEST)
        return max(int(width * ratio_height), _SHORTEST), rows * self.size

    def tokens(self, width: int, height: int) -> int:
        """Count an image's tokens: the crops' and the overview's pooled patches and line ends, and one between.

        Two by two patches make a token; those that hold nothing but padding are left out.
        """
        kept_columns, kept_rows = (math.ceil(kept / 2) for kept in self._kept(width, height))
        overview = self.side // 2
        return kept_rows * (kept_columns + 1) + 1 + overview * (overview + 1)

    def pixels(self, image: Image.Image) -> tuple[torch.Tensor, torch.Tensor, tuple[int, int]]:
        """Cut an RGB image.

        Returns:
            the overview and the crops, row by row, float32 [1 + crops, 3, size, size] in -1 to 1; which of their
            patches hold anything, bool [1 + crops, side, side]; height and width of all crops together in pixels.
        """
        width, height = image.size
        columns, rows = self.grid(width, height)
        canvas = Image.new("RGB", (columns * self.size, rows * self.size), (255, 255, 255))
        canvas.paste(image.resize(self.scaled(width, height), Image.Resampling.BILINEAR))
        whole = torch.from_numpy(np.array(canvas, dtype=np.float32)).permute(2, 0, 1) / 255 * 2 - 1
        overview = nn.functional.interpolate(whole[None], size=(self.size, self.size), mode="bicubic")
        crops = whole.unflatten(1, (rows, self.size)).unflatten(3, (columns, self.size))
        crops = crops.permute(1, 3, 0, 2, 4).flatten(0, 1)
        mask = torch.zeros(rows * self.side, columns * self.side, dtype=torch.bool)
        kept_columns, kept_rows = self._kept(width, height)
        mask[:kept_rows, :kept_columns] = True
        masks = mask.unflatten(0, (rows, self.side)).unflatten(2, (columns, self.side)).transpose(1, 2).flatten(0, 1)
        everything = torch.ones(1, self.side, self.side, dtype=torch.bool)
        return torch.cat([overview, crops]), torch.cat([everything, masks]), (canvas.height, canvas.width)

    def _kept(self, width: int, height: int) -> tuple[int, int]:
        """Count columns and rows of patches that are not padding alone."""
        columns, rows = self.grid(width, height)
        new_width, new_height = self.scaled(width, height)
        empty_columns = (columns * self.size - new_width) // self.patch
        empty_rows = (rows * self.size - new_height) // self.patch
        return columns * self.side - empty_columns, rows * self.side - empty_rows
