"""Row 29 of the breaking inputs: what judges reply instead of the JSON object they were asked for."""

from __future__ import annotations

import pytest

from circus_bench.api.chat.messages import Completion, Malformed, Parsed, Refused
from circus_bench.api.chat.parsing import check_schema, parse_response, strip_limits

SCHEMA = {
    "type": "object",
    "required": ["decision", "score", "sure"],
    "additionalProperties": False,
    "properties": {
        "decision": {"type": "string", "enum": ["accept", "reject"]},
        "score": {"type": "number", "minimum": 0, "maximum": 1},
        "sure": {"type": "boolean"},
    },
}
GOOD = '{"decision": "accept", "score": 0.8, "sure": true}'
VALUE = {"decision": "accept", "score": 0.8, "sure": True}


def outcome(text, stop="end", schema=SCHEMA):
    return parse_response(Completion(text, stop), schema)


def of(kind, **rest):
    """A schema of one property `x`."""
    return {
        "type": "object",
        "required": ["x"],
        "additionalProperties": False,
        "properties": {"x": {"type": kind, **rest}},
    }


def test_a_plain_object_is_parsed_without_repairs():
    assert outcome(GOOD) == Parsed(VALUE)


@pytest.mark.parametrize(
    ("text", "repairs"),
    [
        (f"```json\n{GOOD}\n```", ("a fence around the object",)),
        (f"```\n{GOOD}\n```\n", ("a fence around the object",)),
        (f"{GOOD}\nI hope that helps!", ("text around the object",)),
        (f"The set {{scissors}} fits.\n{GOOD}", ("text around the object",)),
        (f"Here:\n```json\n{GOOD}\n```\nBye.", ("a fence around the object", "text around the object")),
        (f"{GOOD}\n{GOOD}", ("the same object several times",)),
        (f"\ufeff {GOOD} ", ("text around the object",)),
    ],
    ids=["fence", "bare-fence", "trailing", "leading-with-braces", "both", "repeated", "byte-order-mark"],
)
def test_wrappings_are_overlooked_and_named(text, repairs):
    assert outcome(text) == Parsed(VALUE, repairs)


def test_a_numeric_string_is_a_number_and_reported():
    found = outcome(GOOD.replace("0.8", '"0.8"'))
    assert found == Parsed(VALUE, ("score: 0.8 from the string '0.8'",))


@pytest.mark.parametrize("text", ["nan", "inf", "0,8", "80%", "", "0x1", "four", "1e999", "1_0"])
def test_a_string_that_is_no_plain_number_is_not_taken_for_one(text):
    assert isinstance(outcome(GOOD.replace("0.8", f'"{text}"')), Malformed)


def test_a_boolean_in_a_string_is_reported():
    assert outcome(GOOD.replace("true", '"True"')).repairs == ("sure: True from the string 'True'",)


def test_a_choice_in_capitals_is_reported():
    found = outcome(GOOD.replace("accept", " ACCEPT "))
    assert found == Parsed(VALUE, ("decision: 'accept' from the string ' ACCEPT '",))


def test_a_key_that_was_not_asked_for_is_left_out_and_reported():
    assert outcome(GOOD.replace("{", '{"mood": "good", ', 1)) == Parsed(VALUE, ("mood: not asked for",))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_what_is_no_finite_number_is_malformed(number):
    assert isinstance(outcome(GOOD.replace("0.8", number)), Malformed)


def test_two_different_objects_are_malformed():
    found = outcome(GOOD + GOOD.replace("accept", "reject"))
    assert found == Malformed(GOOD + GOOD.replace("accept", "reject"), "2 different objects")


@pytest.mark.parametrize("length", range(1, len(GOOD)))
def test_a_reply_that_breaks_off_anywhere_is_malformed(length):
    found = outcome(GOOD[:length], stop="length")
    assert isinstance(found, Malformed)
    assert found.raw == GOOD[:length]
    assert found.error.startswith("cut off at the limit of tokens")


def test_an_inner_object_is_not_taken_for_the_outer_one_that_broke_off():
    assert isinstance(outcome('{"verdict": ' + GOOD + ', "why": "bec'), Malformed)


def test_a_second_object_that_breaks_off_leaves_the_first_in_doubt():
    assert isinstance(outcome(GOOD + ' No: {"decision": "rej', stop="length"), Malformed)


def test_a_complete_object_counts_although_the_prose_after_it_was_cut_off():
    assert outcome(GOOD + " As I sa", stop="length") == Parsed(VALUE, ("text around the object",))


def test_a_key_that_comes_twice_is_malformed():
    found = outcome('{"decision": "accept", "decision": "reject", "score": 1, "sure": true}')
    assert found.error == "the key 'decision' twice"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "accept",
        "[1, 2]",
        "{}",
        "{'decision': 'accept'}",
        '{"decision": "accept", "score": 0.8, "sure": True}',
        '{"decision": "accept", "score": 0.8, "sure": true,}',
        '{"decision": "maybe", "score": 0.8, "sure": true}',
        '{"decision": "accept", "score": 1.5, "sure": true}',
        '{"decision": "accept", "score": null, "sure": true}',
        '{"decision": "accept", "score": true, "sure": true}',
        '{"decision": "accept", "score": 0.8, "sure": 1}',
        '{"decision": ["accept"], "score": 0.8, "sure": true}',
        '{"decision": "accept", "score": 0.8}',
        '{"decision": "accept", "score": ' + "9" * 5000 + ', "sure": true}',
        '{"decision": ' + '{"a": ' * 100_000,
    ],
)  # fmt: skip
def test_a_reply_off_the_schema_is_malformed_and_keeps_its_text(text):
    found = outcome(text)
    assert isinstance(found, Malformed)
    assert found.raw == text


def test_half_a_character_does_not_get_into_a_value():
    assert isinstance(outcome('{"x": "\\ud83d"}', schema=of("string")), Malformed)


def test_half_a_character_in_a_raw_text_can_be_written_to_a_file():
    assert outcome("no \ud83d json").raw == "no ? json"


@pytest.mark.parametrize("stop", ["refusal"])
def test_a_refusal_of_the_service_is_one_whatever_the_text_says(stop):
    assert outcome(GOOD, stop) == Refused(GOOD)


@pytest.mark.parametrize(
    "text", ["I'm sorry, but I can't judge this.", "I\u2019m unable to help.", "I cannot assist with that."]
)
def test_an_apology_without_an_object_is_a_refusal(text):
    assert outcome(text) == Refused(text)


def test_an_apology_with_an_object_is_read():
    assert isinstance(outcome(f"Sorry for the wait! {GOOD}"), Parsed)


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        (of("integer"), '{"x": 3}', 3),
        (of("integer"), '{"x": 3.0}', 3),
        (of("integer"), '{"x": "3"}', 3),
        (of("null"), '{"x": null}', None),
        (of("array", items={"type": "integer"}, maxItems=2), '{"x": [1, "2"]}', [1, 2]),
        (of("string", minLength=1), '{"x": "a"}', "a"),
    ],
)
def test_values_of_every_type_are_read(schema, text, value):
    assert outcome(text, schema=schema).value == {"x": value}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (of("integer"), '{"x": 3.5}'),
        (of("integer"), '{"x": "3.5"}'),
        (of("array", items={"type": "integer"}), '{"x": [1, "two"]}'),
        (of("array", maxItems=1), '{"x": [1, 2]}'),
        (of("array", minItems=1), '{"x": []}'),
        (of("string", minLength=1), '{"x": "  "}'),
        (of("string", maxLength=1), '{"x": "ab"}'),
    ],
)
def test_limits_and_types_are_checked(schema, text):
    assert isinstance(outcome(text, schema=schema), Malformed)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array"},
        of("string", pattern="a+"),
        of("float"),
        of("integer", enum=[1, 2]),
        of("string") | {"required": []},
        of("string") | {"additionalProperties": True},
        of("array", items={"type": "string", "format": "date"}),
    ],
)
def test_a_schema_that_would_not_be_checked_in_full_is_refused(schema):
    with pytest.raises(ValueError, match="schema"):
        check_schema(schema)


def test_services_that_know_no_limits_get_the_rest_of_the_schema():
    schema = of("array", maxItems=2, items={"type": "string", "minLength": 1})
    assert strip_limits(schema) == of("array", items={"type": "string"})
