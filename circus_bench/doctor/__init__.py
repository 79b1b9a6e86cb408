"""Check the integrity of a benchmark: what is wrong with it, by name.

`diagnose` applies every check to a benchmark; `check_all` does so for the parts of one (FashionIQ's categories) and
compares their galleries; `write_report` makes a page of it.
"""

from __future__ import annotations

from circus_bench.doctor.counts import PUBLISHED
from circus_bench.doctor.diagnosis import Diagnosis, HealthReport, NearDuplicateCount, check_all, diagnose
from circus_bench.doctor.hashes import NearDuplicates, near_duplicates, phash, read_hashes
from circus_bench.doctor.image_checks import HashKind
from circus_bench.doctor.report import write_report
from circus_bench.doctor.results import Agreement, Count, Coverage, Result, Severity

__all__ = [
    "PUBLISHED",
    "Agreement",
    "Count",
    "Coverage",
    "Diagnosis",
    "HashKind",
    "HealthReport",
    "NearDuplicateCount",
    "NearDuplicates",
    "Result",
    "Severity",
    "check_all",
    "diagnose",
    "near_duplicates",
    "phash",
    "read_hashes",
    "write_report",
]
