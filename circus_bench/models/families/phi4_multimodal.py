r"""Embed with Phi-4-multimodal-instruct (arXiv:2503.01743) without any training for it, as RMIR evaluates it.

How RMIR prompts and pools the model is not published. The convention here is that of Qwen2.5-VL
(see `qwen2_5_vl` beside this module), the other untrained model of RMIR: the model is asked to summarize the input in
one word, in the sentences of `lamra`, and the hidden state that would give the word is the embedding. Scores need not
agree with RMIR's.

Sources: microsoft/Phi-4-multimodal-instruct, README.md for the chat format, processing_phi4mm.py for images,
modeling_phi4mm.py for the vision adapter, which is used where there is an image and not elsewhere.

| what | user turn |
|---|---|
| multimodal query | image, instruction, newline, text, newline, `SUMMARIZE_BOTH` |
| text-only query | black image, instruction, newline, text, newline, `SUMMARIZE_BOTH` |
| image-only query | image, newline, `SUMMARIZE_IMAGE` |
| gallery document | image, newline, `SUMMARIZE_IMAGE` |

Not verified, for want of the weights: that hidden states equal those of the published code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import numpy.typing as npt

from circus_bench.errors import FormatError
from circus_bench.models.base import Embedder, EmbedderFamily, LoadedModel, PromptInput
from circus_bench.models.checkpoint import Checkpoint, CheckpointOptions
from circus_bench.models.families.lamra import one_word
from circus_bench.models.metas import describe_model

if TYPE_CHECKING:
    import torch
    from mteb.models import ModelMeta
    from PIL.Image import Image

NAME = "microsoft/Phi-4-multimodal-instruct"
REVISION = "93f923e1a7727d1c4f446756212d9d3e8fcc5d81"
# What processing_phi4mm.py puts in place of `<|image_1|>`
IMAGE = "<|endoftext10|>"
INDEX = "model.safetensors.index.json"


def prompt_template(item: PromptInput) -> str:
    """Write the prompt of an item."""
    return f"<|user|>{one_word(item.query_text, image=IMAGE if item.has_image else '')}<|end|><|assistant|>"


FAMILY = EmbedderFamily(prompt_template=prompt_template, image_token=IMAGE, max_tokens=131_072)


class Phi4Encoder(Embedder):
    """Phi-4-multimodal: images, texts or pairs of both to unit vectors.

    Args:
        loaded: the checkpoint; the image processor is a `Crops`.
        adapter: the `VisionAdapter` of the model.

    Raises:
        FormatError: tokenizer and model do not agree on the image token.
    """

    def __init__(self, loaded: LoadedModel, adapter: Any) -> None:
        super().__init__(FAMILY, loaded)
        self.adapter = adapter
        self.check_image_token(self.model.config.vision_config.image_token_id)

    def embed(self, items: Sequence[PromptInput], images: Sequence[Image | None]) -> npt.NDArray[np.float32]:
        """Embed one batch, in parts that the model treats alike.

        Inputs with an image have other weights than those without, and inputs beyond a length have other rotary
        positions: the company of a longer input must not change a shorter one.
        """
        groups: dict[tuple[bool, bool], list[int]] = defaultdict(list)
        for place, (item, image) in enumerate(zip(items, images, strict=True)):
            length = len(self.tokens(item, self._image_tokens(image)))
            is_long = length > self.model.config.original_max_position_embeddings
            groups[item.has_image, is_long].append(place)
        vectors = np.empty((len(items), self.model.config.hidden_size), dtype=np.float32)
        for places in groups.values():
            vectors[places] = super().embed([items[place] for place in places], [images[place] for place in places])
        return vectors

    def tensors(self, items: Sequence[PromptInput], images: Sequence[Image | None]) -> dict[str, torch.Tensor]:
        """Prepare one batch for the model.

        Returns:
            as in the base class; if there are images, also `image_pixel_values` [images, most crops, 3, size, size],
            `image_attention_mask` [images, most crops, side, side], `image_sizes` (height, width, int64 [images, 2]).
        """
        import torch
        from torch.nn.utils.rnn import pad_sequence

        pairs = zip(items, images, strict=True)
        tensors = self.padded([self.tokens(item, self._image_tokens(image)) for item, image in pairs])
        shown = [image.convert("RGB") for image in images if image is not None]
        if shown:
            pixels, masks, sizes = zip(*map(self.image_processor.pixels, shown), strict=True)
            tensors["image_pixel_values"] = pad_sequence(list(pixels), batch_first=True)
            # Crops that an image does not have are seen, and their tokens never used.
            tensors["image_attention_mask"] = pad_sequence(list(masks), batch_first=True, padding_value=True)
            tensors["image_sizes"] = torch.tensor(sizes)
        return self.on_device(tensors)

    def hidden_states(self, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Run the model, with the vision adapter if there are images."""
        self.adapter.active = "image_pixel_values" in tensors
        return super().hidden_states(tensors)

    def _image_tokens(self, image: Image | None) -> int:
        return self.image_processor.tokens(*image.size) if image is not None else 0


def load(
    model_name: str,
    revision: str | None = None,
    **options: Unpack[CheckpointOptions],
) -> Phi4Encoder:
    """Load Phi-4-multimodal without its speech encoder.

    Args:
        model_name: the repository on the Hub.
        revision: of the repository; one that is laid out for the code in the repository (`model_type` "phi4mm").
        options: see `Checkpoint`.

    Raises:
        FormatError: the checkpoint is incomplete, or laid out otherwise.
    """
    from transformers import PreTrainedTokenizerFast

    from circus_bench.models.families.phi4_multimodal_modeling import (
        RENAMED,
        Crops,
        Phi4VisionModel,
        VisionAdapter,
        configuration,
    )

    checkpoint = Checkpoint(model_name, revision, **options)
    published = checkpoint.json("config.json")
    if published.get("model_type") != "phi4mm":
        raise FormatError(
            f"{checkpoint.where}: config.json has the model type {published.get('model_type')!r}, expected 'phi4mm'; "
            f"load the main branch of {NAME}"
        )
    config = configuration(published)
    model = checkpoint.weights(Phi4VisionModel, config, renamed=RENAMED)
    adapter = published["vision_lora"]
    scale = adapter["lora_alpha"] / adapter["r"]
    tokenizer = PreTrainedTokenizerFast.from_pretrained(**checkpoint.source)
    vision: Any = config.vision_config
    crops = Crops(vision.crop_size, vision.patch_size)
    return Phi4Encoder(
        LoadedModel(model, tokenizer, crops), VisionAdapter(model, _vision_matrices(checkpoint), scale=scale)
    )


def _vision_matrices(checkpoint: Checkpoint) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Read A and B of each module that the vision adapter changes, by the module's name."""
    from safetensors import safe_open

    files: dict[str, str] = checkpoint.json(INDEX)["weight_map"]
    ends = {"A": ".lora_A.vision.weight", "B": ".lora_B.vision.weight"}
    modules = sorted(name.removesuffix(ends["A"]) for name in files if name.endswith(ends["A"]))
    if not modules:
        raise FormatError(f"{checkpoint.where}: {INDEX} lists no vision adapter (lora_A.vision)")
    wanted: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for end in ends.values():
            wanted[files[module + end]].append(module + end)
    found: dict[str, torch.Tensor] = {}
    for file, names in wanted.items():
        with safe_open(checkpoint.file(file), framework="pt") as tensors:
            found |= {name: tensors.get_tensor(name) for name in names}
    return {module.removeprefix("model."): (found[module + ends["A"]], found[module + ends["B"]]) for module in modules}


def metas() -> list[ModelMeta]:
    """Describe the model to mteb."""
    meta = describe_model(
        load,
        name=NAME,
        revision=REVISION,
        release_date="2025-02-24",
        languages=["eng-Latn"],
        n_parameters=5_600_000_000,  # of the whole checkpoint, speech included, rounded
        n_embedding_parameters=200_064 * 3072,
        max_tokens=FAMILY.max_tokens,
        embed_dim=3072,
        license="mit",
        reference="https://huggingface.co/microsoft/Phi-4-multimodal-instruct",
    )
    return [meta]
