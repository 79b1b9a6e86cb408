"""Verify a leaderboard submission: compute every value again from the rank tables that came with it.

Nothing in a submission is believed. The queries, their targets and the gallery are those of the dataset folder; the
ranks must be possible there, and must agree with the top-k lists and their scores; the values must follow from the
ranks. Two things cannot be told from these files: whether the model gave these scores at all, and whether a rank beyond
the end of its list, which counts for CompGap but for no hit rate, is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circus_bench._typing import StrPath
from circus_bench.benchmark import Benchmark, Condition, Fingerprint
from circus_bench.errors import CircusError, FormatError, duplicates
from circus_bench.hub.reader import read_benchmark
from circus_bench.io import read_json, read_parquet, slug
from circus_bench.runs.manifest import MANIFEST_FILE
from circus_bench.runs.run import Run
from circus_bench.runs.tables import RANKS_FILE, TOP_FILE
from circus_bench.submit.leaderboard import RESULTS, Leaderboard, make_entries, results_file, run_folder
from circus_bench.submit.topk_checks import check_topk_lists
from circus_bench.submit.violations import Violation
from circus_bench.submit.violations import ViolationKind as Kind

if TYPE_CHECKING:
    from huggingface_hub import EvalResultEntry


class SubmissionError(CircusError):
    """A submission does not follow from its rank tables."""


def verify_submission(folder: StrPath, *, model: str, leaderboard: Leaderboard) -> list[Violation]:
    """Compute every value of a submission again, and list what is wrong with it.

    Args:
        folder: a checkout of the model's repository, or what `leaderboard.write_results` wrote.
        model: the repository, `ORG/NAME`.
        leaderboard: what the results are entered for.

    Returns:
        Every reason to refuse it; none when all follows.
    """
    folder = Path(folder)
    violations: list[Violation] = []
    entries = _read_entries(folder, leaderboard, violations)
    tasks = {task.id: task for name in leaderboard.manifest["benchmarks"] for task in leaderboard.tasks(name)}
    given = {entry.task_id: entry for entry in entries}
    revision = leaderboard.revision
    other_revision = tuple(entry.task_id for entry in entries if entry.dataset_revision != revision)
    unknown = tuple(task for task in given if task not in tasks)
    repeated = tuple(duplicates(entry.task_id for entry in entries))
    violations += _with_ids(
        Violation(Kind.UNKNOWN_TASK, RESULTS, f"{leaderboard.folder} declares no such tasks", unknown),
        Violation(Kind.DUPLICATE_ENTRY, RESULTS, "tasks have several entries", repeated),
        Violation(Kind.WRONG_REVISION, RESULTS, f"the entries are not about revision {revision}", other_revision),
    )
    if not entries and not violations:
        violations.append(Violation(Kind.NO_ENTRY, RESULTS, f"there is no entry for {leaderboard.dataset}"))
    for benchmark in sorted({tasks[task].benchmark for task in given if task in tasks}):
        missing = tuple(task.id for task in leaderboard.tasks(benchmark) if task.id not in given)
        message = "a benchmark is entered with all its tasks, or not at all"
        violations += _with_ids(Violation(Kind.MISSING_ENTRY, results_file(benchmark), message, missing))
        wrong = list(_run_violations(folder, benchmark, model=model, leaderboard=leaderboard))
        violations += wrong or _entry_violations(folder, benchmark, given, model=model, leaderboard=leaderboard)
    return violations


def require_valid(folder: StrPath, *, model: str, leaderboard: Leaderboard) -> None:
    """Raise what `verify_submission` finds.

    Raises:
        SubmissionError: names every violation.
    """
    violations = verify_submission(folder, model=model, leaderboard=leaderboard)
    if violations:
        raise SubmissionError(
            f"{folder}: the results do not follow from the rank tables:\n" + "\n".join(map(str, violations))
        )


def _with_ids(*candidates: Violation) -> Iterator[Violation]:
    """Yield the candidates that concern any ids: those of checks that found something."""
    yield from (candidate for candidate in candidates if candidate.ids)


def _read_entries(folder: Path, leaderboard: Leaderboard, violations: list[Violation]) -> list[EvalResultEntry]:
    """Read everything that is entered for the dataset, whatever the file is called."""
    import yaml  # type: ignore[import-untyped]
    from huggingface_hub import parse_eval_result_entries

    entries: list[EvalResultEntry] = []
    for path in sorted((folder / RESULTS).glob("*.y*ml")):
        try:
            found = parse_eval_result_entries(yaml.safe_load(path.read_text(encoding="utf-8")))
        except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
            where = path.relative_to(folder).as_posix()
            violations.append(Violation(Kind.UNREADABLE, where, f"no list of results ({error!r})"))
            continue
        # Upper case and lower case name the same repository to a reader of the leaderboard.
        entries += [entry for entry in found if str(entry.dataset_id).casefold() == leaderboard.dataset.casefold()]
    return entries


def _entry_violations(
    folder: Path, benchmark: str, given: dict[str, EvalResultEntry], *, model: str, leaderboard: Leaderboard
) -> Iterator[Violation]:
    """Compare the entries with those that follow from the Run."""
    due = make_entries(folder / run_folder(benchmark), model=model, leaderboard=leaderboard)
    pairs = [(given[entry.task_id], entry) for entry in due if entry.task_id in given]
    values = {
        due.task_id: f"{found.value!r} instead of {due.value!r}" for found, due in pairs if found.value != due.value
    }
    facts = ("date", "notes", "source_url", "source_name", "source_user", "source_org", "verify_token")
    unlike = [due.task_id for found, due in pairs if any(getattr(found, name) != getattr(due, name) for name in facts)]
    such_as = "; ".join(f"{task}: {value}" for task, value in islice(values.items(), 3))
    message = f"values do not follow from the ranks, such as {such_as}"
    yield from _with_ids(
        Violation(Kind.WRONG_VALUE, results_file(benchmark), message, tuple(values)),
        Violation(
            Kind.WRONG_FACTS, results_file(benchmark), "notes, date or source are not those of the Run", tuple(unlike)
        ),
    )


def _run_violations(folder: Path, benchmark: str, *, model: str, leaderboard: Leaderboard) -> Iterator[Violation]:
    """Check the Run of a benchmark: its manifest, then its rows, then what they say of each other."""
    where, place = run_folder(benchmark), folder / run_folder(benchmark)
    truth = read_benchmark(leaderboard.folder, benchmark)
    try:
        manifest = read_json(place / MANIFEST_FILE)
        found = [
            *_manifest_violations(manifest, benchmark, truth, model=model, leaderboard=leaderboard),
            *_row_violations(place, truth, where),
        ]
        run = None if found else Run.load(place)
    except (FormatError, AttributeError, KeyError, TypeError, ValueError) as error:
        yield Violation(Kind.UNREADABLE, where, f"the Run cannot be read: {error}")
        return
    yield from found
    if run is not None:
        yield from check_topk_lists(run, truth, where=f"{where}/{TOP_FILE}")


def _manifest_violations(
    manifest: dict[str, Any], benchmark: str, truth: Benchmark, *, model: str, leaderboard: Leaderboard
) -> Iterator[Violation]:
    where = f"{run_folder(benchmark)}/{MANIFEST_FILE}"
    name, protocol, n_gallery = manifest["model"]["name"], manifest["protocol"], len(truth.gallery.ids)
    written = leaderboard.manifest["benchmarks"][benchmark]
    fingerprint, due = Fingerprint(**manifest["fingerprint"]), written["protocol"]
    unlike = sorted(key for key in {*protocol, *due} if protocol.get(key) != due.get(key))
    checks = (
        (name == model, Kind.WRONG_MODEL, f"the Run is of {name!r}, the repository of {model!r}"),
        (
            protocol == due,
            Kind.WRONG_PROTOCOL,
            f"the Run was made under {protocol.get('id')}, the dataset holds {truth.protocol.id}; they differ in "
            + ", ".join(unlike),
        ),
        (
            slug(manifest["benchmark"]) == benchmark,
            Kind.WRONG_FINGERPRINT,
            f"the Run is on {manifest['benchmark']!r}, not on {benchmark}",
        ),
        (
            # Without a hash of its images a Run would match whatever images it was made on.
            fingerprint.images is not None and fingerprint.matches(Fingerprint(**written["fingerprint"])),
            Kind.WRONG_FINGERPRINT,
            f"the Run was not made on the version of {benchmark} in {leaderboard.folder}",
        ),
        (
            manifest["n_gallery"] == n_gallery,
            Kind.WRONG_FINGERPRINT,
            f"the Run ranks {manifest['n_gallery']:,} images, the gallery has {n_gallery:,}",
        ),
    )
    yield from (Violation(kind, where, message) for holds, kind, message in checks if not holds)
    yield from _with_ids(Violation(Kind.ALARM, where, "the Run has alarms", tuple(manifest["alarms"])))


def _row_violations(place: Path, truth: Benchmark, where: str) -> Iterator[Violation]:
    """Check the rows of both tables, before they are believed enough to be loaded."""
    import pyarrow as pa

    text, number = pa.string(), pa.int32()
    ranks = pa.schema([("condition", text), ("query", text), ("target", text), ("rank", number), ("ties", number)])
    tops = pa.schema([("condition", text), ("query", text)])
    rows, lists = (
        read_parquet(place / file, schema=schema).to_pylist()
        for file, schema in ((RANKS_FILE, ranks), (TOP_FILE, tops))
    )
    queries = [query.id for query in truth.queries]
    due = [(query.id, target) for query in truth.queries for target in query.targets]
    gallery = frozenset(truth.gallery.ids)
    for condition in Condition:
        rank_file, top_file = (f"{where}/{file}, {condition}" for file in (RANKS_FILE, TOP_FILE))
        of_ranks = [row for row in rows if row["condition"] == condition]
        pairs = [(row["query"], row["target"]) for row in of_ranks]
        ranked = [query for query, _ in pairs]
        listed = [row["query"] for row in lists if row["condition"] == condition]
        yield from _query_violations(rank_file, ranked, queries)
        yield from _query_violations(top_file, listed, queries)
        twice = tuple(duplicates(f"{query} {target}" for query, target in pairs))
        other: list[str] = []
        if not twice and {*ranked} == {*queries} and _by_query(pairs) != _by_query(due):
            other = sorted({query for query, _ in {*pairs} ^ {*due}}) or ["the order of targets"]
        outside = [row for row in of_ranks if not _possible(row["rank"], row["target"] in gallery, len(gallery))]
        early = [row for row in of_ranks if row["rank"] is not None and 1 <= row["rank"] <= (row["ties"] or 0)]
        beyond = f"ranks outside 1 to {len(gallery):,}, such as {outside[0]['rank'] if outside else None}"
        tied = "ranks ignore ties: a target with n ties has a rank of at least n + 1"
        yield from _with_ids(
            Violation(Kind.DUPLICATE_ROWS, rank_file, "rows of a query and target occur twice", twice),
            Violation(Kind.DUPLICATE_ROWS, top_file, "queries occur twice", tuple(duplicates(listed))),
            Violation(Kind.WRONG_TARGETS, rank_file, "targets are not those of the benchmark", tuple(other)),
            Violation(Kind.RANK_OUTSIDE_GALLERY, rank_file, beyond, _names(outside)),
            Violation(Kind.GOLD_FIRST, rank_file, tied, _names(early)),
        )
    stray = sorted({str(row["condition"]) for row in (*rows, *lists)} - {*Condition})
    yield from _with_ids(Violation(Kind.UNREADABLE, where, "rows of unknown conditions", tuple(stray)))


def _query_violations(where: str, there: list[str], due: list[str]) -> Iterator[Violation]:
    held = {*there}
    missing, unknown = tuple(query for query in due if query not in held), tuple(sorted(held.difference(due)))
    yield from _with_ids(
        Violation(Kind.MISSING_QUERIES, where, f"{len(due):,} queries are due", missing),
        Violation(Kind.UNKNOWN_QUERIES, where, "queries are not the benchmark's", unknown),
    )


def _by_query(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    targets: dict[str, list[str]] = {}
    for query, target in pairs:
        targets.setdefault(query, []).append(target)
    return targets


def _possible(rank: int | None, in_gallery: bool, n_gallery: int) -> bool:
    return (rank is not None and 1 <= rank <= n_gallery) if in_gallery else rank is None


def _names(rows: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(f"{row['query']} {row['target']}" for row in rows)
