"""Send requests to the vendors' batch endpoints, which answer within a day, at half the price.

Anthropic's Message Batches and OpenAI's Batch API. What is sent is written down first, in a journal, and taken out when
the results are on disk. So a run that is killed finds its batches again, even one whose id it never learned: nothing is
sent twice. Completions are those of `CachedClient`, in the same file.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from circus_bench._typing import StrPath
from circus_bench.api.chat.anthropic import AnthropicProvider
from circus_bench.api.chat.batch_endpoints import (
    AnthropicBatches,
    BatchFailedError,
    BatchService,
    NotYetError,
    OpenAIBatches,
    Rejected,
    Sent,
)
from circus_bench.api.chat.messages import Completion, ParseResult, Request
from circus_bench.api.chat.openai import OpenAIProvider
from circus_bench.api.chat.parsing import parse_response
from circus_bench.api.chat.providers import ProviderSettings, make_provider, price_of, shared_budget, split_model
from circus_bench.api.runtime import (
    MAX_CONSECUTIVE_REJECTIONS,
    Budget,
    BudgetError,
    Clock,
    RateLimit,
    RemoteError,
    ResponseCache,
    RetryingCaller,
    RetryPolicy,
    TransientError,
    Usage,
)
from circus_bench.io import read_json, write_json

T = TypeVar("T")

_ROUNDS = 3  # so often is sent again what a batch left open: expired, or failed on the service's side


class BatchClient:
    """A `ChatClient` that sends everything in batches and waits for them. One process at a time.

    Args:
        services: by model.
        cache: where completions are kept.
        journal: folder of what was sent and is not back yet.
        budget: refuses what the budget does not allow, and counts what is spent.
        caller: rate limit and retries.
        clock: the source of time.
        poll: seconds between two looks at a batch.
        seconds: so long is waited in all.

    Attributes:
        budget: as above.
    """

    def __init__(
        self,
        services: Mapping[str, BatchService],
        cache: ResponseCache,
        journal: StrPath,
        *,
        budget: Budget,
        caller: RetryingCaller | None = None,
        clock: Clock | None = None,
        poll: float = 60.0,
        seconds: float = math.inf,
    ) -> None:
        self._services = services
        self._cache = cache
        self._journal = Path(journal)
        self.budget = budget
        self._clock: Clock = clock or time
        self._caller = caller or RetryingCaller(RateLimit(math.inf), clock=self._clock)
        self._poll = poll
        self._deadline = self._clock.monotonic() + seconds

    def complete(self, requests: Sequence[Request]) -> Iterator[ParseResult]:
        """Complete requests; yields parse results, in the order of the requests, when all of them are there.

        Raises:
            BudgetError: a budget of money or time is used up. What was sent is fetched by a repeated run.
            RemoteError: a service cannot be used, rejects whole batches, or leaves requests open again and again.
        """
        rejected = self._collect(self._unfinished())
        wanted = {request.key: request for request in requests}
        for _ in range(_ROUNDS):
            known = self._cache.known(wanted)
            still = [request for key, request in wanted.items() if key not in known and key not in rejected]
            if not still:
                break
            rejected |= self._round(still)
        else:
            known = self._cache.known(wanted)
            if left := [key for key in wanted if key not in known and key not in rejected]:
                raise RemoteError(f"{len(left)} requests were sent in {_ROUNDS} batches and never answered")
        kept = self._cache.get(wanted)
        for request in requests:
            data = kept.get(request.key)
            completion = Completion.from_bytes(data) if data else Completion(rejected[request.key].reason, "refusal")
            yield parse_response(completion, request.schema)

    def _round(self, requests: Sequence[Request]) -> dict[str, Rejected]:
        """Send requests, wait, and keep the completions; returns those that were rejected."""
        sent: list[Sent] = []
        refused: BudgetError | None = None
        with ExitStack() as reservations:
            for model, bodies, estimate in self._parts(requests):
                try:
                    reservations.enter_context(self.budget.reserving(estimate))
                except BudgetError as error:
                    refused = error
                    break
                sent.append(self._send(model, bodies))
            rejected = self._collect(sent)
        if refused:
            raise refused  # after what was sent before is back
        return rejected

    def _parts(self, requests: Sequence[Request]) -> Iterator[tuple[str, dict[str, Mapping[str, Any]], Usage]]:
        """Split requests into batches that a service takes: model, bodies by key, and estimate."""
        for model in dict.fromkeys(request.model for request in requests):
            if model not in self._services:
                raise RemoteError(f"no batch endpoint for the model {model!r}; there are for {sorted(self._services)}")
            service = self._services[model]
            bodies: dict[str, Mapping[str, Any]] = {}
            estimate: Counter[str] = Counter()
            size = 0
            for request in (request for request in requests if request.model == model):
                body = service.body(request)
                more = len(json.dumps(body))
                if bodies and (len(bodies) >= service.max_requests or size + more > service.max_bytes):
                    yield model, bodies, estimate
                    bodies, estimate, size = {}, Counter(), 0
                bodies[request.key] = body
                estimate.update(service.estimate(request))
                size += more
            yield model, bodies, estimate

    def _send(self, model: str, bodies: Mapping[str, Mapping[str, Any]]) -> Sent:
        service = self._services[model]
        created = datetime.now(UTC).isoformat(timespec="seconds")
        sent = Sent(uuid.uuid4().hex, model, tuple(bodies), created)
        self._write(sent)

        def attempt() -> str:
            try:
                return service.send(bodies, sent.marker)
            except TransientError as error:
                # It may have arrived although the answer did not.
                found = self._found(service, sent) if error.maybe_paid else None
                if found is None:
                    raise
                return found

        try:
            batch = self._caller.call(attempt)
        except BudgetError:
            raise
        except RemoteError as error:
            if not isinstance(error.__cause__, TransientError):
                self._path(sent).unlink()  # the service said no: nothing was sent
            raise
        sent = replace(sent, id=batch)
        self._write(sent)
        return sent

    def _unfinished(self) -> list[Sent]:
        """List what earlier runs sent."""
        found = []
        for path in sorted(self._journal.glob("*.json")):
            content = read_json(path)
            sent = Sent(**{**content, "keys": tuple(content["keys"])})
            if sent.model not in self._services:
                raise RemoteError(
                    f"{path}: a batch for the model {sent.model!r} is not back yet; ask with this model, or delete the "
                    f"file to give up what was paid"
                )
            if not sent.id:
                batch = self._found(self._services[sent.model], sent)
                if batch is None:
                    path.unlink()
                    continue
                sent = replace(sent, id=batch)
                self._write(sent)
            found.append(sent)
        return found

    def _found(self, service: BatchService, sent: Sent) -> str | None:
        return self._until(lambda: self._caller.call(lambda: service.find(sent)))

    def _collect(self, batches: Iterable[Sent]) -> dict[str, Rejected]:
        """Wait for batches, keep their completions, and take them out of the journal."""
        rejected: dict[str, Rejected] = {}
        for sent in batches:
            try:
                results = self._results(self._services[sent.model], sent)
            except BatchFailedError:
                self._path(sent).unlink()
                raise
            answered = {key: found for key, found in results.items() if isinstance(found, Completion)}
            known = self._cache.known(answered)
            self._cache.put({key: completion.to_bytes() for key, completion in answered.items()})
            for key in answered.keys() - known:
                self.budget.charge(answered[key].usage)
            self._path(sent).unlink()
            turned_down = {key: found for key, found in results.items() if isinstance(found, Rejected)}
            if len(turned_down) >= MAX_CONSECUTIVE_REJECTIONS and not answered:
                reason = next(iter(turned_down.values())).reason
                raise RemoteError(
                    f"all {len(turned_down)} requests of a batch were rejected, so something else is wrong: {reason}"
                )
            rejected |= turned_down
        return rejected

    def _results(self, service: BatchService, sent: Sent) -> dict[str, Completion | Rejected]:
        def look() -> None:
            if not service.is_finished(sent.id):
                raise NotYetError

        self._until(lambda: self._caller.call(look))
        return self._caller.call(lambda: service.results(sent.id, sent.model))

    def _until(self, look: Callable[[], T]) -> T:
        """Look again and again until it raises `NotYetError` no more."""
        while True:
            try:
                return look()
            except NotYetError:
                if self._clock.monotonic() + self._poll >= self._deadline:
                    raise BudgetError(
                        "the time is up and a batch is not ready; it goes on, run again to fetch it"
                    ) from None
                self._clock.sleep(self._poll)

    def _path(self, sent: Sent) -> Path:
        return self._journal / f"{sent.marker}.json"

    def _write(self, sent: Sent) -> None:
        write_json(self._path(sent), asdict(sent))


def make_batch_client(
    models: Iterable[str],
    cache: StrPath,
    *,
    budget: float | None,
    seconds: float = math.inf,
    poll: float = 60.0,
    settings: Mapping[str, ProviderSettings] | None = None,
    retries: RetryPolicy | None = None,
    clock: Clock | None = None,
) -> BatchClient:
    """Make a client that sends requests to some models in batches; see `circus_bench.api.chat.providers.make_client`.

    Args:
        models: every model that will be used, of Anthropic or OpenAI.
        cache: the file in which completions are kept; the journal is a folder beside it.
        budget: US dollars for all of them together.
        seconds: so long is waited in all.
        poll: seconds between two looks at a batch.
        settings: by the name of the provider; the environment's by default.
        retries: how often and how long a failed call is tried again.
        clock: the source of time.

    Raises:
        RemoteError: a provider cannot be used, or has no batch endpoint.
    """
    settings = settings or {}
    services: dict[str, BatchService] = {}
    for model in dict.fromkeys(models):
        name, _ = split_model(model, named=settings)
        provider = make_provider(name, settings.get(name) or ProviderSettings())
        if isinstance(provider, AnthropicProvider):
            services[model] = AnthropicBatches(provider)
        elif isinstance(provider, OpenAIProvider):
            services[model] = OpenAIBatches(provider)
        else:
            raise RemoteError(f"provider {name!r} of the model {model!r} has no batch endpoint here")
    total = shared_budget((price_of(model, settings=settings) for model in services), budget)
    path = Path(cache)
    journal = path.with_name(f"{path.stem}-batches")
    caller = RetryingCaller(RateLimit(math.inf, clock=clock), policy=retries, clock=clock)
    return BatchClient(
        services, ResponseCache(path), journal, budget=total, caller=caller, clock=clock, poll=poll, seconds=seconds
    )
