r"""Embed with MM-Embed (arXiv:2411.02571): LLaVA-NeXT's vision tower before the text embedder NV-Embed-v1.

The code in the repository needs transformers 4.42; ours reads the same checkpoint. Facts and their sources:

| what | source |
|---|---|
| prompts, global view only, no instruction in the mean | nvidia/MM-Embed, modeling_nvmmembed.py, `encode` |
| sizes and rotary base of the text tower (MM-Embed's own `text_config` is not used) | nvidia/NV-Embed-v1, config.json |
| attention in both directions, latent attention, mean | nvidia/NV-Embed-v1, modeling_nvembed.py |

| input | what the model reads |
|---|---|
| multimodal query | `Instruct: INSTRUCTION\nQuery: <image>\nTEXT` |
| text-only query | the same, with a black image |
| image-only query | `Query: <image>\n` |
| gallery document | `<image>\n` |

In the CIRCUS paper's adapter (matteoattimonelli/CIRCUS, retrievers/mmembed_retriever.py) the instruction stands a
second time before the text, and it is kept in the image-only condition: its numbers are not those of this template.

Not verified, for want of the weights: that a vector equals that of the authors' code. The names in the state dict
follow from the authors' classes, and each step from the sources above.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

from circus_bench.models.base import Embedder, EmbedderFamily, LoadedModel, Pooling, PromptInput
from circus_bench.models.checkpoint import Checkpoint, CheckpointOptions
from circus_bench.models.metas import describe_model

if TYPE_CHECKING:
    import torch
    from mteb.models import ModelMeta
    from PIL.Image import Image

IMAGE = "<image>\n"
INSTRUCTION = "Instruct: "
QUERY = "Query: "
"""Prompt parts of nvidia/MM-Embed, modeling_nvmmembed.py, `encode`."""

NAME = "nvidia/MM-Embed"
REVISION = "a2542c237b5b700ed01b829689756425441cef97"
RETRIEVER_REVISION = "570834afd5fef5bf3a3c2311a2b6e0a66f6f4f2c"
"""Of the text embedder whose configuration the checkpoint refers to, nvidia/NV-Embed-v1; as mteb 2.26 pins it."""

# M-BEIR, on whose training split the model was trained (arXiv:2411.02571), by mteb's names of its tasks.
_M_BEIR = (
    "CIRRIT2IRetrieval",
    "EDIST2ITRetrieval",
    "Fashion200kI2TRetrieval",
    "Fashion200kT2IRetrieval",
    "FashionIQIT2IRetrieval",
    "InfoSeekIT2ITRetrieval",
    "InfoSeekIT2TRetrieval",
    "MSCOCOI2TRetrieval",
    "MSCOCOT2IRetrieval",
    "NIGHTSI2IRetrieval",
    "OVENIT2ITRetrieval",
    "OVENIT2TRetrieval",
    "VisualNewsI2TRetrieval",
    "VisualNewsT2IRetrieval",
    "WebQAT2ITRetrieval",
    "WebQAT2TRetrieval",
)
_LLAVA_SIZES = ("image_token_index", "projector_hidden_act", "vision_config", "vision_feature_layer")
_TEXT_SIZES = (
    "head_dim",
    "hidden_act",
    "hidden_size",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "rms_norm_eps",
    "rope_theta",
    "vocab_size",
)


def prompt_template(item: PromptInput) -> str:
    """Write the prompt of an item, without the tokens that start and end every text."""
    content = f"{IMAGE if item.has_image else ''}{item.text}"
    if not item.is_query:
        return content
    return f"{INSTRUCTION}{item.instruction}\n{QUERY}{content}" if item.instruction else f"{QUERY}{content}"


FAMILY = EmbedderFamily(
    prompt_template=prompt_template,
    image_token="<image>",  # noqa: S106  # a token of a vocabulary
    max_tokens=4096,  # the authors' examples, README.md, cut the text alone at this length
    pooling=Pooling.MEAN,
)


class MMEmbedEncoder(Embedder):
    """MM-Embed: images, texts or pairs of both to unit vectors."""

    def hidden_states(self, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Run the model, latent attention included."""
        states: torch.Tensor = self.model.latent_attention_model(super().hidden_states(tensors))
        return states

    def pooled_tokens(self, items: Sequence[PromptInput], mask: torch.Tensor) -> torch.Tensor:
        """Mark the tokens that take part in the mean: what follows the instruction.

        The authors count the tokens of `Instruct: INSTRUCTION` with those that start and end a text, so that the line
        break after the instruction is left out, too. Padding is on the right.
        """
        pooled = mask.clone()
        for row, item in enumerate(items):
            if item.is_query and item.instruction:
                pooled[row, : len(self.tokenizer(f"{INSTRUCTION}{item.instruction}")["input_ids"])] = 0
        return pooled

    def tensors(self, items: Sequence[PromptInput], images: Sequence[Image | None]) -> dict[str, torch.Tensor]:
        """Prepare one batch for the model, with `pixel_values` [images, 3, size, size] if there are images."""
        tensors = self.padded([self.tokens(item, self.model.image_tokens if item.has_image else 0) for item in items])
        shown = [image.convert("RGB") for image in images if image is not None]
        if shown:
            tensors["pixel_values"] = self.image_processor(images=shown, return_tensors="pt")["pixel_values"]
        return self.on_device(tensors)


def load(
    model_name: str,
    revision: str | None = None,
    **options: Unpack[CheckpointOptions],
) -> MMEmbedEncoder:
    """Load MM-Embed.

    Args:
        model_name: the repository on the Hub.
        revision: of the repository.
        options: see `Checkpoint`.

    Raises:
        FormatError: the checkpoint, or the configuration of the text embedder, is incomplete.
    """
    from tokenizers.processors import TemplateProcessing
    from transformers import LlavaNextConfig, PreTrainedTokenizerFast
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    from circus_bench.models.families.mm_embed_modeling import MMEmbedModel

    checkpoint = Checkpoint(model_name, revision, **options)
    config = checkpoint.json("config.json")
    retriever = Checkpoint(config["retriever"], RETRIEVER_REVISION).json("config.json")
    text = {name: value for name, value in retriever["text_config"].items() if name in _TEXT_SIZES}
    text |= {
        "model_type": "mistral",
        "is_causal": False,  # what transformers reads to mask nothing but padding
        "sliding_window": None,  # NV-Embed uses none, whatever its configuration mentions
        "latent_attention_config": retriever.get("latent_attention_config"),
    }
    known = {name: config[name] for name in _LLAVA_SIZES if name in config}
    model = checkpoint.weights(MMEmbedModel, LlavaNextConfig(text_config=text, **known))
    size = model.config.vision_config.image_size
    # The global view of LLaVA-NeXT: the whole image, squeezed into a square.
    image_processor = CLIPImageProcessorPil.from_pretrained(
        **checkpoint.source, size={"height": size, "width": size}, do_center_crop=False
    )
    # The tokenizer as it was saved; the class that transformers would choose rebuilds parts of it.
    tokenizer = PreTrainedTokenizerFast.from_pretrained(**checkpoint.source)
    ends = {tokenizer.bos_token: tokenizer.bos_token_id, tokenizer.eos_token: tokenizer.eos_token_id}
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{tokenizer.bos_token} $A {tokenizer.eos_token}", special_tokens=list(ends.items())
    )  # what `add_eos_token` in config.json asks for
    return MMEmbedEncoder(FAMILY, LoadedModel(model, tokenizer, image_processor))


def metas() -> list[ModelMeta]:
    """Describe the model to mteb."""
    meta = describe_model(
        load,
        name=NAME,
        revision=REVISION,
        release_date="2024-11-05",
        languages=["eng-Latn"],
        n_parameters=8_180_000_000,  # 16.36 GB of float16 weights, nvidia/MM-Embed
        n_embedding_parameters=32_000 * 4096,
        max_tokens=FAMILY.max_tokens,
        embed_dim=4096,
        license="cc-by-nc-4.0",
        reference="https://huggingface.co/nvidia/MM-Embed",
        training_datasets=set(_M_BEIR),  # and the text retrieval sets of NV-Embed-v1
        adapted_from="nvidia/NV-Embed-v1",
    )
    return [meta]
