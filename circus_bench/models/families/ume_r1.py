"""Embed with UME-R1 (arXiv:2511.00405), on Qwen2-VL, which reasons before it embeds.

A model has two kinds of embedding, which are two entries in the registry:

- `Mode.GENERATIVE`, under the model's own name: the model writes its reasoning and a summary, and the embedding is the
  last hidden state of the last `<gen_emb>` that it writes. RMIR reports this one.
- `Mode.DISCRIMINATIVE`, under the name with `-discriminative` added: the embedding is the last hidden state of the
  `<disc_emb>` that ends the input. Nothing is generated, which takes a small part of the time.

Sources: the README, `src/eval/VLM2Vec/eval_twomode.py` and `src/eval/VLM2Vec/src/data/collator/eval_collator.py` of
XMUDeepLIT/UME-R1 (commit ab4fc06). The rest is Qwen2-VL's chat template.

| what | user turn |
|---|---|
| multimodal query | image, instruction, newline, text, newline, `<disc_emb>`, newline, `REQUEST` |
| text-only query | black image, and the same |
| image-only query | image, `Represent the given image.`, newline, `<disc_emb>`, newline, `REQUEST` |
| gallery document | as the image-only query |

In discriminative mode the prompt ends with `<disc_emb>`: what follows cannot change a state before it. An input without
an image is shown with a small white one, as the authors do.

Generation is greedy, and in float32 independent of the batch. In bfloat16 another batch may lead to another wording,
and with it to a slightly different embedding.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Unpack

from circus_bench.errors import EmbeddingError, FormatError, format_ids
from circus_bench.models.base import LoadedModel, PromptInput
from circus_bench.models.checkpoint import CheckpointOptions
from circus_bench.models.families.qwen_vl import IMAGE, SYSTEM, TOKEN_PIXELS, QwenVLEncoder, QwenVLFamily, load_model
from circus_bench.models.metas import adapt_meta

if TYPE_CHECKING:
    import torch
    from mteb.models import ModelMeta
    from PIL.Image import Image

# XMUDeepLIT/UME-R1, src/eval/VLM2Vec/src/data/collator/eval_collator.py: what it calls GENERATION_PROMPT
REQUEST = (
    "Represent the above input text, images, videos, or any combination of the three as embeddings. "
    "First output the thinking process in <think> </think> tags and then summarize the entire input in a word or "
    "sentence. Finally, use the <gen_emb> tag to represent the entire input."
)
# the instruction of image targets in the data of TIGER-AI-Lab/VLM2Vec, which UME-R1 is trained and evaluated with
IMAGE_PROMPT = "Represent the given image."
# XMUDeepLIT/UME-R1, README.md
DISCRIMINATIVE_TOKEN = "<disc_emb>"  # noqa: S105  # a token of a vocabulary
GENERATIVE_TOKEN = "<gen_emb>"  # noqa: S105
# XMUDeepLIT/UME-R1, README.md, the command for evaluation
MAX_NEW_TOKENS = 8192

_BLANK_SIZE = (56, 56)  # eval_collator.py makes 28 x 28 pixels, which qwen-vl-utils enlarges to its minimum
_SUFFIX = "-discriminative"

_logger = logging.getLogger(__name__)


class Mode(StrEnum):
    """The embedding that is taken from the model."""

    GENERATIVE = "generative"
    """That of the `<gen_emb>` that the model writes after its reasoning."""
    DISCRIMINATIVE = "discriminative"
    """That of the `<disc_emb>` at the end of the input."""


class Unfinished(StrEnum):
    """The treatment of an input for which the model never writes `<gen_emb>`."""

    LAST_TOKEN = "last_token"  # noqa: S105
    """The embedding is the state of the last token that the model writes, end of turn apart. Such inputs are counted in
    `GenerativeEncoder.unfinished` and logged. The authors' evaluation falls back to the end of the text, too."""
    ERROR = "error"
    """An `EmbeddingError`."""


def discriminative_template(item: PromptInput) -> str:
    """Write the prompt of an item up to its `<disc_emb>`."""
    text = item.query_text.strip() or IMAGE_PROMPT
    image = IMAGE if item.has_image else ""
    return f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{image}{text}\n{DISCRIMINATIVE_TOKEN}"


def generative_template(item: PromptInput) -> str:
    """Write the prompt of an item, up to where the model begins to write."""
    return f"{discriminative_template(item)}\n{REQUEST}<|im_end|>\n<|im_start|>assistant\n"


DISCRIMINATIVE = QwenVLFamily(
    model_class="Qwen2VLModel",
    prompt_template=discriminative_template,
    # XMUDeepLIT/UME-R1, README.md, the command for evaluation; the minimum is that of qwen-vl-utils, which loads images
    min_pixels=4 * TOKEN_PIXELS,
    max_pixels=2359296,
)
GENERATIVE = dataclasses.replace(
    DISCRIMINATIVE,
    model_class="Qwen2VLForConditionalGeneration",
    prompt_template=generative_template,
    padding_side="left",
)


class DiscriminativeEncoder(QwenVLEncoder):
    """UME-R1 in discriminative mode.

    Args:
        family: `DISCRIMINATIVE`.
        loaded: the checkpoint.

    Raises:
        FormatError: the tokenizer lacks the embedding tokens of UME-R1.
    """

    def __init__(self, family: QwenVLFamily, loaded: LoadedModel) -> None:
        super().__init__(family, loaded)
        vocabulary = self.tokenizer.get_vocab()
        lacking = [token for token in (DISCRIMINATIVE_TOKEN, GENERATIVE_TOKEN) if token not in vocabulary]
        if lacking:
            raise FormatError(
                f"the tokenizer lacks the tokens of UME-R1 ({format_ids(lacking)}); the checkpoint is another model"
            )
        self._generative_id: int = vocabulary[GENERATIVE_TOKEN]

    def tensors(self, items: Sequence[PromptInput], images: Sequence[Image | None]) -> dict[str, torch.Tensor]:
        """Prepare one batch, with a white image where there is none; see the base class."""
        from PIL import Image

        items = [dataclasses.replace(item, has_image=True) for item in items]
        blank = Image.new("RGB", _BLANK_SIZE, "white")
        return super().tensors(items, [blank if image is None else image for image in images])


class GenerativeEncoder(DiscriminativeEncoder):
    """UME-R1 in generative mode.

    The text is generated first; then prompt and text, up to the last `<gen_emb>`, are read in one pass. That gives the
    state that generation had at that token, without keeping the states of all layers and steps.

    Args:
        family: `GENERATIVE`.
        loaded: the checkpoint, with its language head.
        max_new_tokens: where a generation is cut off.
        unfinished: see `Unfinished`.

    Attributes:
        unfinished: the number of inputs so far for which the model wrote no `<gen_emb>`.
    """

    def __init__(
        self,
        family: QwenVLFamily,
        loaded: LoadedModel,
        *,
        max_new_tokens: int = MAX_NEW_TOKENS,
        unfinished: str = Unfinished.LAST_TOKEN,
    ) -> None:
        super().__init__(family, loaded)
        self.unfinished = 0
        self._max_new_tokens = max_new_tokens
        self._policy = Unfinished(unfinished)

    def tensors(self, items: Sequence[PromptInput], images: Sequence[Image | None]) -> dict[str, torch.Tensor]:
        """Prepare one batch, each prompt followed by what the model writes up to its last `<gen_emb>`.

        Raises:
            EmbeddingError: as in the base class, and by `Unfinished.ERROR`.
        """
        import torch

        prompts = super().tensors(items, images)
        written = self.write(prompts)
        lengths = [self._length(row) for row in written.tolist()]
        self._account([item.text for item, (_, found) in zip(items, lengths, strict=True) if not found], len(items))
        longest = max(length for length, _ in lengths)
        written = written[:, :longest]
        kept = torch.tensor([length for length, _ in lengths], device=written.device).unsqueeze(1)
        mask = (torch.arange(longest, device=written.device) < kept).long()
        return prompts | {
            "input_ids": torch.cat([prompts["input_ids"], written], 1),
            "attention_mask": torch.cat([prompts["attention_mask"], mask], 1),
            "mm_token_type_ids": torch.cat([prompts["mm_token_type_ids"], torch.zeros_like(mask)], 1),
        }

    def write(self, prompts: dict[str, torch.Tensor]) -> torch.Tensor:
        """Generate greedily; what else the checkpoint's generation settings say, such as a repetition penalty, holds.

        Returns:
            the tokens after the prompts, int64 [items, at most `max_new_tokens`], padded on the right.
        """
        sequences: torch.Tensor = self.model.generate(
            **prompts,
            do_sample=False,
            num_beams=1,
            max_new_tokens=self._max_new_tokens,
            eos_token_id=self._ends(),
            pad_token_id=self.tokenizer.pad_token_id,
            # A generated image token would be taken for an image in the second pass.
            suppress_tokens=[self.model.config.image_token_id],
        )
        return sequences[:, prompts["input_ids"].shape[1] :]

    def _ends(self) -> list[int]:
        ends = self.model.generation_config.eos_token_id or self.tokenizer.eos_token_id
        return ends if isinstance(ends, list) else [ends]

    def _length(self, written: list[int]) -> tuple[int, bool]:
        """Count the tokens that are read, and tell whether the last of them is `<gen_emb>`."""
        if self._generative_id in written:
            return len(written) - written[::-1].index(self._generative_id), True
        ends = set(self._ends())
        return next((place for place, token in enumerate(written) if token in ends), len(written)), False

    def _account(self, unfinished: Sequence[str], count: int) -> None:
        if not unfinished:
            return
        message = (
            f"{len(unfinished)} of {count} generations ended without {GENERATIVE_TOKEN} ({format_ids(unfinished)})"
        )
        if self._policy is Unfinished.ERROR:
            raise EmbeddingError(
                f"{message}; allow more than {self._max_new_tokens} new tokens, or the authors' fallback with "
                f"unfinished={Unfinished.LAST_TOKEN.value!r}"
            )
        self.unfinished += len(unfinished)
        _logger.warning("%s; their last token is taken instead", message)


def metas() -> list[ModelMeta]:
    """Describe both sizes as mteb does, with our loader, in both modes."""
    from mteb.models.model_implementations.ume_r1 import ume_r1_2b, ume_r1_7b

    return [
        adapt_meta(meta, load, name=f"{meta.name}{suffix}")
        for meta in (ume_r1_2b, ume_r1_7b)
        for suffix in ("", _SUFFIX)
    ]


def load(
    model_name: str,
    revision: str | None = None,
    *,
    max_new_tokens: int = MAX_NEW_TOKENS,
    unfinished: str = Unfinished.LAST_TOKEN,
    **options: Unpack[CheckpointOptions],
) -> DiscriminativeEncoder:
    """Load UME-R1 in the mode that the name says.

    Args:
        model_name: the repository on the Hub, with `-discriminative` added for that mode.
        revision: of the repository.
        max_new_tokens: where a generation is cut off.
        unfinished: an `Unfinished` value.
        options: see `circus_bench.models.checkpoint.Checkpoint`.
    """
    repository = model_name.removesuffix(_SUFFIX)
    if mode_of(model_name) is Mode.DISCRIMINATIVE:
        return DiscriminativeEncoder(DISCRIMINATIVE, load_model(DISCRIMINATIVE, repository, revision, **options))
    loaded = load_model(GENERATIVE, repository, revision, **options)
    return GenerativeEncoder(GENERATIVE, loaded, max_new_tokens=max_new_tokens, unfinished=unfinished)


def mode_of(model_name: str) -> Mode:
    """Return the mode that a name in the registry stands for."""
    return Mode.DISCRIMINATIVE if model_name.endswith(_SUFFIX) else Mode.GENERATIVE
