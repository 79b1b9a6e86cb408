"""Simulate LLM judges, generators, checkers and captioners that know the ground truth and err at set rates.

A synthetic model is named `<family>/<member>`. A member's own errors are sampled anew for every request and sample. A
family's blind spots are shared by all its members, as those of models that were trained alike may be: images that none
of them recognizes, and wrong answers that all of them fall for. More judges of one family do not help there.

Every error follows from the seed and from the request, not from when or how often it is sent.
"""

from __future__ import annotations

import dataclasses
import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from circus_bench.api.chat.messages import Completion, ParseResult, Request
from circus_bench.api.chat.parsing import parse_response
from circus_bench.api.runtime import RemoteError, Usage
from circus_bench.demo.world.collection import World, caption
from circus_bench.demo.world.objects import OBJECTS
from circus_bench.demo.world.relations import Meaning, make_question, meaning_of
from circus_bench.demo.world.truth import answers_to, ground_truth_query
from circus_bench.errors import CircusError
from circus_bench.rmir.records import Category, Constraint, JudgeDecision
from circus_bench.validation.hash_order import hash_shuffle, hash_uniform

_UNREADABLE = (
    '{"reason": "It follows from',  # cut off
    "accept, I would say",
    '{"possible": NaN, "decision": NaN, "passed": NaN, "caption": NaN}',
    '{"decision": "accept"} or rather {"decision": "reject"}',
)
_DECLINED = "I'm sorry, but I can't help with this image."


@dataclass(frozen=True, slots=True)
class ErrorRates:
    """Error rates of a synthetic model; all are chances from 0 to 1.

    Attributes:
        misses: a judge rejects a positive; a checker fails a sound draft.
        false_accepts: a judge accepts a negative; a checker passes a flawed draft.
        abstains: a judge says that it cannot tell.
        refusals: the model declines to answer.
        malformed: its reply cannot be read.
        untidy: its reply is wrapped in a fence and prose, and can be read.
        skips: a generator sees no question where there is one.
        flaws: it writes a question that breaks a constraint.
        miscaptions: a captioner names another object.
        unseen: the family does not recognize an image, and always rejects it.
        tempted: the family falls for a hard negative: an image that would be right for another input image of the
            relation, or that shows the input's own object.

    Raises:
        CircusError: a chance is no number from 0 to 1.
    """

    misses: float = 0.0
    false_accepts: float = 0.0
    abstains: float = 0.0
    refusals: float = 0.0
    malformed: float = 0.0
    untidy: float = 0.0
    skips: float = 0.0
    flaws: float = 0.0
    miscaptions: float = 0.0
    unseen: float = 0.0
    tempted: float = 0.0

    def __post_init__(self) -> None:
        wrong = [f"{name} = {chance}" for name, chance in dataclasses.asdict(self).items() if not 0 <= chance <= 1]
        if wrong:
            raise CircusError(f"error rates are chances from 0 to 1, not {', '.join(wrong)}")


PERFECT = ErrorRates()


def family_of(model: str) -> str:
    """Return the family of a synthetic model, or of a judge: the part before the slash."""
    return model.partition("/")[0]


class SyntheticProvider:
    """Provider of synthetic models that know the ground truth.

    Args:
        world: the ground truth.
        members: model to its error rates; only these can be called.
        seed: of the errors.
    """

    name = "synthetic"

    def __init__(self, world: World, members: Mapping[str, ErrorRates], *, seed: int = 0) -> None:
        self._world = world
        self._members = dict(members)
        self._seed = seed

    def estimate(self, request: Request) -> Usage:
        """See `Provider`: one call."""
        return {"calls": 1} if request.model in self._members else {}

    def answer(self, request: Request) -> Completion:
        """See `Provider`.

        Raises:
            RemoteError: the model, the template or an image is none of this world.
            CircusError: the question is none of it.
        """
        if request.model not in self._members:
            raise RemoteError(f"no synthetic model {request.model!r}; there are: {', '.join(self._members)}")
        errors = self._members[request.model]
        try:
            images = [self._world.by_digest[digest] for digest in request.images]
        except KeyError as error:
            raise RemoteError(f"the synthetic world has no image of the digest {error.args[0]}") from None
        dice = _Dice((self._seed, request.model, request.sample, request.template, request.text, *images))
        usage = {"calls": 1.0}
        if dice.says("refusal", errors.refusals):
            return Completion(_DECLINED, "refusal" if dice.says("plain", 0.5) else "end", usage)
        if dice.says("malformed", errors.malformed):
            return Completion(_UNREADABLE[int(dice.number("how") * len(_UNREADABLE))], "end", usage)
        text = json.dumps(self._content(request, images, errors, dice))
        if dice.says("untidy", errors.untidy):
            text = f"Here is my answer.\n```json\n{text}\n```\nI hope this helps!"
        return Completion(text, "end", usage)

    def _content(self, request: Request, images: Sequence[str], errors: ErrorRates, dice: _Dice) -> dict[str, Any]:
        name = request.template.partition("@")[0]
        kind, _, part = name.partition("_")
        if kind == "generate":
            return self._generate(images[0], Category(part), errors, dice)
        if kind == "check":
            return _check(meaning_of(request.text), Constraint(part), errors, dice)
        if kind == "judge":
            return self._judge(meaning_of(request.text), images[0], images[1], family_of(request.model), errors, dice)
        if kind == "caption":
            return {"caption": self._caption(images[0], errors, dice)}
        raise RemoteError(f"the models of the synthetic world know no template {request.template!r}")

    def _generate(self, image: str, category: Category, errors: ErrorRates, dice: _Dice) -> dict[str, Any]:
        entry = ground_truth_query(self._world, image, category)
        if entry is None or dice.says("skip", errors.skips):
            return {"possible": False, "text": "", "answer": ""}
        meaning = entry.meaning
        if dice.says("flaw", errors.flaws):
            flaw = tuple(Constraint)[int(dice.number("which flaw") * len(Constraint))]
            meaning = make_question(meaning.relation, self._world.contents[image].subject, flaw=flaw)
        return {"possible": True, "text": meaning.text, "answer": entry.answer}

    def _caption(self, image: str, errors: ErrorRates, dice: _Dice) -> str:
        content = self._world.contents[image]
        if not dice.says("miscaption", errors.miscaptions):
            return content.caption
        others = [name for name in self._world.showing if name != content.subject] or [content.subject]
        return caption(hash_shuffle(others, *dice.key, "other")[0], content.look)

    def _judge(
        self, meaning: Meaning, image: str, candidate: str, family: str, errors: ErrorRates, dice: _Dice
    ) -> dict[str, Any]:  # fmt: skip
        if dice.says("abstain", errors.abstains):
            return {"reason": "I cannot tell what the image shows.", "decision": JudgeDecision.ABSTAIN}
        right = candidate in answers_to(self._world, image, meaning.text)
        if right:
            unseen = _Dice((self._seed, family, candidate)).says("unseen", errors.unseen)
            accepted = not unseen and not dice.says("miss", errors.misses)
        else:
            shown, other = self._world.contents[image].subject, self._world.contents[candidate].subject
            shared = _Dice((self._seed, family, meaning.relation.name, shown, other))
            tempting = other == shown or other in meaning.relation.pairs.values()
            accepted = (tempting and shared.says("tempted", errors.tempted)) or dice.says(
                "accept", errors.false_accepts
            )
        shows = f"The second image shows {OBJECTS[self._world.contents[candidate].subject].words}"
        reason = f"{shows}, which {'answers' if accepted else 'does not answer'} the question."
        return {"reason": reason, "decision": JudgeDecision.ACCEPT if accepted else JudgeDecision.REJECT}


class SyntheticClient:
    """Client that calls synthetic models one request after the other. They cost nothing, so no completion is cached.

    Args:
        provider: of the models.

    Attributes:
        tally: number of results per model and type: `<model> <Parsed, Refused or Malformed>`.
    """

    def __init__(self, provider: SyntheticProvider) -> None:
        self._provider = provider
        self._lock = threading.Lock()
        self.tally: Counter[str] = Counter()

    def complete(self, requests: Sequence[Request]) -> Iterator[ParseResult]:
        """See `ChatClient`."""
        for request in requests:
            result = parse_response(self._provider.answer(request), request.schema)
            with self._lock:
                self.tally[f"{request.model} {type(result).__name__}"] += 1
            yield result


@dataclass(frozen=True, slots=True)
class _Dice:
    """Generator of random numbers that follow from a key."""

    key: tuple[object, ...]

    def number(self, what: str) -> float:
        return hash_uniform(*self.key, what)

    def says(self, what: str, chance: float) -> bool:
        return chance > 0 and self.number(what) < chance


def _check(meaning: Meaning, constraint: Constraint, errors: ErrorRates, dice: _Dice) -> dict[str, Any]:
    if meaning.flaw is constraint:
        passed = dice.says("accept", errors.false_accepts)
    else:
        passed = not dice.says("miss", errors.misses)
    return {"reason": "It is as required." if passed else "It is not as required.", "passed": passed}
