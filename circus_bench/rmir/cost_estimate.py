"""Estimate the cost of a pipeline in a dry run: calls, tokens, dollars and hours. Nothing is read, called or encoded.

Counts follow from the settings and from a few shares that only a real run can tell. Tokens are estimated from the
prompts; images and replies have the sizes that are assumed. Encoding images and texts is not included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from circus_bench.api.chat.messages import Request
from circus_bench.api.chat.providers import ProviderSettings, price_of, split_model
from circus_bench.api.chat.shared import estimate_usage, token_usage
from circus_bench.rmir.config import Config
from circus_bench.rmir.pipeline import Stage
from circus_bench.rmir.templates import Template, load_templates

PAPER_SEEDS = 500_000


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Shares and sizes that a dry run assumes.

    Attributes:
        drafts: share of the images and categories that give a query; 1 is an upper limit.
        pass_filter: share of the drafts that pass stage 2. The paper drops about 40 %.
        overlap: share of the candidates that both indexes find, and that are judged once; 0 gives an upper limit.
        captioned: share of the images that the collection brings a caption for.
        picture_tokens: of one image; 1,600 is the most that Claude counts.
        reply_tokens: of a reply: a reason of two sentences, or a question and a description.
        characters: of a query's text, and of a described answer.
    """

    drafts: float = 1.0
    pass_filter: float = 0.6
    overlap: float = 0.0
    captioned: float = 0.0
    picture_tokens: int = 1600
    reply_tokens: int = 150
    characters: int = 120


@dataclass(frozen=True, slots=True)
class StageCost:
    """Cost of a stage's calls of one model.

    Attributes:
        stage: the stage.
        model: the model.
        calls: number of requests.
        input_tokens: of all requests.
        output_tokens: of all replies.
        usd: US dollars, or None when the price is not known.
        hours: at the requests and tokens per minute that the settings allow.
    """

    stage: Stage
    model: str
    calls: int
    input_tokens: int
    output_tokens: int
    usd: float | None
    hours: float


@dataclass(frozen=True)
class CostEstimate:
    """Cost estimate of a pipeline.

    Attributes:
        seeds: images that queries are made from.
        assumptions: of the estimate.
        batch: whether the vendors' batch prices were taken.
        lines: one per stage and model.
    """

    seeds: int
    assumptions: Assumptions
    batch: bool
    lines: Sequence[StageCost]

    @property
    def calls(self) -> int:
        """Calls of all stages."""
        return sum(line.calls for line in self.lines)

    @property
    def usd(self) -> float | None:
        """US dollars of all stages, or None when a price is not known."""
        known = [line.usd for line in self.lines if line.usd is not None]
        return sum(known) if len(known) == len(self.lines) else None

    @property
    def hours(self) -> float:
        """Hours of all stages, one after the other; within a stage the models work at the same time."""
        slowest: dict[Stage, float] = {}
        for line in self.lines:
            slowest[line.stage] = max(line.hours, slowest.get(line.stage, 0))
        return sum(slowest.values())


def estimate_pipeline_cost(
    config: Config, *, seeds: int | None = None, assumptions: Assumptions | None = None, batch: bool = False
) -> CostEstimate:
    """Estimate the cost of a run.

    Args:
        config: the settings.
        seeds: images that queries are made from; by default as many as the clusters give, or the paper's 500,000 where
            there are none.
        assumptions: shares and sizes that only a real run can tell.
        batch: take the prices of the vendors' batch endpoints.

    Raises:
        RemoteError: a model has no provider.
    """
    assumed = assumptions or Assumptions()
    if seeds is None:
        seeds = config.seed.clusters * config.seed.per_cluster or PAPER_SEEDS
    lines = [
        _stage_cost(
            stage, model, _usage(model, planned, assumed, batch=batch), config, calls=sum(n for _, n in planned)
        )
        for stage, model, planned in _planned_requests(config, seeds, assumed)
    ]
    return CostEstimate(seeds, assumed, batch, lines)


def _planned_requests(
    config: Config, seeds: int, assumed: Assumptions
) -> list[tuple[Stage, str, list[tuple[Template, int]]]]:
    """List each stage's requests per model: templates, and their counts."""
    templates = load_templates(config.prompts)
    drafts = seeds * len(config.generate.categories) * assumed.drafts
    each = (config.candidates.visual_k + config.candidates.text_k) * (1 - assumed.overlap)
    candidates = round(drafts * assumed.pass_filter * each)
    generated = [(templates[f"generate_{category}"], seeds) for category in config.generate.categories]
    checked = [(templates[f"check_{constraint}"], round(drafts)) for constraint in config.filter.constraints]
    found = [(Stage.GENERATE, config.generate.model, generated), (Stage.FILTER, config.filter.model, checked)]
    if config.candidates.text_k:
        described = round(seeds * (1 - assumed.captioned))
        found.append((Stage.CAPTION, config.caption.model, [(templates["caption"], described)]))
    votes = Counter(judge.model for judge in config.judge.judges)
    return found + [(Stage.JUDGE, model, [(templates["judge"], candidates * n)]) for model, n in votes.items()]


def _usage(model: str, planned: Sequence[tuple[Template, int]], assumed: Assumptions, *, batch: bool) -> Counter[str]:
    """Estimate the tokens of requests, in the units of the price list."""
    total: Counter[str] = Counter()
    for template, count in planned:
        text = template.text + "x" * (assumed.characters * len(template.fields))
        request = Request(model, template.id, text, schema=template.schema)
        tokens, _ = estimate_usage(request, template.images * assumed.picture_tokens).values()
        usage = token_usage(model, (tokens, assumed.reply_tokens), batch=batch)
        total.update({unit: count * amount for unit, amount in usage.items()})
    return total


def _stage_cost(stage: Stage, model: str, usage: Counter[str], config: Config, *, calls: int) -> StageCost:
    price = price_of(model, settings=config.providers)
    provider, _ = split_model(model, named=config.providers)
    pace = config.providers.get(provider) or ProviderSettings()
    sent, replied = (round(amount) for amount in usage.values())
    minutes = max(calls / pace.requests_per_minute, usage.total() / pace.tokens_per_minute)
    return StageCost(stage, model, calls, sent, replied, price.cost(usage) if price else None, minutes / 60)
