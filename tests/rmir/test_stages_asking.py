"""Stages 1 to 4: the requests, and the handling of their results."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.parts import png

from circus_bench.api.chat.messages import Malformed, Parsed, ParseResult, Refused, Request
from circus_bench.errors import CircusError, ImageError
from circus_bench.rmir.config import (
    CaptionSettings,
    FilterSettings,
    GenerateSettings,
    JudgeSettings,
    JudgeSpec,
    ReadabilityMetric,
    UndecidedPolicy,
)
from circus_bench.rmir.records import (
    Caption,
    Category,
    Check,
    Constraint,
    Draft,
    FailedRequest,
    FailureReason,
    Index,
    JudgeDecision,
    Seed,
)
from circus_bench.rmir.stages.candidates import IndexSearch, images_by_query, search
from circus_bench.rmir.stages.caption import caption
from circus_bench.rmir.stages.filter import check, passed
from circus_bench.rmir.stages.generate import generate
from circus_bench.rmir.stages.judge import CandidateList, judge
from circus_bench.rmir.templates import load_template

IMAGES = {name: png(number) for number, name in enumerate("abcdefgh")}
DIGESTS = {name: hashlib.sha256(data).hexdigest() for name, data in IMAGES.items()}
SEEDS = [Seed("a", 0), Seed("b", 0)]
DRAFTS = [
    Draft("q1", "a", Category.FUNCTIONAL, "What opens this?", "a key", None, "writer"),
    Draft("q2", "b", Category.CAUSAL, "Why is this so?", "rain", None, "writer"),
]


class Scripted:
    """Gives results by their place; keeps the requests."""

    def __init__(self, *outcomes: ParseResult) -> None:
        self._outcomes = outcomes
        self.requests: list[Request] = []

    def complete(self, requests: Sequence[Request]) -> Iterator[ParseResult]:
        self.requests += requests
        return iter(self._outcomes or [Parsed(ACCEPT)] * len(requests))


ACCEPT: Mapping[str, Any] = {"decision": "accept", "reason": "so it is"}


def draft_of(text: str = "What now?", answer: str = "this", *, possible: bool = True) -> Parsed:
    return Parsed({"possible": possible, "text": text, "answer": answer})


def generated(client: Scripted, *categories: Category, **settings: Any) -> tuple[list[Draft], list[FailedRequest]]:
    return generate(
        SEEDS,
        images=IMAGES,
        client=client,
        templates={category: load_template(f"generate_{category}") for category in categories},
        settings=GenerateSettings(
            categories=categories, **{"reading": ReadabilityMetric.OFF, "model": "writer", **settings}
        ),
    )


def test_every_image_is_asked_about_in_every_category() -> None:
    client = Scripted(*[draft_of()] * 4)
    drafts, _ = generated(client, Category.FUNCTIONAL, Category.CAUSAL)
    assert [draft.query for draft in drafts] == ["a-functional", "a-causal", "b-functional", "b-causal"]
    assert [list(request.images) for request in client.requests] == [[DIGESTS[i]] for i in "aabb"]
    assert [request.template.partition("@")[0] for request in client.requests[:2]] == [
        "generate_functional",
        "generate_causal",
    ]


def test_the_papers_writer_is_sonnet_at_a_quarter() -> None:
    client = Scripted(*[draft_of()] * 2)
    generated(client, Category.CAUSAL, model=GenerateSettings().model)
    assert {(q.model, q.temperature) for q in client.requests} == {("claude-sonnet-4-5", 0.25)}


def test_what_gives_no_query_is_listed_with_its_reason() -> None:
    outcomes = [Refused("I cannot"), Malformed("{", "broke off"), draft_of(possible=False), draft_of(" ", "x")]
    drafts, failed = generated(Scripted(*outcomes), Category.FUNCTIONAL, Category.CAUSAL)
    assert drafts == []
    assert [row.why for row in failed] == [
        FailureReason.REFUSED,
        FailureReason.MALFORMED,
        FailureReason.IMPOSSIBLE,
        FailureReason.MALFORMED,
    ]
    assert [row.raw for row in failed[:3]] == ["I cannot", "{", ""]


def test_an_image_that_is_gone_is_an_error() -> None:
    with pytest.raises(ImageError, match="no image 'z'"):
        caption(
            [Seed("z", 0)],
            images=IMAGES,
            client=Scripted(),
            template=load_template("caption"),
            settings=CaptionSettings(),
        )


def test_the_reading_grade_follows_flesch_and_kincaid(tmp_path: Path) -> None:
    # A dictionary in NLTK's format, in which every word of the sentence has one syllable, but `paper` two. In a process
    # of its own, for the libraries keep what they have read.
    folder = tmp_path / "corpora" / "cmudict"
    folder.mkdir(parents=True)
    words = {"which": "W IH1 CH", "tool": "T UW1 L", "cuts": "K AH1 T S", "this": "DH IH1 S", "paper": "P EY1 P ER0"}
    (folder / "cmudict").write_text("".join(f"{word.upper()} 1 {sounds}\n" for word, sounds in words.items()))
    code = (
        "from circus_bench.rmir.config import ReadabilityMetric\n"
        "from circus_bench.rmir.stages.generate import reading_grade\n"
        "print(reading_grade(ReadabilityMetric.TEXTSTAT)('Which tool cuts this paper?'))"
    )
    environment = {**os.environ, "NLTK_DATA": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    # 5 words, 6 syllables, 1 sentence: 0.39 * 5 + 11.8 * 6 / 5 - 15.59.
    assert float(done.stdout) == pytest.approx(0.52)


def test_without_the_dictionary_the_reading_grade_is_an_error_before_anything_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nltk

    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    client = Scripted()
    with pytest.raises(CircusError, match=r"python -m nltk\.downloader cmudict"):
        generated(client, Category.CAUSAL, reading=ReadabilityMetric.TEXTSTAT)
    assert client.requests == []


def checked(*outcomes: ParseResult) -> tuple[Scripted, list[Check]]:
    client = Scripted(*outcomes)
    templates = {constraint: load_template(f"check_{constraint}") for constraint in Constraint}
    return client, check(DRAFTS[:1], images=IMAGES, client=client, templates=templates, settings=FilterSettings())


def verdict(*, passed: bool) -> Parsed:
    return Parsed({"passed": passed, "reason": "seen"})


def test_each_constraint_is_a_question_of_its_own_at_temperature_0() -> None:
    client, rows = checked(*[verdict(passed=True)] * 3)
    assert [row.constraint for row in rows] == list(Constraint)
    assert {request.temperature for request in client.requests} == {0.0}
    assert all("What opens this?" in request.text and "a key" in request.text for request in client.requests)


@pytest.mark.parametrize("undecided", list(UndecidedPolicy))
def test_a_draft_that_fails_one_check_is_dropped(undecided: UndecidedPolicy) -> None:
    _, rows = checked(verdict(passed=True), verdict(passed=False), verdict(passed=True))
    assert passed(DRAFTS[:1], rows, undecided=undecided) == []


@pytest.mark.parametrize(("undecided", "left"), [(UndecidedPolicy.DROP, []), (UndecidedPolicy.PASS, DRAFTS[:1])])
def test_a_check_without_a_verdict_counts_as_it_is_set(undecided: UndecidedPolicy, left: list[Draft]) -> None:
    _, rows = checked(verdict(passed=True), Malformed("score: 1", "no JSON"), verdict(passed=True))
    assert (rows[1].passed, rows[1].reason, rows[1].raw) == (None, "no JSON", "score: 1")
    assert passed(DRAFTS[:1], rows, undecided=undecided) == left


def test_images_get_captions_and_those_without_are_listed() -> None:
    client = Scripted(Parsed({"caption": " a cup "}), Refused("no"))
    found = caption(
        SEEDS, images=IMAGES, client=client, template=load_template("caption"), settings=CaptionSettings(model="m")
    )
    assert found == (
        [Caption("a", "a cup", "m")],
        [FailedRequest("b", load_template("caption").id, FailureReason.REFUSED, "no")],
    )


def axis(*numbers: int) -> np.ndarray:
    return np.eye(8, dtype=np.float32)[list(numbers)]


def test_an_index_gives_the_nearest_images_without_the_input_image() -> None:
    # q1 (input a) looks along axis 0, where a is, and q2 (input b) along axis 2.
    vectors = np.vstack([axis(0), 0.9 * axis(0) + 0.1 * axis(1), axis(2)]).astype(np.float32)
    rows = search(DRAFTS, {Index.VISUAL: IndexSearch(["a", "b", "c"], vectors, axis(0, 2), 1)})
    assert [(row.query, row.image, row.rank) for row in rows] == [("q1", "b", 1), ("q2", "c", 1)]


def test_an_image_of_both_indexes_has_a_row_of_each_and_is_one_candidate() -> None:
    visual = IndexSearch(["c", "d"], axis(0, 1), axis(0, 1), 1)
    text = IndexSearch(["c", "e"], axis(0, 1), axis(0, 1), 1)
    rows = search(DRAFTS, {Index.VISUAL: visual, Index.TEXT: text})
    assert [(row.query, row.image, row.index) for row in rows] == [
        ("q1", "c", "visual"),
        ("q1", "c", "text"),
        ("q2", "d", "visual"),
        ("q2", "e", "text"),
    ]
    assert images_by_query(rows) == {"q1": ["c"], "q2": ["d", "e"]}


def test_a_small_index_gives_what_it_has() -> None:
    rows = search(DRAFTS[:1], {Index.VISUAL: IndexSearch(["a", "b"], axis(0, 1), axis(0), 10)})
    assert [row.image for row in rows] == ["b"]


CASES = [CandidateList(DRAFTS[0], tuple("bcdefgh")), CandidateList(DRAFTS[1], ("a", "c"))]
PANEL = JudgeSettings(panel=(JudgeSpec("strong"), JudgeSpec("light", samples=2)))


def judged(
    *outcomes: ParseResult, settings: JudgeSettings = PANEL, cases: Sequence[CandidateList] = CASES
) -> tuple[Scripted, Any]:
    client = Scripted(*outcomes)
    template = load_template("judge")
    return client, judge(cases, images=IMAGES, client=client, template=template, settings=settings)


def test_every_judge_votes_on_every_candidate() -> None:
    _, votes = judged()
    judges = ["strong@0.85", "light@0.85", "light@0.85#1"]
    assert [(v.query, v.image, v.judge) for v in votes] == [
        (case.draft.query, image, name) for case in CASES for image in case.images for name in judges
    ]


def test_the_papers_panel_is_one_sonnet_and_four_haiku() -> None:
    client, _ = judged(settings=JudgeSettings(), cases=CASES[1:])
    of_one = [q for q in client.requests if list(q.images)[1] == DIGESTS["a"]]
    assert sorted((q.model, q.temperature, q.sample) for q in of_one) == [
        *(("claude-haiku-4-5", 0.85, sample) for sample in range(4)),
        ("claude-sonnet-4-5", 0.85, 0),
    ]


def test_a_judge_sees_the_input_image_then_the_candidate_and_not_the_answer() -> None:
    client, _ = judged(cases=[CandidateList(DRAFTS[0], ("h",))])
    assert {tuple(q.images) for q in client.requests} == {(DIGESTS["a"], DIGESTS["h"])}
    assert all("What opens this?" in q.text and "a key" not in q.text for q in client.requests)


def test_candidates_come_before_each_judge_in_an_order_of_its_own() -> None:
    def orders(seed: int) -> list[list[str]]:
        client, _ = judged(settings=JudgeSettings(panel=PANEL.panel, seed=seed), cases=CASES[:1])
        of = {digest: name for name, digest in DIGESTS.items()}
        shown = [of[list(q.images)[1]] for q in client.requests]
        return [shown[start : start + 7] for start in (0, 7, 14)]

    first = orders(0)
    assert all(sorted(order) == list("bcdefgh") for order in first)
    assert len(set(map(tuple, first))) == 3
    assert list("bcdefgh") not in first
    assert orders(0) == first != orders(1)


def test_the_order_in_which_judges_are_asked_does_not_show() -> None:
    _, votes = judged(settings=JudgeSettings(panel=PANEL.panel, seed=0))
    _, others = judged(settings=JudgeSettings(panel=PANEL.panel, seed=1))
    assert votes == others


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Parsed({"decision": "reject", "reason": "no key"}), (JudgeDecision.REJECT, "no key", "")),
        (Parsed({"decision": "abstain", "reason": "dark"}), (JudgeDecision.ABSTAIN, "dark", "")),
        (Refused("I can't"), (JudgeDecision.ABSTAIN, "the model declined", "I can't")),
        (Malformed(json.dumps({"score": "0.8"}), "lacks"), (JudgeDecision.ABSTAIN, "lacks", '{"score": "0.8"}')),
    ],
)
def test_what_is_no_verdict_is_an_abstention_with_its_text(outcome: ParseResult, expected: tuple[Any, ...]) -> None:
    settings = JudgeSettings(panel=(JudgeSpec("strong"),))
    _, (vote,) = judged(outcome, settings=settings, cases=[CandidateList(DRAFTS[0], ("h",))])
    assert (vote.decision, vote.reason, vote.raw) == expected


def test_panelists_of_the_same_kind_are_different_samples() -> None:
    twice = JudgeSettings(
        panel=(JudgeSpec("m", 0.5), JudgeSpec("n", 0.5), JudgeSpec("m", 0.5, samples=2), JudgeSpec("m", 1))
    )
    assert [j.name for j in twice.judges] == ["m@0.5", "n@0.5", "m@0.5#1", "m@0.5#2", "m@1"]
