"""Oracles: scripted providers that know the truth of the embedded world, and err at set rates.

An oracle's model is named `<family>/<member>`. What a member gets wrong by itself is drawn anew for every question and
sample. A family's blind spots are shared by all its members, as those of models that were trained alike may be: images
that none of them recognises, and wrong answers that all of them fall for. More judges of one family do not help there.

Every error follows from the seed and from what is asked, not from when or how often.
"""

from __future__ import annotations

import dataclasses
import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from circus_bench.api.chat.messages import Outcome, Question, Reply
from circus_bench.api.chat.parsing import read
from circus_bench.api.runtime import RemoteError, Usage
from circus_bench.demo.world.collection import World, caption
from circus_bench.demo.world.objects import THINGS
from circus_bench.demo.world.relations import Meaning, ask, meaning_of
from circus_bench.demo.world.truth import answers_to, planted_query
from circus_bench.errors import CircusError
from circus_bench.rmir.records import Category, Constraint, Decision
from circus_bench.validation.hash_order import fraction, shuffled

_UNREADABLE = (
    '{"reason": "It follows from',  # cut off
    "accept, I would say",
    '{"possible": NaN, "decision": NaN, "passed": NaN, "caption": NaN}',
    '{"decision": "accept"} or rather {"decision": "reject"}',
)
_DECLINED = "I'm sorry, but I can't help with this image."


@dataclass(frozen=True, slots=True)
class Errors:
    """How often an oracle goes wrong; all are chances from 0 to 1.

    Attributes:
        misses: a judge rejects an answer; a checker fails a sound draft.
        false_accepts: a judge accepts what is no answer; a checker passes a flawed draft.
        abstains: a judge says that it cannot tell.
        refusals: the oracle declines to answer.
        malformed: its reply cannot be read.
        untidy: its reply is wrapped in a fence and prose, and can be read.
        skips: a generator sees no question where there is one.
        flaws: it writes a question that breaks a constraint.
        miscaptions: a captioner names another thing.
        unseen: the family does not recognise an image, and rejects it whatever is asked.
        tempted: the family falls for a wrong answer that has to do with the question: one that would be right for
            another image, or the input's own kind.

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
            raise CircusError(f"an oracle needs chances from 0 to 1: {', '.join(wrong)}")


PERFECT = Errors()


def family_of(model: str) -> str:
    """The family of an oracle, or of a judge: what comes before the slash."""
    return model.partition("/")[0]


class Oracle:
    """A provider that knows the truth.

    Args:
        world: what is true.
        members: model to its errors; only these can be asked.
        seed: of the errors.
    """

    name = "oracle"

    def __init__(self, world: World, members: Mapping[str, Errors], *, seed: int = 0) -> None:
        self._world = world
        self._members = dict(members)
        self._seed = seed

    def estimate(self, question: Question) -> Usage:
        """One call."""
        return {"calls": 1} if question.model in self._members else {}

    def answer(self, question: Question) -> Reply:
        """See `Provider`.

        Raises:
            RemoteError: the model, the template or an image is none of this world.
            CircusError: the question is none of it.
        """
        if question.model not in self._members:
            raise RemoteError(f"no oracle {question.model!r}; there are: {', '.join(self._members)}")
        errors = self._members[question.model]
        try:
            images = [self._world.by_digest[digest] for digest in question.images]
        except KeyError as error:
            raise RemoteError(f"the embedded world has no image of the digest {error.args[0]}") from None
        dice = _Dice((self._seed, question.model, question.sample, question.template, question.text, *images))
        usage = {"calls": 1.0}
        if dice.says("refusal", errors.refusals):
            return Reply(_DECLINED, "refusal" if dice.says("plain", 0.5) else "end", usage)
        if dice.says("malformed", errors.malformed):
            return Reply(_UNREADABLE[int(dice.number("how") * len(_UNREADABLE))], "end", usage)
        text = json.dumps(self._content(question, images, errors, dice))
        if dice.says("untidy", errors.untidy):
            text = f"Here is my answer.\n```json\n{text}\n```\nI hope this helps!"
        return Reply(text, "end", usage)

    def _content(self, question: Question, images: Sequence[str], errors: Errors, dice: _Dice) -> dict[str, Any]:
        name = question.template.partition("@")[0]
        kind, _, part = name.partition("_")
        if kind == "generate":
            return self._generate(images[0], Category(part), errors, dice)
        if kind == "check":
            return _check(meaning_of(question.text), Constraint(part), errors, dice)
        if kind == "judge":
            return self._judge(meaning_of(question.text), images[0], images[1], family_of(question.model), errors, dice)
        if kind == "caption":
            return {"caption": self._caption(images[0], errors, dice)}
        raise RemoteError(f"the oracles of the embedded world know no template {question.template!r}")

    def _generate(self, image: str, category: Category, errors: Errors, dice: _Dice) -> dict[str, Any]:
        entry = planted_query(self._world, image, category)
        if entry is None or dice.says("skip", errors.skips):
            return {"possible": False, "text": "", "answer": ""}
        meaning = entry.meaning
        if dice.says("flaw", errors.flaws):
            flaw = tuple(Constraint)[int(dice.number("which flaw") * len(Constraint))]
            meaning = ask(meaning.relation, self._world.pictures[image].thing, flaw=flaw)
        return {"possible": True, "text": meaning.text, "answer": entry.answer}

    def _caption(self, image: str, errors: Errors, dice: _Dice) -> str:
        picture = self._world.pictures[image]
        if not dice.says("miscaption", errors.miscaptions):
            return picture.caption
        others = [name for name in self._world.showing if name != picture.thing] or [picture.thing]
        return caption(shuffled(others, *dice.key, "other")[0], picture.look)

    def _judge(
        self, meaning: Meaning, image: str, candidate: str, family: str, errors: Errors, dice: _Dice
    ) -> dict[str, Any]:  # fmt: skip
        if dice.says("abstain", errors.abstains):
            return {"reason": "I cannot tell what the image shows.", "decision": Decision.ABSTAIN}
        right = candidate in answers_to(self._world, image, meaning.text)
        if right:
            unseen = _Dice((self._seed, family, candidate)).says("unseen", errors.unseen)
            accepted = not unseen and not dice.says("miss", errors.misses)
        else:
            shown, other = self._world.pictures[image].thing, self._world.pictures[candidate].thing
            shared = _Dice((self._seed, family, meaning.relation.name, shown, other))
            tempting = other == shown or other in meaning.relation.pairs.values()
            accepted = (tempting and shared.says("tempted", errors.tempted)) or dice.says(
                "accept", errors.false_accepts
            )
        shows = f"The second image shows {THINGS[self._world.pictures[candidate].thing].words}"
        reason = f"{shows}, which {'answers' if accepted else 'does not answer'} the question."
        return {"reason": reason, "decision": Decision.ACCEPT if accepted else Decision.REJECT}


class OracleAsker:
    """Asks oracles one question after the other. They cost nothing, so no reply is kept.

    Args:
        oracle: whom to ask.

    Attributes:
        tally: how often each model gave each kind of outcome: `<model> <Parsed, Refused or Malformed>`.
    """

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self._lock = threading.Lock()
        self.tally: Counter[str] = Counter()

    def ask(self, questions: Sequence[Question]) -> Iterator[Outcome]:
        """See `Asker`."""
        for question in questions:
            outcome = read(self._oracle.answer(question), question.schema)
            with self._lock:
                self.tally[f"{question.model} {type(outcome).__name__}"] += 1
            yield outcome


@dataclass(frozen=True, slots=True)
class _Dice:
    """Random numbers that follow from a key."""

    key: tuple[object, ...]

    def number(self, what: str) -> float:
        return fraction(*self.key, what)

    def says(self, what: str, chance: float) -> bool:
        return chance > 0 and self.number(what) < chance


def _check(meaning: Meaning, constraint: Constraint, errors: Errors, dice: _Dice) -> dict[str, Any]:
    if meaning.flaw is constraint:
        passed = dice.says("accept", errors.false_accepts)
    else:
        passed = not dice.says("miss", errors.misses)
    return {"reason": "It is as required." if passed else "It is not as required.", "passed": passed}
