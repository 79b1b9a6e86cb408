"""Train the mini encoders from nothing, on two CPU cores in under half an hour.

    python -m circus_bench.models.mini.training --out DIR [--name balanced|visual|textual|all]

Steps, seeds and schedules are fixed and every process computes on one thread, so that a repeated run on the same kind
of machine gives the same weights. Processors that differ in how they multiply bfloat16 matrices give slightly different
ones.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import random
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from tqdm import tqdm

from circus_bench._typing import StrPath
from circus_bench.models.mini.configuration import MiniConfig, MiniFusion
from circus_bench.models.mini.examples import Example, Mixture, NoImage, draw_batch
from circus_bench.models.mini.modeling import MiniModel
from circus_bench.models.mini.processing import START, UNKNOWN, build_tokenizer, tokenize
from circus_bench.models.mini.threads import one_thread
from circus_bench.sources.scenes.language import WORD_PATTERN, vocabulary
from circus_bench.sources.scenes.world import BACKGROUNDS, COLORS, SHAPES, SIDE, SIZES, Scene, render, scene_objects

_WARM_UP_STEPS = 80
_FINAL_RATE = 0.02  # of the peak learning rate
_MAX_SCALE = 60.0
_BACKWARD_WEIGHT = 0.3  # of the loss from targets to queries
_UNKNOWN_WORDS = 0.01  # share of words that training hides
_SHORT_TEXTS = 0.6  # share of a batch that is padded to a shorter length
# Per slot: shape, color and size of its object, each with an extra class for an empty cell, and the background.
ATTRIBUTE_CLASSES = (len(SHAPES) + 1, len(COLORS) + 1, len(SIZES) + 1, len(BACKGROUNDS))


@dataclass(frozen=True, slots=True)
class Recipe:
    """The hyperparameters of one mini encoder.

    Attributes:
        fusion: its architecture.
        mixture: its training data, which makes it lean on images or on text.
        channels: widths of its first convolutions.
        steps: optimizer steps.
        learning_rate: the peak.
        seed: of the weights and of the examples.
    """

    fusion: MiniFusion
    mixture: Mixture
    channels: tuple[int, int, int] = (24, 48, 64)
    steps: int = 1800
    learning_rate: float = 1.5e-3
    seed: int = 0


RECIPES = {
    "balanced": Recipe(MiniFusion.JOINT, Mixture(families=20, captions=28, views=12)),
    "visual": Recipe(MiniFusion.FILM, Mixture(families=20, captions=4, views=36, without_text=0.2)),
    "textual": Recipe(
        MiniFusion.CROSS, Mixture(families=17, captions=48, views=4, without_image=0.3), channels=(16, 32, 64)
    ),
}


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as tensors. The first candidates are the targets, in the order of the queries.

    Attributes:
        pixels: candidate images and, last, a black image; uint8, shape (candidates + 1, side, side, 3).
        source: for each query the row of its image in `pixels`, or -1 for none.
        token_ids: shape (queries, tokens), shorter texts first.
        token_mask: 1 for a token, 0 for padding; same shape.
        same: whether a candidate shows the target scene of a query without being its target; such a pair is neither a
            positive nor a negative. Shape (queries, candidates).
        attributes: classes of each cell of each candidate; shape (candidates, 9, 4).
    """

    pixels: Tensor
    source: Tensor
    token_ids: Tensor
    token_mask: Tensor
    same: Tensor
    attributes: Tensor


def make_batch(examples: Sequence[Example], shown: Sequence[Scene], tokenizer: Any, rng: np.random.Generator) -> Batch:
    """Render the scenes and tokenize the texts of a batch."""
    examples = sorted(examples, key=lambda example: len(example.text.split()))
    candidates = [example.target for example in examples] + list(shown)
    rows: dict[Scene | NoImage, int] = {scene: len(examples) + index for index, scene in enumerate(shown)}
    rows |= {NoImage.BLACK: len(candidates), NoImage.ABSENT: -1}
    black = np.zeros((1, SIDE, SIDE, 3), np.uint8)
    token_ids, token_mask = tokenize(tokenizer, [example.text for example in examples])
    hidden = torch.from_numpy(rng.random(token_ids.shape) < _UNKNOWN_WORDS)
    start, unknown = tokenizer.convert_tokens_to_ids([START, UNKNOWN])
    token_ids[hidden & token_mask.bool() & (token_ids != start)] = unknown
    numbers = {scene: index for index, scene in enumerate(dict.fromkeys(candidates))}
    scenes = np.array([numbers[scene] for scene in candidates])
    same = scenes[: len(examples), None] == scenes[None]
    np.fill_diagonal(same, False)
    return Batch(
        pixels=torch.from_numpy(np.concatenate([render(candidates, rng), black])),
        source=torch.tensor([rows[example.image] for example in examples]),
        token_ids=token_ids,
        token_mask=token_mask,
        same=torch.from_numpy(same),
        attributes=torch.from_numpy(np.stack([_attributes(scene) for scene in candidates])),
    )


def losses(model: MiniModel, attribute_head: nn.Module, batch: Batch) -> tuple[Tensor, Tensor, float]:
    """Compute the retrieval loss, the attribute loss, and the share of queries whose target is the nearest candidate.

    Every image goes through the convolutions once, whether a query shows it, a target is it, or both. The attribute
    loss asks each output slot what the target has in that cell; its head is thrown away after training.
    """
    queries = len(batch.source)
    slots = model.image_slots(batch.pixels)
    candidates, candidate_slots = model.fuse(slots[:-1])
    shown = torch.where((batch.source < 0)[:, None, None], model.no_image, slots[batch.source])
    cut = int(queries * _SHORT_TEXTS)
    parts = []
    for rows in (slice(0, cut), slice(cut, queries)):
        length = int(batch.token_mask[rows].sum(1).max())
        parts.append(model.fuse(shown[rows], batch.token_ids[rows, :length], batch.token_mask[rows, :length]))
    embeddings, query_slots = (torch.cat(pair) for pair in zip(*parts, strict=True))
    logits = attribute_head(torch.cat([query_slots, candidate_slots])).float()
    wanted = torch.cat([batch.attributes[:queries], batch.attributes])
    attribute_loss = torch.stack(
        [
            F.cross_entropy(part.flatten(0, 1), wanted[..., index].flatten())
            for index, part in enumerate(logits.split(ATTRIBUTE_CLASSES, -1))
        ]
    ).sum()
    scores = embeddings @ candidates.T * model.temperature.exp().clamp(max=_MAX_SCALE)
    scores = scores.masked_fill(batch.same, -1e4)
    target = torch.arange(queries)
    loss = F.cross_entropy(scores, target) + _BACKWARD_WEIGHT * F.cross_entropy(scores[:, :queries].T, target)
    return loss, attribute_loss, float((scores.argmax(1) == target).float().mean())


def train(name: str, out: StrPath, *, steps: int | None = None, position: int = 0) -> Path:
    """Train one encoder and save it.

    Args:
        name: a key of RECIPES.
        out: the checkpoint goes to the folder of that name in here.
        steps: instead of the recipe's number, for trials.
        position: line of the progress bar.

    Returns:
        The folder of the checkpoint.
    """
    recipe = RECIPES[name]
    with one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        config, tokenizer = _config(recipe)
        model = MiniModel(config).train()
        wanted = steps or recipe.steps
        with tqdm(total=wanted, desc=name, position=position, unit="step", mininterval=5) as bar:
            _optimize(model, tokenizer, recipe, steps=wanted, bar=bar)
    return _save(model, tokenizer, Path(out) / name)


def _optimize(model: MiniModel, tokenizer: Any, recipe: Recipe, *, steps: int, bar: tqdm[Any]) -> None:
    rng = random.Random(recipe.seed)  # noqa: S311
    noise = np.random.default_rng(recipe.seed)
    attribute_head = nn.Linear(model.config.slot_size, sum(ATTRIBUTE_CLASSES))
    parameters = [*model.parameters(), *attribute_head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=recipe.learning_rate, weight_decay=0.02, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
    recent = 0.0
    for step in range(steps):
        batch = make_batch(*draw_batch(rng, recipe.mixture), tokenizer, noise)
        with torch.autocast("cpu", torch.bfloat16):
            loss, attribute_loss, accuracy = losses(model, attribute_head, batch)
        optimizer.zero_grad()
        (loss + attribute_loss).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        recent += (accuracy - recent) / min(step + 1, 50)
        bar.set_postfix(accuracy=f"{recent:.3f}", refresh=False)
        bar.update()


def _config(recipe: Recipe) -> tuple[MiniConfig, Any]:
    tokenizer = build_tokenizer(vocabulary(), WORD_PATTERN, max_length=MiniConfig().max_position_embeddings)
    config = MiniConfig(
        recipe.fusion,
        len(tokenizer),
        channels=recipe.channels,
        image_size=SIDE,
        bos_token_id=tokenizer.bos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        architectures=[MiniModel.__name__],
    )
    return config, tokenizer


def _rate(step: int, steps: int) -> float:
    """Linear warm-up, then a cosine down to `_FINAL_RATE`, as a share of the peak."""
    cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
    return min(1.0, (step + 1) / _WARM_UP_STEPS) * (_FINAL_RATE + (1 - _FINAL_RATE) * cosine)


def _attributes(scene: Scene) -> np.ndarray[Any, np.dtype[np.int64]]:
    cells = np.zeros((len(scene.cells), len(ATTRIBUTE_CLASSES)), np.int64)
    for obj in scene_objects(scene):
        cells[obj.place, :3] = obj.shape + 1, obj.color + 1, obj.size + 1
    cells[:, 3] = scene.background
    return cells


def _save(model: MiniModel, tokenizer: Any, folder: Path) -> Path:
    # Stored in half the size; the configuration keeps float32, so that loading brings the weights back to it.
    weights = {name: weight.half().contiguous() for name, weight in model.state_dict().items()}
    model.save_pretrained(folder, state_dict=weights)
    tokenizer.save_pretrained(folder)
    return folder


def main() -> None:
    """Train one encoder, or all of them side by side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", choices=(*RECIPES, "all"), default="all", help="which encoder (default: all)")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the checkpoint folders to")
    parser.add_argument("--jobs", type=int, default=len(RECIPES), help="encoders trained at a time (default: all)")
    parser.add_argument("--steps", type=int, help="fewer steps, for a trial")
    arguments = parser.parse_args()
    names = list(RECIPES) if arguments.name == "all" else [arguments.name]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(arguments.jobs, len(names)), mp_context=context) as pool:
        runs = [
            pool.submit(train, name, arguments.out, steps=arguments.steps, position=position)
            for position, name in enumerate(names)
        ]
        for run in runs:
            print(run.result())


if __name__ == "__main__":
    main()
