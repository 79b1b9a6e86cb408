"""A dry run: how many calls, tokens, dollars and hours a pipeline takes. Nothing is read, called or encoded.

Counts follow from the settings and from a few shares that only a real run can tell. Tokens are estimated from the
prompts; pictures and replies have the sizes that are assumed. Encoding images and texts is not included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from circus_bench.api.chat.messages import Question
from circus_bench.api.chat.providers import ProviderSettings, price_of, split_model
from circus_bench.api.chat.shared import estimate_of, usage_of
from circus_bench.rmir.config import Config
from circus_bench.rmir.pipeline import Stage
from circus_bench.rmir.templates import Template, load_templates

PAPER_SEEDS = 500_000


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What a dry run cannot know.

    Attributes:
        drafts: share of the images and categories that give a query; 1 is an upper limit.
        pass_filter: share of the drafts that pass stage 2. The paper drops about 40 %.
        overlap: share of the candidates that both indexes find, and that are judged once; 0 gives an upper limit.
        captioned: share of the images that the collection brings a caption of.
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
class Line:
    """What a stage asks of a model.

    Attributes:
        stage: the stage.
        model: the model.
        calls: questions.
        input_tokens: of all questions.
        output_tokens: of all replies.
        usd: US dollars, or None when the price is not known.
        hours: at the requests and tokens a minute that the settings allow.
    """

    stage: Stage
    model: str
    calls: int
    input_tokens: int
    output_tokens: int
    usd: float | None
    hours: float


@dataclass(frozen=True)
class Forecast:
    """A dry run's result.

    Attributes:
        seeds: images that queries are made from.
        assumptions: as they were given.
        batch: whether the vendors' batch prices were taken.
        lines: one a stage and model.
    """

    seeds: int
    assumptions: Assumptions
    batch: bool
    lines: Sequence[Line]

    @property
    def calls(self) -> int:
        """Of all stages."""
        return sum(line.calls for line in self.lines)

    @property
    def usd(self) -> float | None:
        """Of all stages, or None when a price is not known."""
        known = [line.usd for line in self.lines if line.usd is not None]
        return sum(known) if len(known) == len(self.lines) else None

    @property
    def hours(self) -> float:
        """Of all stages, one after the other; within a stage the models work at the same time."""
        slowest: dict[Stage, float] = {}
        for line in self.lines:
            slowest[line.stage] = max(line.hours, slowest.get(line.stage, 0))
        return sum(slowest.values())


def forecast(
    config: Config, *, seeds: int | None = None, assumptions: Assumptions | None = None, batch: bool = False
) -> Forecast:
    """Project a run.

    Args:
        config: the settings.
        seeds: images that queries are made from; by default as many as the clusters give, or the paper's 500,000 where
            there are none.
        assumptions: what only a real run can tell.
        batch: take the prices of the vendors' batch endpoints.

    Raises:
        RemoteError: a model has no provider.
    """
    assumed = assumptions or Assumptions()
    if seeds is None:
        seeds = config.seed.clusters * config.seed.per_cluster or PAPER_SEEDS
    lines = [
        _line(stage, model, _usage(model, asked, assumed, batch=batch), config, calls=sum(n for _, n in asked))
        for stage, model, asked in _questions(config, seeds, assumed)
    ]
    return Forecast(seeds, assumed, batch, lines)


def _questions(config: Config, seeds: int, assumed: Assumptions) -> list[tuple[Stage, str, list[tuple[Template, int]]]]:
    """What each stage asks of each model: templates, and how often."""
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


def _usage(model: str, asked: Sequence[tuple[Template, int]], assumed: Assumptions, *, batch: bool) -> Counter[str]:
    """Tokens of some questions, in the units of the price list."""
    total: Counter[str] = Counter()
    for template, count in asked:
        text = template.text + "x" * (assumed.characters * len(template.fields))
        question = Question(model, template.id, text, schema=template.schema)
        tokens, _ = estimate_of(question, template.images * assumed.picture_tokens).values()
        usage = usage_of(model, (tokens, assumed.reply_tokens), batch=batch)
        total.update({unit: count * amount for unit, amount in usage.items()})
    return total


def _line(stage: Stage, model: str, usage: Counter[str], config: Config, *, calls: int) -> Line:
    price = price_of(model, settings=config.providers)
    provider, _ = split_model(model, named=config.providers)
    pace = config.providers.get(provider) or ProviderSettings()
    asked, replied = (round(amount) for amount in usage.values())
    minutes = max(calls / pace.requests_per_minute, usage.total() / pace.tokens_per_minute)
    return Line(stage, model, calls, asked, replied, price.cost(usage) if price else None, minutes / 60)
