"""Read hyperparameters from a TOML file into a dataclass, strictly: known keys of the declared types only."""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
import types
import typing
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from circus_bench.errors import FormatError

T = TypeVar("T")


def read_settings(path: Path, kind: type[T]) -> T:
    """Read a TOML file; settings that it does not mention keep their defaults.

    Args:
        path: the file.
        kind: a dataclass, whose fields may be dataclasses, enums, and tuples or mappings of these.

    Raises:
        FormatError: the file is missing or no TOML, or holds a setting that is unknown, of another type or refused by
            the dataclass.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FormatError(f"{path}: no such file") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FormatError(f"{path}: not a TOML file ({error})") from error
    try:
        return _build(kind, content, "")
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None


def _build(kind: type[T], content: Mapping[str, Any], where: str) -> T:
    """Build a dataclass of settings from a TOML table."""
    hints = typing.get_type_hints(kind)
    if unknown := sorted(set(content) - set(hints)):
        raise FormatError(f"unknown settings {where}{f', {where}'.join(unknown)}; known: {', '.join(hints)}")
    needed = [name for name, of in inspect.signature(kind).parameters.items() if of.default is of.empty]
    if missing := [name for name in needed if name not in content]:
        raise FormatError(f"{where.rstrip('.')} lacks {', '.join(missing)}")
    return kind(**{name: _value(hints[name], value, where + name) for name, value in content.items()})


def _value(hint: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return _build(typing.cast("type[Any]", hint), value, where + ".")
    if typing.get_origin(hint) is tuple and isinstance(value, list):
        return tuple(_value(typing.get_args(hint)[0], entry, f"{where}[{n}]") for n, entry in enumerate(value))
    if typing.get_origin(hint) is Mapping and isinstance(value, dict):
        of = typing.get_args(hint)[1]
        return value if of is Any else {name: _value(of, entry, f"{where}.{name}") for name, entry in value.items()}
    if isinstance(hint, types.UnionType):  # a number, or nothing
        hint = typing.get_args(hint)[0]
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        if value in set(hint):
            return hint(value)
        raise FormatError(f"{where} is {value!r}, expected one of {', '.join(hint)}")
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        plain = isinstance(hint, type) and not dataclasses.is_dataclass(hint) and not typing.get_origin(hint)
        raise FormatError(f"{where} is {value!r}, expected {hint.__name__ if plain else 'a table or a list'}")
    return value
