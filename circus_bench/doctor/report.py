"""Write the doctor's report: one HTML file that needs nothing else."""

from __future__ import annotations

from circus_bench._typing import StrPath
from circus_bench._version import __version__
from circus_bench.doctor.diagnosis import HealthReport
from circus_bench.doctor.results import Result
from circus_bench.io import write_text

SHOWN = 200
"""Ids of a finding that the page lists; the JSON output has all."""

_FEW = 8  # so many are shown without a click


def write_report(report: HealthReport, path: StrPath, *, subject: str) -> None:
    """Write a health report as one self-contained HTML file without scripts; the same report gives the same bytes.

    Args:
        report: what was found.
        path: the HTML file.
        subject: what was checked, for the title: a protocol id or a folder.
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
    differing = [(diagnosis, count) for diagnosis in report.diagnoses for count in diagnosis.counts if count.differs]
    content = {
        "checkup": report,
        "subject": subject,
        "n_defects": sum(len(diagnosis.defects) for diagnosis in report.diagnoses) + len(differing),
        "n_notes": sum(len(diagnosis.notes) for diagnosis in report.diagnoses) + len(report.shared),
        "shown": SHOWN,
        "few": _FEW,
        "version": __version__,
    }
    write_text(path, template.render(content).lstrip())


def _shown(result: Result) -> list[str]:
    """Format the first ids of a result, groups joined by an equals sign."""
    if result.groups:
        return [" = ".join(group[:SHOWN]) for group in result.groups[:SHOWN]]
    return list(result.ids[:SHOWN])
