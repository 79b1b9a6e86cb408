r"""Parse the text of a completion into structured output: with tolerance in form, without in content.

Models wrap JSON into fences and prose, write numbers as strings and spell choices in capitals. All that is mended, and
every repair is named in the result. What is mended is never guessed: a text that breaks off, holds two different
objects, names a key twice, or holds NaN is `Malformed`, and its text is kept.

Example:
    >>> schema = {"type": "object", "properties": {"score": {"type": "number"}}}
    >>> parse_response(Completion("Sure! {\"score\": \"0.8\"}"), schema)
    Parsed(value={'score': 0.8}, repairs=('text around the object', "score: 0.8 from the string '0.8'"))
    >>> parse_response(Completion("{\"score\": 0.", stop="length"), schema).error
    "cut off at the limit of tokens: Expecting ',' delimiter at character 11"
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from circus_bench.api.chat.messages import Completion, Malformed, Parsed, ParseResult, Refused

_OBJECT = re.compile(r'\{(?=\s*(?:"|\}))')  # a brace in prose is followed by something else
_FENCE = re.compile(r"```")
_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*")
_DECLINES = re.compile(
    r"\W*(i.m sorry|i am sorry|sorry|i apologi[sz]e|i can.?t|i cannot|i.m (not able|unable)|i am (not able|unable)|"
    r"i won.t|i will not)\b",
    re.IGNORECASE,
)
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "null": type(None),
}
_STRUCTURE = {"type", "properties", "required", "additionalProperties", "items", "enum", "description"}
_LIMITS_OF = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "number": ("minimum", "maximum"),
    "integer": ("minimum", "maximum"),
}
_LIMITS = {keyword for pair in _LIMITS_OF.values() for keyword in pair}


class _WrongError(ValueError):
    """The text or the value is not what it should be; the message says where and why."""


def parse_response(completion: Completion, schema: Mapping[str, Any]) -> ParseResult:
    """Parse a completion against a schema.

    Args:
        completion: as the provider sent it.
        schema: of an object, in the subset that `check_schema` knows.

    Returns:
        `Refused` when the provider says that the model declined, or the text has no object and begins like an apology;
        `Malformed` when the text cannot be parsed or does not follow the schema; otherwise `Parsed`.
    """
    # A lone surrogate can be in a JSON string, but not in a UTF-8 file.
    raw = completion.text.encode("utf-8", "replace").decode("utf-8")
    if completion.stop == "refusal":
        return Refused(raw)
    try:
        found, repairs = _find_object(raw)
        value = _checked(found, schema, "", repairs)
    except _WrongError as error:
        if not _OBJECT.search(raw) and completion.stop == "end" and _DECLINES.match(raw):
            return Refused(raw)
        cut = "cut off at the limit of tokens: " if completion.stop == "length" else ""
        return Malformed(raw, f"{cut}{error}")
    return Parsed(value, tuple(repairs))


def check_schema(schema: Mapping[str, Any], *, where: str = "schema") -> None:
    """Refuse a schema that `parse_response` would not check in full.

    Known are the keywords type (one), properties, required, additionalProperties (false), items, enum, description, and
    the limits minimum, maximum, minLength, maxLength, minItems, maxItems. The whole must be an object, and every
    property is required: services that follow a schema strictly ask for that.

    Raises:
        ValueError: the schema holds something else.
    """
    if where == "schema" and schema.get("type") != "object":
        raise ValueError("schema: the whole reply must be of type 'object'")
    unknown = schema.keys() - _STRUCTURE - _LIMITS
    if unknown:
        raise ValueError(f"{where}: unknown keywords {sorted(unknown)}; known are {sorted(_STRUCTURE | _LIMITS)}")
    if schema.get("type") not in _TYPES:
        raise ValueError(f"{where}: the type {schema.get('type')!r}; known are {sorted(_TYPES)}")
    properties = schema.get("properties", {})
    if schema["type"] == "object" and (
        set(schema.get("required", ())) != set(properties) or schema.get("additionalProperties") is not False
    ):
        raise ValueError(f"{where}: every property must be required, and additionalProperties false")
    if not all(isinstance(choice, str) for choice in schema.get("enum", ())):
        raise ValueError(f"{where}: only strings can be listed in enum")
    for name, inner in properties.items():
        check_schema(inner, where=f"{where}.{name}")
    if "items" in schema:
        check_schema(schema["items"], where=f"{where}[]")


def strip_limits(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Strip minima and maxima off a schema, for services that refuse them; `parse_response` checks them."""
    kept = {keyword: value for keyword, value in schema.items() if keyword not in _LIMITS}
    if "properties" in kept:
        kept["properties"] = {name: strip_limits(inner) for name, inner in kept["properties"].items()}
    if "items" in kept:
        kept["items"] = strip_limits(kept["items"])
    return kept


def _find_object(text: str) -> tuple[dict[str, Any], list[str]]:
    """Find the one object in a text, and what had to be overlooked."""
    found, rest = [], []
    position = 0
    for start, end, value in _objects(text):
        found.append(value)
        rest.append(text[position:start])
        position = end
    rest.append(text[position:])
    if not found:
        raise _WrongError("no JSON object" if text.strip() else "an empty reply")
    if any(value != found[0] for value in found):
        raise _WrongError(f"{len(found)} different objects")
    around = "".join(rest)
    outside = _FENCE.sub("", around).strip()
    repairs = []
    if _FENCE.search(around):
        repairs.append("a fence around the object")
    if outside and outside.lower() != "json":
        repairs.append("text around the object")
    if len(found) > 1:
        repairs.append("the same object several times")
    return found[0], repairs


def _objects(text: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Find start, end and value of every outermost object."""
    decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
    position = 0
    while match := _OBJECT.search(text, position):
        try:
            value, position = decoder.raw_decode(text, match.start())
        except json.JSONDecodeError as error:
            # Not to be skipped: what comes next may be a part of the object that broke off.
            raise _WrongError(f"{error.msg} at character {error.pos}") from error
        except (RecursionError, ValueError) as error:  # nested too deeply, or an integer of thousands of digits
            raise _WrongError(str(error)) from error
        yield match.start(), position, value


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise _WrongError(f"the key {next(name for name in names if names.count(name) > 1)!r} twice")
    return dict(pairs)


def _no_constant(name: str) -> Any:
    raise _WrongError(f"{name} is not JSON")


def _checked(value: Any, schema: Mapping[str, Any], where: str, repairs: list[str]) -> Any:
    """Check a value, and mend it to what the schema wants."""
    value = _coerced(value, schema, where, repairs)
    kind = schema["type"]
    if not _is(value, kind):
        raise _WrongError(f"{where or 'the completion'}: {_shown(value)} is not of type {kind}")
    if "enum" in schema and value not in schema["enum"]:
        raise _WrongError(f"{where}: {_shown(value)} is not one of {schema['enum']}")
    if kind == "string" and value.encode("utf-8", "replace").decode("utf-8") != value:
        raise _WrongError(f"{where}: half of a character (a lone surrogate)")
    _check_limits(value, schema, where)
    if kind == "object":
        return _object(value, schema, where, repairs)
    if kind == "array" and "items" in schema:
        return [_checked(item, schema["items"], f"{where}[{i}]", repairs) for i, item in enumerate(value)]
    return value


def _object(value: Mapping[str, Any], schema: Mapping[str, Any], where: str, repairs: list[str]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    prefix = f"{where}." if where else ""
    if missing := [name for name in properties if name not in value]:
        raise _WrongError(f"{where or 'the completion'}: lacks {missing}")
    repairs.extend(f"{prefix}{name}: not asked for" for name in value if name not in properties)
    return {
        name: _checked(value[name], inner, prefix + name, repairs)
        for name, inner in properties.items()
        if name in value
    }


def _coerced(value: Any, schema: Mapping[str, Any], where: str, repairs: list[str]) -> Any:
    """Mend a value where what is meant is beyond doubt."""
    kind = schema["type"]
    mended = value
    if isinstance(value, str):
        if kind in {"number", "integer"} and _NUMBER.fullmatch(value) and len(value) < 100:
            number = float(value)
            mended = int(number) if number.is_integer() and kind == "integer" else number
        elif kind == "boolean" and value.strip().lower() in {"true", "false"}:
            mended = value.strip().lower() == "true"
        elif kind == "string" and "enum" in schema:
            mended = next((choice for choice in schema["enum"] if choice.lower() == value.strip().lower()), value)
        if mended is not value and (mended != value or type(mended) is not type(value)):
            repairs.append(f"{where}: {mended!r} from the string {_shown(value)}")
    elif isinstance(value, float) and kind == "integer" and value.is_integer():
        mended = int(value)  # JSON has one kind of number
    return mended


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES[kind]) and not (isinstance(value, float) and not math.isfinite(value))


def _check_limits(value: Any, schema: Mapping[str, Any], where: str) -> None:
    lowest, highest = _LIMITS_OF.get(schema["type"], ("", ""))
    size = len(value.strip()) if isinstance(value, str) else len(value) if isinstance(value, (list, dict)) else value
    if (lowest in schema and size < schema[lowest]) or (highest in schema and size > schema[highest]):
        raise _WrongError(f"{where}: {_shown(value)} is outside of the limits of the schema")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + " ..."
