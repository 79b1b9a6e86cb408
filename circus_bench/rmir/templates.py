"""Load the pipeline's prompt templates, which are versioned files, and render them to requests.

A template is the file `<name>@<version>.toml`: the prompt with `$fields`, the number of its images, and the schema
of the reply. A changed wording is a new file with the next version; the old one stays, so that outputs made with it
can be reproduced. The wording is our own: RMIR's is not published.

Example:
    >>> judge = load_template("judge")
    >>> judge.id, sorted(judge.fields)
    ('judge@1', ['text'])
    >>> request = judge.render("openai/gpt-5", {"text": "What opens this?"}, images={"a": b"", "b": b""})
    >>> request.template, request.schema["properties"]["decision"]["enum"]
    ('judge@1', ['accept', 'reject', 'abstain'])
"""

from __future__ import annotations

import hashlib
import string
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from circus_bench._typing import StrPath
from circus_bench.api.chat.messages import Request
from circus_bench.api.chat.parsing import check_schema
from circus_bench.errors import FormatError, MismatchError
from circus_bench.io import to_json
from circus_bench.rmir.records import Category, Constraint

FOLDER = Path(__file__).parent / "prompts"

_KEYS = {"text", "images", "schema"}


@dataclass(frozen=True)
class Template:
    """Prompt with fields to fill in.

    Attributes:
        name: of its purpose.
        version: raised with every change.
        text: the prompt with `$field`s.
        images: number of images that go with it.
        schema: JSON schema of the reply.
    """

    name: str
    version: int
    text: str
    images: int
    schema: Mapping[str, Any]

    @property
    def id(self) -> str:
        """`<name>@<version>`."""
        return f"{self.name}@{self.version}"

    @cached_property
    def fields(self) -> frozenset[str]:
        """Names of the fields."""
        return frozenset(string.Template(self.text).get_identifiers())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the whole template: a part of the cache key of every output made with it."""
        content = [self.id, self.text, self.images, dict(self.schema)]
        return hashlib.sha256(to_json(content).encode()).hexdigest()

    def render(
        self,
        model: str,
        fields: Mapping[str, str],
        *,
        images: Mapping[str, bytes],
        temperature: float = 0.0,
        sample: int = 0,
        max_tokens: int = 1024,
    ) -> Request:
        """Fill the fields, and make the request.

        Args:
            model: see `Request.model`.
            fields: a text for every field.
            images: digest to bytes, in the order in which the prompt mentions them.
            temperature: of the sampling.
            sample: index of the independent sample.
            max_tokens: of the reply.

        Raises:
            MismatchError: a field has no text, a text has no field, or the number of images differs.
        """
        if fields.keys() != self.fields or len(images) != self.images:
            raise MismatchError(
                f"template {self.id} takes the fields {sorted(self.fields)} and {self.images} different images, not "
                f"{sorted(fields)} and {len(images)}"
            )
        text = string.Template(self.text).substitute(fields)
        return Request(model, self.id, text, images, self.schema, temperature, sample, max_tokens)


def load_template(name: str, *, folder: StrPath = FOLDER) -> Template:
    """Load a template.

    Args:
        name: `<name>@<version>`, or `<name>` for the newest version.
        folder: of the files; those of the package by default.

    Raises:
        FormatError: there is no such template, or its file is not one.
    """
    folder, (stem, _, version) = Path(folder), name.partition("@")
    found = {int(path.stem.partition("@")[2]): path for path in folder.glob(f"{stem}@*.toml") if _numbered(path)}
    chosen = int(version) if version.isdecimal() else max(found, default=0) if not version else 0
    if chosen not in found:
        there = ", ".join(sorted(path.stem for path in folder.glob("*.toml"))) or "none"
        raise FormatError(f"{folder}: no template {name!r}; there are: {there}")
    path = found[chosen]
    try:
        return _template(stem, chosen, tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FormatError(f"{path}: not a TOML file ({error})") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise FormatError(f"{path}: not a template ({error})") from error


def load_templates(chosen: Mapping[str, str]) -> dict[str, Template]:
    """Load the templates of all requests of the pipeline, by name.

    Args:
        chosen: name to `<name>@<version>`, where it is not to be the newest.

    Raises:
        FormatError: there is no such template, or no such version.
    """
    names = [*(f"generate_{c}" for c in Category), *(f"check_{c}" for c in Constraint), "caption", "judge"]
    wrong = [f"{name} = {of}" for name, of in chosen.items() if name not in names or of.partition("@")[0] != name]
    if wrong:
        known = ", ".join(names)
        raise FormatError(f"RMIR settings: prompts {', '.join(wrong)}; write NAME = 'NAME@VERSION', of {known}")
    return {name: load_template(chosen.get(name, name)) for name in names}


def _template(name: str, version: int, content: Mapping[str, Any]) -> Template:
    if content.keys() != _KEYS:
        raise ValueError(f"it has the keys {sorted(content)} instead of {sorted(_KEYS)}")
    template = Template(name, version, **{**content, "text": content["text"].strip()})
    if not string.Template(template.text).is_valid():
        raise ValueError("a '$' that begins no field; write '$$' for the sign itself")
    check_schema(template.schema)
    return template


def _numbered(path: Path) -> bool:
    return path.stem.partition("@")[2].isdecimal()
