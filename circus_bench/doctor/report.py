"""The doctor's report: one HTML file that needs nothing else."""

from __future__ import annotations

from pathlib import Path

from circus_bench._version import __version__
from circus_bench.doctor.diagnosis import Checkup
from circus_bench.doctor.results import Result
from circus_bench.io import write_text

SHOWN = 200
"""Ids of a finding that the page lists; the JSON output has all."""

_FEW = 8  # so many are shown without a click


def write_report(checkup: Checkup, path: Path, *, subject: str) -> None:
    """Write a check-up as one self-contained HTML file without scripts; the same check-up gives the same bytes.

    Args:
        checkup: what was found.
        path: the HTML file.
        subject: what was examined, for the title: a protocol id or a folder.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("circus_bench", "doctor"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(thousands=lambda n: f"{n:,}", words=lambda name: name.replace("_", " "), ids=_shown)
    template = environment.get_template("doctor.html.j2")
    differing = [(diagnosis, count) for diagnosis in checkup.diagnoses for count in diagnosis.counts if count.differs]
    content = {
        "checkup": checkup,
        "subject": subject,
        "n_defects": sum(len(diagnosis.defects) for diagnosis in checkup.diagnoses) + len(differing),
        "n_notes": sum(len(diagnosis.notes) for diagnosis in checkup.diagnoses) + len(checkup.shared),
        "shown": SHOWN,
        "few": _FEW,
        "version": __version__,
    }
    write_text(path, template.render(content).lstrip())


def _shown(result: Result) -> list[str]:
    """The first ids of a result, groups joined by an equals sign."""
    if result.groups:
        return [" = ".join(group[:SHOWN]) for group in result.groups[:SHOWN]]
    return list(result.ids[:SHOWN])
