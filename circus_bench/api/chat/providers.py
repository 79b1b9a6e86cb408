"""Choose who answers requests: Anthropic, OpenAI and whatever speaks its protocol, Gemini, a model on this machine.

A model is named `<provider>/<the provider's name of it>`. What follows from a vendor's name alone needs no provider.

| provider | examples | key | address |
|---|---|---|---|
| `anthropic` | `anthropic/claude-sonnet-4-5`, `claude-haiku-4-5` | ANTHROPIC_API_KEY | CIRCUS_ANTHROPIC_URL |
| `openai` | `openai/gpt-5-mini`, `gpt-4.1-mini` | OPENAI_API_KEY | CIRCUS_OPENAI_URL |
| `compatible` | `compatible/llava:13b` | CIRCUS_COMPATIBLE_API_KEY, if any | CIRCUS_COMPATIBLE_URL |
| `gemini` | `gemini/gemini-2.5-flash`, `gemini-2.5-flash` | GEMINI_API_KEY or GOOGLE_API_KEY | CIRCUS_GEMINI_URL |
| `local` | `local/Qwen/Qwen2.5-VL-3B-Instruct`, `local/FOLDER` | | |

`compatible` is a server such as vLLM or Ollama, on this machine or elsewhere. Several of them can be told apart by
names of their own; see `ProviderSettings`.

The vendors' packages (extra `judges`) are used for the wire protocol only: their retries are off, for rate limits,
retries and budgets are those of `circus_bench.api.runtime`.

Example:
    >>> split_model("claude-haiku-4-5"), split_model("local/Qwen/Qwen2.5-VL-3B-Instruct")
    (('anthropic', 'claude-haiku-4-5'), ('local', 'Qwen/Qwen2.5-VL-3B-Instruct'))
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Collection, Iterable, Mapping

from circus_bench._typing import StrPath
from circus_bench.api.chat.client import CachedClient, Route
from circus_bench.api.chat.shared import PricedProvider, ProviderSettings
from circus_bench.api.runtime import (
    Budget,
    Clock,
    Price,
    RateLimit,
    RemoteError,
    ResponseCache,
    RetryingCaller,
    RetryPolicy,
)

__all__ = ["PROVIDERS", "ProviderSettings", "make_client", "make_provider", "price_of", "shared_budget", "split_model"]

PROVIDERS = ("anthropic", "openai", "compatible", "gemini", "local")

_FAMILIES = {"claude-": "anthropic", "gpt-": "openai", "gemini-": "gemini"}
_MODULES = {"compatible": "openai"}


def split_model(model: str, *, named: Collection[str] = ()) -> tuple[str, str]:
    """Split a model name into the provider and the provider's name of the model.

    Args:
        model: with or without the provider.
        named: providers beside `PROVIDERS`.

    Raises:
        RemoteError: the provider is not known.
    """
    provider, _, name = model.partition("/")
    if name and (provider in PROVIDERS or provider in named):
        return provider, name
    for beginning, family in _FAMILIES.items():
        if model.startswith(beginning):
            return family, model
    raise RemoteError(
        f"model {model!r}: no provider is known by that name; write <provider>/<model>, the provider being one of "
        f"{', '.join((*PROVIDERS, *named))}"
    )


def make_provider(name: str, settings: ProviderSettings | None = None) -> PricedProvider:
    """Make a provider, ready to be used.

    Args:
        name: one of `PROVIDERS`, or a name of its own if the settings have a kind.
        settings: the environment's by default.

    Raises:
        RemoteError: the name is not known, the key or the address is missing, or the vendor's package is.
    """
    settings = settings or ProviderSettings()
    kind = settings.kind or name
    if kind not in PROVIDERS:
        raise RemoteError(f"provider {name!r}: of no known kind; there are {', '.join(PROVIDERS)}")
    module = importlib.import_module(f"circus_bench.api.chat.{_MODULES.get(kind, kind)}")
    try:
        provider: PricedProvider = module.make(name, kind, settings)
    except ImportError as error:
        raise RemoteError(
            f"provider {name!r} needs the package {error.name!r}: pip install 'circus-bench[judges]'"
        ) from error
    return provider


def price_of(model: str, *, settings: Mapping[str, ProviderSettings] | None = None) -> Price | None:
    """Look up what a model costs per token, or None when that is not known. Needs neither key nor package.

    Raises:
        RemoteError: the model's provider is not known.
    """
    settings = settings or {}
    provider, name = split_model(model, named=settings)
    kind = (settings.get(provider) or ProviderSettings()).kind or provider
    module = importlib.import_module(f"circus_bench.api.chat.{_MODULES.get(kind, kind)}")
    price: Price | None = module.price(model, name, kind)
    return price


def shared_budget(prices: Iterable[Price | None], budget: float | None) -> Budget:
    """Make one budget for all models: a price that is not known makes the sum unknown, too.

    Args:
        prices: of every model that will be used.
        budget: US dollars for all of them together; None refuses to spend, `math.inf` does not count.
    """
    found = list(prices)
    known = [price for price in found if price]
    if not any(any(price.usd.values()) for price in known) and len(known) == len(found):
        budget = math.inf  # nothing is charged
    price = None
    if len(known) == len(found):
        usd = {unit: amount for one in known for unit, amount in one.usd.items()}
        sources = dict.fromkeys(one.source for one in known)
        price = Price(usd, "; ".join(sources), min((one.date for one in known if one.date), default=""))
    return Budget(price, budget, setting="--budget")


def make_client(
    models: Iterable[str],
    cache: StrPath,
    *,
    budget: float | None,
    seconds: float = math.inf,
    threads: int = 8,
    settings: Mapping[str, ProviderSettings] | None = None,
    retries: RetryPolicy | None = None,
    clock: Clock | None = None,
) -> CachedClient:
    """Make a client for some models.

    Args:
        models: every model that will be used.
        cache: the file in which completions are kept.
        budget: US dollars for all of them together; None refuses to spend, `math.inf` allows any amount.
        seconds: wall-clock budget.
        threads: requests under way at once.
        settings: by the name of the provider; the environment's by default.
        retries: how often and how long a failed call is tried again.
        clock: the source of time.

    Raises:
        RemoteError: a provider cannot be used; see `make_provider`.
    """
    settings = settings or {}
    providers: dict[str, PricedProvider] = {}
    routes = {}
    for model in dict.fromkeys(models):
        name, _ = split_model(model, named=settings)
        own = settings.get(name) or ProviderSettings()
        provider = providers.get(name) or make_provider(name, own)
        providers[name] = provider
        limit = RateLimit(own.requests_per_minute, tokens=own.tokens_per_minute, clock=clock)
        routes[model] = Route(provider, RetryingCaller(limit, policy=retries, seconds=seconds, clock=clock))
    total = shared_budget((price_of(model, settings=settings) for model in routes), budget)
    return CachedClient(routes, ResponseCache(cache), budget=total, threads=threads)
