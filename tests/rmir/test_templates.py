from __future__ import annotations

import dataclasses

import pytest

from circus_bench.errors import FormatError, MismatchError
from circus_bench.rmir.records import Category, Constraint, JudgeDecision
from circus_bench.rmir.templates import FOLDER, load_template

ALL = sorted(path.stem for path in FOLDER.glob("*.toml"))
SCHEMA = """
[schema]
type = "object"
required = ["x"]
additionalProperties = false
[schema.properties.x]
type = "string"
"""


@pytest.fixture
def write(tmp_path):
    def written(name, text, schema=SCHEMA, images=0):
        (tmp_path / f"{name}.toml").write_text(f'images = {images}\ntext = """{text}"""\n{schema}')
        return tmp_path

    return written


@pytest.mark.parametrize("name", ALL)
def test_every_template_of_the_package_can_be_filled(name):
    template = load_template(name)
    images = {str(number): b"" for number in range(template.images)}
    fields = dict.fromkeys(template.fields, "costs $5 {or} less")
    request = template.render("m", fields, images=images)
    assert request.template == name
    assert request.text.count("costs $5 {or} less") == len(template.fields)


@pytest.mark.parametrize(
    "name",
    [
        *(f"generate_{category}" for category in Category),
        *(f"check_{constraint}" for constraint in Constraint),
        "caption",
    ],
)
def test_every_category_and_constraint_has_a_template_about_one_image(name):
    assert load_template(name).images == 1


def test_the_judge_may_decide_what_a_vote_may_hold():
    assert load_template("judge").schema["properties"]["decision"]["enum"] == list(JudgeDecision)


def test_the_newest_version_is_taken_unless_one_is_named(write):
    write("ask@2", "second")
    write("ask@10", "tenth")
    folder = write("ask@notes", "no version")
    assert load_template("ask", folder=folder).text == "tenth"
    assert load_template("ask@2", folder=folder).text == "second"


def test_a_question_has_all_that_was_given(write):
    folder = write("ask@1", "Is it $what?", images=1)
    request = load_template("ask", folder=folder).render(
        "model", {"what": "red"}, images={"d": b"i"}, temperature=0.5, sample=2, max_tokens=7
    )
    assert (request.text, request.temperature, request.sample, request.max_tokens) == ("Is it red?", 0.5, 2, 7)
    assert request.schema["required"] == ["x"]


@pytest.mark.parametrize("fields", [{}, {"what": "red", "more": "x"}, {"more": "x"}])
def test_fields_must_match_the_gaps(write, fields):
    template = load_template("ask", folder=write("ask@1", "Is it $what?"))
    with pytest.raises(MismatchError, match=r"ask@1 takes the fields \['what'\]"):
        template.render("model", fields, images={})


def test_the_number_of_images_must_match():
    # The candidate is the input image itself: one image instead of two.
    with pytest.raises(MismatchError, match="2 different images"):
        load_template("judge").render("model", {"text": "?"}, images={"d": b""})


def test_the_digest_changes_with_the_wording(write):
    one = load_template("ask", folder=write("ask@1", "Is it red?"))
    other = load_template("ask", folder=write("ask@1", "Is it blue?"))
    assert one.digest != other.digest
    assert one.digest == dataclasses.replace(one).digest


def test_a_template_that_does_not_exist_is_named_with_those_that_do(write):
    folder = write("ask@1", "x")
    for name in ("tell", "ask@2", "ask@x"):
        with pytest.raises(FormatError, match=f"no template '{name}'; there are: ask@1"):
            load_template(name, folder=folder)


@pytest.mark.parametrize(
    ("text", "schema", "message"),
    [
        ("costs 5 $", SCHEMA, "not a template"),
        ("x", SCHEMA + "pattern = 'a'", "unknown keywords"),
        ("x", "", "it has the keys"),
        ("x", "[schema", "not a TOML file"),
    ],
)
def test_a_broken_template_is_refused(write, text, schema, message):
    folder = write("ask@1", text, schema)
    with pytest.raises(FormatError, match=message):
        load_template("ask", folder=folder)
