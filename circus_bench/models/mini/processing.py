"""Turn images into pixels and texts into tokens, for the mini encoders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor
from transformers import PreTrainedTokenizerFast

PAD, START, UNKNOWN = "[PAD]", "[BOS]", "[UNK]"


def pixels(images: Sequence[Image.Image], side: int = 64) -> Tensor:
    """Turn images of any size and mode into a batch of square RGB pixels.

    An image of another size is resized as a whole, without regard to its proportions: nothing of it is cut off.

    Returns:
        uint8, shape (len(images), side, side, 3).
    """
    arrays = []
    for image in images:
        rgb = image.convert("RGB")
        if rgb.size != (side, side):
            rgb = rgb.resize((side, side), Image.Resampling.BICUBIC)
        arrays.append(np.asarray(rgb))
    return torch.from_numpy(np.stack(arrays))


def build_tokenizer(words: Sequence[str], pattern: str, *, max_length: int) -> Any:
    """Build a tokenizer of whole lower-case words; every text starts with a start token.

    Args:
        words: the vocabulary, without special tokens.
        pattern: what counts as a word, as a regular expression. Everything else is dropped.
        max_length: tokens after which a text is cut.
    """
    ids = {token: index for index, token in enumerate((PAD, START, UNKNOWN, *words))}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{START} $A", special_tokens=[(START, ids[START])])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, bos_token=START, unk_token=UNKNOWN, model_max_length=max_length
    )


def tokenize(tokenizer: Any, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Tokenize texts: token ids and attention mask, int64, both of shape (len(texts), longest)."""
    encoded = tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt")
    return encoded["input_ids"], encoded["attention_mask"]
