"""Checking a submission: every value is computed again from the rank tables that came with it.

Nothing in a submission is believed. The queries, their targets and the gallery are those of the dataset folder; the
ranks must be possible there, and must agree with the lists of what was retrieved and their scores; the values must
follow from the ranks. Two things cannot be told from these files: whether the model gave these scores at all, and
whether a rank beyond the end of its list, which counts for CompGap but for no hit rate, is exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circus_bench.benchmark import Benchmark, Condition, Fingerprint
from circus_bench.errors import CircusError, FormatError
from circus_bench.hub.reader import benchmark_of
from circus_bench.io import read_json, read_parquet, slug
from circus_bench.runs.run import MANIFEST_FILE, Run
from circus_bench.runs.tables import RANKS_FILE, TOP_FILE
from circus_bench.submit.leaderboard import RESULTS, Board, result_entries, results_file, run_folder
from circus_bench.submit.topk_checks import listing_refusals
from circus_bench.submit.violations import Reason, Refusal

if TYPE_CHECKING:
    from huggingface_hub import EvalResultEntry


class SubmissionError(CircusError):
    """A submission does not follow from its rank tables."""


def check_submission(folder: Path, *, model: str, board: Board) -> list[Refusal]:
    """Compute every value of a submission again, and list what is wrong with it.

    Args:
        folder: a checkout of the model's repository, or what `entries.write_results` wrote.
        model: the repository, `ORG/NAME`.
        board: what the results are entered for.

    Returns:
        Every reason to refuse it; none when all follows.
    """
    refusals: list[Refusal] = []
    entries = _read_entries(folder, board, refusals)
    tasks = {task.id: task for benchmark in board.manifest["benchmarks"] for task in board.tasks(benchmark)}
    counts = Counter(entry.task_id for _, entry in entries)
    for reason, message, ids in (
        (Reason.UNKNOWN_TASK, f"{board.folder} declares no such tasks", [i for i in counts if i not in tasks]),
        (Reason.DUPLICATE_ENTRY, "tasks have several entries", [i for i, count in counts.items() if count > 1]),
        (
            Reason.WRONG_REVISION,
            f"the entries are not about revision {board.revision}",
            [entry.task_id for _, entry in entries if entry.dataset_revision != board.revision],
        ),
    ):
        if ids:
            refusals.append(Refusal(reason, RESULTS, message, tuple(ids)))
    if not entries and not refusals:
        refusals.append(Refusal(Reason.NO_ENTRY, RESULTS, f"there is no entry for {board.dataset}"))
    for benchmark in sorted({tasks[i].benchmark for i in counts if i in tasks}):
        given = {entry.task_id: entry for _, entry in entries}
        missing = [task.id for task in board.tasks(benchmark) if task.id not in given]
        if missing:
            message = "a benchmark is entered with all its tasks, or not at all"
            refusals.append(Refusal(Reason.MISSING_ENTRY, results_file(benchmark), message, tuple(missing)))
        wrong = list(_run_refusals(folder, benchmark, model=model, board=board))
        refusals += wrong or _entry_refusals(folder, benchmark, given, model=model, board=board)
    return refusals


def require_sound(folder: Path, *, model: str, board: Board) -> None:
    """Raise what `check_submission` finds.

    Raises:
        SubmissionError: names every reason.
    """
    refusals = check_submission(folder, model=model, board=board)
    if refusals:
        raise SubmissionError(
            f"{folder}: the results do not follow from the rank tables:\n" + "\n".join(map(str, refusals))
        )


def _read_entries(folder: Path, board: Board, refusals: list[Refusal]) -> list[tuple[str, EvalResultEntry]]:
    """File and entry of everything entered for the dataset, whatever the file is called."""
    import yaml  # type: ignore[import-untyped]
    from huggingface_hub import parse_eval_result_entries

    entries: list[tuple[str, EvalResultEntry]] = []
    for path in sorted((folder / RESULTS).glob("*.y*ml")):
        where = path.relative_to(folder).as_posix()
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
            found = parse_eval_result_entries(content)
        except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
            refusals.append(Refusal(Reason.UNREADABLE, where, f"no list of results ({error!r})"))
            continue
        # Upper case and lower case name the same repository to a reader of the leaderboard.
        entries += [(where, entry) for entry in found if str(entry.dataset_id).casefold() == board.dataset.casefold()]
    return entries


def _entry_refusals(
    folder: Path, benchmark: str, given: dict[str, EvalResultEntry], *, model: str, board: Board
) -> Iterator[Refusal]:
    """Compare the entries with those that follow from the Run."""
    wrong: dict[Reason, list[str]] = {Reason.WRONG_VALUE: [], Reason.WRONG_FACTS: []}
    values = []
    for due in result_entries(folder / run_folder(benchmark), model=model, board=board):
        entry = given.get(due.task_id)
        if entry is None:
            continue
        if entry.value != due.value:
            wrong[Reason.WRONG_VALUE].append(due.task_id)
            values.append(f"{due.task_id}: {entry.value!r} instead of {due.value!r}")
        facts = ("date", "notes", "source_url", "source_name", "source_user", "source_org", "verify_token")
        if any(getattr(entry, name) != getattr(due, name) for name in facts):
            wrong[Reason.WRONG_FACTS].append(due.task_id)
    messages = {
        Reason.WRONG_VALUE: f"values do not follow from the ranks, such as {'; '.join(values[:3])}",
        Reason.WRONG_FACTS: "notes, date or source are not those of the Run",
    }
    for reason, ids in wrong.items():
        if ids:
            yield Refusal(reason, results_file(benchmark), messages[reason], tuple(ids))


def _run_refusals(folder: Path, benchmark: str, *, model: str, board: Board) -> Iterator[Refusal]:
    """What is wrong with the Run of a benchmark: its head, then its rows, then what they say of each other."""
    where, place = run_folder(benchmark), folder / run_folder(benchmark)
    truth = benchmark_of(board.folder, benchmark)
    try:
        found = [
            *_head_refusals(read_json(place / MANIFEST_FILE), benchmark, truth, model=model, board=board),
            *_row_refusals(place, truth, where),
        ]
        run = None if found else Run.load(place)
    except (FormatError, AttributeError, KeyError, TypeError, ValueError) as error:
        yield Refusal(Reason.UNREADABLE, where, f"the Run cannot be read: {error}")
        return
    yield from found
    if run is not None:
        yield from listing_refusals(run, truth, where=f"{where}/{TOP_FILE}")


def _head_refusals(
    manifest: dict[str, Any], benchmark: str, truth: Benchmark, *, model: str, board: Board
) -> Iterator[Refusal]:
    where = f"{run_folder(benchmark)}/{MANIFEST_FILE}"
    name, protocol = manifest["model"]["name"], manifest["protocol"]
    written = board.manifest["benchmarks"][benchmark]
    if name != model:
        yield Refusal(Reason.WRONG_MODEL, where, f"the Run is of {name!r}, the repository of {model!r}")
    if protocol != written["protocol"]:
        fields = sorted(
            key for key in {*protocol, *written["protocol"]} if protocol.get(key) != written["protocol"].get(key)
        )
        yield Refusal(
            Reason.WRONG_PROTOCOL,
            where,
            f"the Run was made under {protocol.get('id')}, the dataset holds {truth.protocol.id}; they differ in "
            + ", ".join(fields),
        )
    if slug(manifest["benchmark"]) != benchmark:
        message = f"the Run is on {manifest['benchmark']!r}, not on {benchmark}"
        yield Refusal(Reason.WRONG_FINGERPRINT, where, message)
    fingerprint = Fingerprint(**manifest["fingerprint"])
    # Without a hash of its images a Run would match whatever images it was made on.
    if fingerprint.images is None or not fingerprint.matches(Fingerprint(**written["fingerprint"])):
        message = f"the Run was not made on the version of {benchmark} in {board.folder}"
        yield Refusal(Reason.WRONG_FINGERPRINT, where, message)
    if manifest["n_gallery"] != len(truth.gallery.ids):
        message = f"the Run ranks {manifest['n_gallery']:,} images, the gallery has {len(truth.gallery.ids):,}"
        yield Refusal(Reason.WRONG_FINGERPRINT, where, message)
    if manifest["alarms"]:
        yield Refusal(Reason.ALARM, where, "the Run has alarms", tuple(manifest["alarms"]))


def _row_refusals(place: Path, truth: Benchmark, where: str) -> Iterator[Refusal]:
    """What is wrong with the rows of both tables, before they are believed enough to be loaded."""
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
        of_ranks = [row for row in rows if row["condition"] == condition]
        pairs = [(row["query"], row["target"]) for row in of_ranks]
        of_lists = [row["query"] for row in lists if row["condition"] == condition]
        for file, there in ((RANKS_FILE, [query for query, _ in pairs]), (TOP_FILE, of_lists)):
            yield from _query_refusals(f"{where}/{file}, {condition}", there, queries)
        file = f"{where}/{RANKS_FILE}, {condition}"
        twice = _repeated(f"{query} {target}" for query, target in pairs)
        lists_twice = _repeated(of_lists)
        if twice:
            yield Refusal(Reason.DUPLICATE_ROWS, file, "rows of a query and target occur twice", twice)
        if lists_twice:
            yield Refusal(Reason.DUPLICATE_ROWS, f"{where}/{TOP_FILE}, {condition}", "queries occur twice", lists_twice)
        if not twice and {query for query, _ in pairs} == {*queries} and _by_query(pairs) != _by_query(due):
            other = sorted({query for query, _ in {*pairs} ^ {*due}}) or ["the order of targets"]
            yield Refusal(Reason.WRONG_TARGETS, file, "targets are not those of the benchmark", tuple(other))
        outside = [row for row in of_ranks if not _possible(row["rank"], row["target"] in gallery, len(gallery))]
        if outside:
            message = f"ranks outside 1 to {len(gallery):,}, such as {outside[0]['rank']}"
            yield Refusal(Reason.RANK_OUTSIDE_GALLERY, file, message, _names(outside))
        early = [row for row in of_ranks if row["rank"] is not None and 1 <= row["rank"] <= (row["ties"] or 0)]
        if early:
            message = "ranks ignore ties: a target with n ties has a rank of at least n + 1"
            yield Refusal(Reason.GOLD_FIRST, file, message, _names(early))
    stray = sorted({str(row["condition"]) for row in (*rows, *lists)} - {*Condition})
    if stray:
        yield Refusal(Reason.UNREADABLE, where, "rows of unknown conditions", tuple(stray))


def _query_refusals(where: str, there: list[str], due: list[str]) -> Iterator[Refusal]:
    held = {*there}
    missing, unknown = [query for query in due if query not in held], sorted(held.difference(due))
    if missing:
        yield Refusal(Reason.MISSING_QUERIES, where, f"{len(due):,} queries are due", tuple(missing))
    if unknown:
        yield Refusal(Reason.UNKNOWN_QUERIES, where, "queries are not the benchmark's", tuple(unknown))


def _by_query(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    targets: dict[str, list[str]] = {}
    for query, target in pairs:
        targets.setdefault(query, []).append(target)
    return targets


def _repeated(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name, count in Counter(names).items() if count > 1)


def _possible(rank: int | None, in_gallery: bool, n_gallery: int) -> bool:
    return (rank is not None and 1 <= rank <= n_gallery) if in_gallery else rank is None


def _names(rows: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(f"{row['query']} {row['target']}" for row in rows)
