"""Read from the environment how an embedding API is used: its budget, rate limit and response cache."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from circus_bench._typing import StrPath
from circus_bench.api.runtime import Clock, RetryPolicy
from circus_bench.errors import CircusError


def _default_cache_dir() -> Path:
    return Path.home() / ".cache" / "circus-bench" / "replies"


@dataclass(frozen=True)
class ApiSettings:
    """Settings of an encoder behind an API.

    Attributes:
        budget_usd: US dollars that may be spent (CIRCUS_API_BUDGET_USD; `inf` allows any); None refuses to spend.
        seconds: wall-clock budget (CIRCUS_API_SECONDS).
        requests_per_minute: instead of the vendor's default (CIRCUS_API_RPM).
        tokens_per_minute: likewise (CIRCUS_API_TPM).
        threads: requests under way at once (CIRCUS_API_THREADS).
        cache_dir: folder of what was paid for (CIRCUS_API_REPLIES).
        base_url: another address of the service; each vendor has a variable of its own.
        timeout: seconds to wait for a sign of an answer.
        retries: how often and how long a failed call is tried again.
        clock: the source of time.
    """

    budget_usd: float | None = None
    seconds: float = math.inf
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    threads: int = 8
    cache_dir: StrPath = field(default_factory=_default_cache_dir)
    base_url: str | None = None
    timeout: float = 120.0
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    clock: Clock = time

    @classmethod
    def from_environment(cls, *, url_variable: str) -> ApiSettings:
        """Read the variables above; one that is not set leaves its default.

        The processes of one `accelerate launch` share what is allowed: each takes its part of budget and rate limit.

        Args:
            url_variable: the vendor's variable for another address.

        Raises:
            CircusError: a variable is not a positive number.
        """
        world = _number("WORLD_SIZE") or 1.0
        rpm, tpm, budget = (_number(f"CIRCUS_API_{name}") for name in ("RPM", "TPM", "BUDGET_USD"))
        return cls(
            budget_usd=None if budget is None else budget / world,
            seconds=_number("CIRCUS_API_SECONDS") or math.inf,
            requests_per_minute=None if rpm is None else rpm / world,
            tokens_per_minute=None if tpm is None else tpm / world,
            threads=int(_number("CIRCUS_API_THREADS") or cls.threads),
            cache_dir=Path(os.environ.get("CIRCUS_API_REPLIES") or _default_cache_dir()),
            base_url=os.environ.get(url_variable) or None,
        )


def _number(variable: str) -> float | None:
    text = os.environ.get(variable, "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value > 0:
        raise CircusError(f"{variable}={text!r}: a number above 0 was expected")
    return value
