"""Stages 1 to 4: what is asked, and what becomes of the outcomes."""

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

from circus_bench.api.chat.messages import Malformed, Outcome, Parsed, Question, Refused
from circus_bench.errors import CircusError, ImageError
from circus_bench.rmir.config import (
    CaptionSettings,
    FilterSettings,
    GenerateSettings,
    JudgeSettings,
    Panelist,
    Reading,
    Undecided,
)
from circus_bench.rmir.records import (
    Caption,
    Category,
    Check,
    Constraint,
    Decision,
    Draft,
    Index,
    Seed,
    Unanswered,
    Why,
)
from circus_bench.rmir.stages.candidates import Searched, images_of, search
from circus_bench.rmir.stages.caption import caption
from circus_bench.rmir.stages.filter import check, passed
from circus_bench.rmir.stages.generate import generate
from circus_bench.rmir.stages.judge import Case, judge
from circus_bench.rmir.templates import load_template

IMAGES = {name: png(number) for number, name in enumerate("abcdefgh")}
DIGESTS = {name: hashlib.sha256(data).hexdigest() for name, data in IMAGES.items()}
SEEDS = [Seed("a", 0), Seed("b", 0)]
DRAFTS = [
    Draft("q1", "a", Category.FUNCTIONAL, "What opens this?", "a key", None, "writer"),
    Draft("q2", "b", Category.CAUSAL, "Why is this so?", "rain", None, "writer"),
]


class Scripted:
    """Gives outcomes by their place; keeps the questions."""

    def __init__(self, *outcomes: Outcome) -> None:
        self._outcomes = outcomes
        self.questions: list[Question] = []

    def ask(self, questions: Sequence[Question]) -> Iterator[Outcome]:
        self.questions += questions
        return iter(self._outcomes or [Parsed(ACCEPT)] * len(questions))


ACCEPT: Mapping[str, Any] = {"decision": "accept", "reason": "so it is"}


def draft_of(text: str = "What now?", answer: str = "this", *, possible: bool = True) -> Parsed:
    return Parsed({"possible": possible, "text": text, "answer": answer})


def generated(asker: Scripted, *categories: Category, **settings: Any) -> tuple[list[Draft], list[Unanswered]]:
    return generate(
        SEEDS,
        images=IMAGES,
        asker=asker,
        templates={category: load_template(f"generate_{category}") for category in categories},
        settings=GenerateSettings(categories=categories, **{"reading": Reading.OFF, "model": "writer", **settings}),
    )


def test_every_image_is_asked_about_in_every_category() -> None:
    asker = Scripted(*[draft_of()] * 4)
    drafts, _ = generated(asker, Category.FUNCTIONAL, Category.CAUSAL)
    assert [draft.query for draft in drafts] == ["a-functional", "a-causal", "b-functional", "b-causal"]
    assert [list(question.images) for question in asker.questions] == [[DIGESTS[i]] for i in "aabb"]
    assert [question.template.partition("@")[0] for question in asker.questions[:2]] == [
        "generate_functional",
        "generate_causal",
    ]


def test_the_papers_writer_is_sonnet_at_a_quarter() -> None:
    asker = Scripted(*[draft_of()] * 2)
    generated(asker, Category.CAUSAL, model=GenerateSettings().model)
    assert {(q.model, q.temperature) for q in asker.questions} == {("claude-sonnet-4-5", 0.25)}


def test_what_gives_no_query_is_listed_with_its_reason() -> None:
    outcomes = [Refused("I cannot"), Malformed("{", "broke off"), draft_of(possible=False), draft_of(" ", "x")]
    drafts, unanswered = generated(Scripted(*outcomes), Category.FUNCTIONAL, Category.CAUSAL)
    assert drafts == []
    assert [row.why for row in unanswered] == [Why.REFUSED, Why.MALFORMED, Why.IMPOSSIBLE, Why.MALFORMED]
    assert [row.raw for row in unanswered[:3]] == ["I cannot", "{", ""]


def test_an_image_that_is_gone_is_an_error() -> None:
    with pytest.raises(ImageError, match="no image 'z'"):
        caption(
            [Seed("z", 0)],
            images=IMAGES,
            asker=Scripted(),
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
        "from circus_bench.rmir.config import Reading\n"
        "from circus_bench.rmir.stages.generate import reading_grade\n"
        "print(reading_grade(Reading.TEXTSTAT)('Which tool cuts this paper?'))"
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
    asker = Scripted()
    with pytest.raises(CircusError, match=r"python -m nltk\.downloader cmudict"):
        generated(asker, Category.CAUSAL, reading=Reading.TEXTSTAT)
    assert asker.questions == []


def checked(*outcomes: Outcome) -> tuple[Scripted, list[Check]]:
    asker = Scripted(*outcomes)
    templates = {constraint: load_template(f"check_{constraint}") for constraint in Constraint}
    return asker, check(DRAFTS[:1], images=IMAGES, asker=asker, templates=templates, settings=FilterSettings())


def verdict(*, passed: bool) -> Parsed:
    return Parsed({"passed": passed, "reason": "seen"})


def test_each_constraint_is_a_question_of_its_own_at_temperature_0() -> None:
    asker, rows = checked(*[verdict(passed=True)] * 3)
    assert [row.constraint for row in rows] == list(Constraint)
    assert {question.temperature for question in asker.questions} == {0.0}
    assert all("What opens this?" in question.text and "a key" in question.text for question in asker.questions)


@pytest.mark.parametrize("undecided", list(Undecided))
def test_a_draft_that_fails_one_check_is_dropped(undecided: Undecided) -> None:
    _, rows = checked(verdict(passed=True), verdict(passed=False), verdict(passed=True))
    assert passed(DRAFTS[:1], rows, undecided=undecided) == []


@pytest.mark.parametrize(("undecided", "left"), [(Undecided.DROP, []), (Undecided.PASS, DRAFTS[:1])])
def test_a_check_without_a_verdict_counts_as_it_is_set(undecided: Undecided, left: list[Draft]) -> None:
    _, rows = checked(verdict(passed=True), Malformed("score: 1", "no JSON"), verdict(passed=True))
    assert (rows[1].passed, rows[1].reason, rows[1].raw) == (None, "no JSON", "score: 1")
    assert passed(DRAFTS[:1], rows, undecided=undecided) == left


def test_images_get_captions_and_those_without_are_listed() -> None:
    asker = Scripted(Parsed({"caption": " a cup "}), Refused("no"))
    found = caption(
        SEEDS, images=IMAGES, asker=asker, template=load_template("caption"), settings=CaptionSettings(model="m")
    )
    assert found == ([Caption("a", "a cup", "m")], [Unanswered("b", load_template("caption").id, Why.REFUSED, "no")])


def axis(*numbers: int) -> np.ndarray:
    return np.eye(8, dtype=np.float32)[list(numbers)]


def test_an_index_gives_the_nearest_images_without_the_input_image() -> None:
    # q1 (input a) looks along axis 0, where a is, and q2 (input b) along axis 2.
    vectors = np.vstack([axis(0), 0.9 * axis(0) + 0.1 * axis(1), axis(2)]).astype(np.float32)
    rows = search(DRAFTS, {Index.VISUAL: Searched(["a", "b", "c"], vectors, axis(0, 2), 1)})
    assert [(row.query, row.image, row.rank) for row in rows] == [("q1", "b", 1), ("q2", "c", 1)]


def test_an_image_of_both_indexes_has_a_row_of_each_and_is_one_candidate() -> None:
    visual = Searched(["c", "d"], axis(0, 1), axis(0, 1), 1)
    text = Searched(["c", "e"], axis(0, 1), axis(0, 1), 1)
    rows = search(DRAFTS, {Index.VISUAL: visual, Index.TEXT: text})
    assert [(row.query, row.image, row.index) for row in rows] == [
        ("q1", "c", "visual"),
        ("q1", "c", "text"),
        ("q2", "d", "visual"),
        ("q2", "e", "text"),
    ]
    assert images_of(rows) == {"q1": ["c"], "q2": ["d", "e"]}


def test_a_small_index_gives_what_it_has() -> None:
    rows = search(DRAFTS[:1], {Index.VISUAL: Searched(["a", "b"], axis(0, 1), axis(0), 10)})
    assert [row.image for row in rows] == ["b"]


CASES = [Case(DRAFTS[0], tuple("bcdefgh")), Case(DRAFTS[1], ("a", "c"))]
PANEL = JudgeSettings(panel=(Panelist("strong"), Panelist("light", samples=2)))


def judged(*outcomes: Outcome, settings: JudgeSettings = PANEL, cases: Sequence[Case] = CASES) -> tuple[Scripted, Any]:
    asker = Scripted(*outcomes)
    template = load_template("judge")
    return asker, judge(cases, images=IMAGES, asker=asker, template=template, settings=settings)


def test_every_judge_votes_on_every_candidate() -> None:
    _, votes = judged()
    judges = ["strong@0.85", "light@0.85", "light@0.85#1"]
    assert [(v.query, v.image, v.judge) for v in votes] == [
        (case.draft.query, image, name) for case in CASES for image in case.images for name in judges
    ]


def test_the_papers_panel_is_one_sonnet_and_four_haiku() -> None:
    asker, _ = judged(settings=JudgeSettings(), cases=CASES[1:])
    of_one = [q for q in asker.questions if list(q.images)[1] == DIGESTS["a"]]
    assert sorted((q.model, q.temperature, q.sample) for q in of_one) == [
        *(("claude-haiku-4-5", 0.85, sample) for sample in range(4)),
        ("claude-sonnet-4-5", 0.85, 0),
    ]


def test_a_judge_sees_the_input_image_then_the_candidate_and_not_the_answer() -> None:
    asker, _ = judged(cases=[Case(DRAFTS[0], ("h",))])
    assert {tuple(q.images) for q in asker.questions} == {(DIGESTS["a"], DIGESTS["h"])}
    assert all("What opens this?" in q.text and "a key" not in q.text for q in asker.questions)


def test_candidates_come_before_each_judge_in_an_order_of_its_own() -> None:
    def orders(seed: int) -> list[list[str]]:
        asker, _ = judged(settings=JudgeSettings(panel=PANEL.panel, seed=seed), cases=CASES[:1])
        of = {digest: name for name, digest in DIGESTS.items()}
        shown = [of[list(q.images)[1]] for q in asker.questions]
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
        (Parsed({"decision": "reject", "reason": "no key"}), (Decision.REJECT, "no key", "")),
        (Parsed({"decision": "abstain", "reason": "dark"}), (Decision.ABSTAIN, "dark", "")),
        (Refused("I can't"), (Decision.ABSTAIN, "the model declined", "I can't")),
        (Malformed(json.dumps({"score": "0.8"}), "lacks"), (Decision.ABSTAIN, "lacks", '{"score": "0.8"}')),
    ],
)
def test_what_is_no_verdict_is_an_abstention_with_its_text(outcome: Outcome, expected: tuple[Any, ...]) -> None:
    settings = JudgeSettings(panel=(Panelist("strong"),))
    _, (vote,) = judged(outcome, settings=settings, cases=[Case(DRAFTS[0], ("h",))])
    assert (vote.decision, vote.reason, vote.raw) == expected


def test_panelists_of_the_same_kind_are_different_samples() -> None:
    twice = JudgeSettings(
        panel=(Panelist("m", 0.5), Panelist("n", 0.5), Panelist("m", 0.5, samples=2), Panelist("m", 1))
    )
    assert [j.name for j in twice.judges] == ["m@0.5", "n@0.5", "m@0.5#1", "m@0.5#2", "m@1"]
