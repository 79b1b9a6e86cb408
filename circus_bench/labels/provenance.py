"""Describe the provenance of labels: source, license, pool and cut-off, and the benchmark that they hold for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from circus_bench.benchmark import Fingerprint, ReferencePolicy


class IdScheme(StrEnum):
    """Meaning of the query ids of labels."""

    ID = "id"
    """The benchmark's own query ids."""
    POSITION = "position"
    """0-based positions in the benchmark's list of queries, which must be complete."""


@dataclass(frozen=True)
class Provenance:
    """Source of labels, as far as known.

    Attributes:
        source: the project or the file.
        paper: the publication.
        license: an SPDX id, or what is known of it.
        citation: how to cite the source.
        k: the cut-off of the labels.
        pool: names of the models that gave the labels.
        protocols: ids of the protocols that the labels hold for; any when empty.
        reference: the reference policy that they hold for; any when None.
        n_queries: queries of the benchmark that the labels are about.
        id_scheme: what the query ids are.
        fingerprint: of the benchmark that was audited.
        min_unimodal: models that had to agree on a shortcut; None when unknown.
        min_multimodal: models that had to agree on composition_required; None when unknown.
        audited: what an audit was about (benchmark, protocol, fingerprint, gallery size), as `labels.parquet` keeps it;
            empty for labels that are not an audit's.
    """

    source: str = ""
    paper: str = ""
    license: str = ""
    citation: str = ""
    k: int | None = None
    pool: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    reference: ReferencePolicy | None = None
    n_queries: int | None = None
    id_scheme: IdScheme = IdScheme.ID
    fingerprint: Fingerprint | None = None
    min_unimodal: int | None = None
    min_multimodal: int | None = None
    audited: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return what manifests and validation files keep, under their keys."""
        content = dataclasses.asdict(self)
        for name in ("min_unimodal", "min_multimodal", "audited"):
            del content[name]
        return {"licence": content.pop("license"), "keys": content.pop("id_scheme"), **content}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Provenance:
        """Make a provenance from the JSON of `to_dict`.

        Raises:
            KeyError, TypeError, ValueError: the content is none.
        """
        values = dict(content)
        reference, fingerprint = values["reference"], values["fingerprint"]
        return cls(
            **{
                "license": values.pop("licence"),
                "id_scheme": IdScheme(values.pop("keys")),
                **values,
                **{name: tuple(values[name]) for name in ("pool", "protocols")},
                "reference": ReferencePolicy(reference) if reference else None,
                "fingerprint": Fingerprint(**fingerprint) if fingerprint else None,
            }
        )
