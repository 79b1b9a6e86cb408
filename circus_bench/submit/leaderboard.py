"""Write the leaderboard entries that follow from Runs into a model's repository, by a pull request."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circus_bench._typing import StrPath
from circus_bench.audit.scores import Scores, score_run
from circus_bench.benchmark import Condition
from circus_bench.errors import CircusError, MismatchError, format_ids
from circus_bench.hub.card import render_result
from circus_bench.hub.eval_tasks import METRIC, EvalTask, K, eval_tasks
from circus_bench.hub.publish import PublishError, explained
from circus_bench.hub.subsets import subsets_of_folder
from circus_bench.hub.writer import MANIFEST, read_manifest
from circus_bench.io import atomic_write, read_json, slug, write_text
from circus_bench.runs.manifest import MANIFEST_FILE
from circus_bench.runs.run import Run
from circus_bench.runs.tables import RANKS_FILE, TOP_FILE

if TYPE_CHECKING:
    from huggingface_hub import EvalResultEntry

RESULTS = ".eval_results"
VALUE_DIGITS = 4

_HUB = "https://huggingface.co"
_SOURCE = "rank tables, circus-bench"


@dataclass(frozen=True)
class Leaderboard:
    """A leaderboard: a dataset folder, and where it is published.

    Attributes:
        folder: the dataset folder.
        dataset: its repository, `ORG/NAME`.
        revision: the commit of the repository that holds this folder.
    """

    folder: StrPath
    dataset: str
    revision: str

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The manifest of the folder."""
        return read_manifest(self.folder)

    def tasks(self, benchmark: str) -> list[EvalTask]:
        """List the tasks of a benchmark, by its name in the folder."""
        return [task for task in eval_tasks(self.manifest) if task.benchmark == benchmark]


@dataclass(frozen=True)
class Submission:
    """Results of one model, written to a folder.

    Attributes:
        folder: stands for the model's repository.
        model: the repository, `ORG/NAME`.
        leaderboard: what they are entered for.
        files: paths within the folder.
        entries: every entry.
    """

    folder: Path
    model: str
    leaderboard: Leaderboard
    files: tuple[str, ...]
    entries: tuple[EvalResultEntry, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        from huggingface_hub import eval_result_entries_to_yaml

        entries = eval_result_entries_to_yaml(list(self.entries))
        return {"model": self.model, "files": list(self.files), "entries": entries}


def results_file(benchmark: str) -> str:
    """Return the path of a benchmark's entries within a model's repository."""
    return f"{RESULTS}/circus_{benchmark}.yaml"


def run_folder(benchmark: str) -> str:
    """Return the path of the Run that they follow from."""
    return f"{RESULTS}/circus/{benchmark}"


def make_entries(folder: StrPath, *, model: str, leaderboard: Leaderboard) -> list[EvalResultEntry]:
    """Make the entries that follow from a saved Run: one per task of its benchmark.

    Values are those of `circus_bench.audit.scores.score_run`, in per cent, rounded to `VALUE_DIGITS` digits.

    Args:
        folder: of the Run.
        model: the model's repository, `ORG/NAME`.
        leaderboard: what they are entered for.

    Raises:
        CircusError: the dataset folder does not hold the Run's benchmark.
    """
    run = Run.load(folder)
    name = slug(run.manifest.benchmark)
    version = read_json(Path(folder, MANIFEST_FILE))["package_version"]
    scores = {
        subset: score_run(run, subset=subset.value, chosen=chosen, k=K, cutoffs=(K,))
        for subset, chosen in subsets_of_folder(run.queries, folder=leaderboard.folder, name=name).items()
    }
    return [
        _entry(task, scores[task.subset], run, model=model, leaderboard=leaderboard, version=version)
        for task in leaderboard.tasks(name)
    ]


def write_results(runs: Sequence[StrPath], out: StrPath, *, model: str, leaderboard: Leaderboard) -> Submission:
    """Write the entries of Runs, and the Runs, as they are to lie in the model's repository.

    Nothing is checked but that the files can be made: `verify.verify_submission` tells whether they will be accepted.

    Args:
        runs: folders of Runs of one model, one per benchmark.
        out: stands for the repository; earlier files on the same benchmarks are replaced.
        model: the repository, `ORG/NAME`.
        leaderboard: what they are entered for.

    Raises:
        MismatchError: two Runs are on one benchmark.
        CircusError: `model` is no repository name, or the dataset folder lacks a benchmark.
    """
    if model.count("/") != 1 or not all(model.split("/")):
        raise CircusError(f"{model!r} is no repository name; expected ORG/NAME of the model's repository on the Hub")
    out = Path(out)
    folder_of: dict[str, StrPath] = {}
    for folder in runs:
        name = slug(Run.load(folder).manifest.benchmark)
        if name in folder_of:
            raise MismatchError(f"{folder_of[name]} and {folder} are both Runs on {name}; submit one of them")
        folder_of[name] = folder
    files: list[str] = []
    entries: list[EvalResultEntry] = []
    for name, folder in sorted(folder_of.items()):
        found = make_entries(folder, model=model, leaderboard=leaderboard)
        for file in (RANKS_FILE, TOP_FILE, MANIFEST_FILE):
            files.append(f"{run_folder(name)}/{file}")
            with atomic_write(out / files[-1]) as temporary:
                shutil.copyfile(Path(folder, file), temporary)
        files.append(results_file(name))
        write_text(out / files[-1], _yaml(found))
        entries += found
    return Submission(out, model, leaderboard, tuple(files), tuple(entries))


def latest_revision(dataset: str) -> str:
    """Ask the Hub for the newest commit of a dataset repository.

    Raises:
        PublishError: the Hub does not tell.
    """
    from huggingface_hub import HfApi

    with explained(f"asking about {dataset}", command="submit"):
        return str(HfApi().dataset_info(dataset).sha)


def open_pull_request(submission: Submission) -> str:
    """Open a pull request in the model's repository; returns its address.

    The token is the one that `huggingface_hub` finds (HF_TOKEN, or its login) and is never shown.

    Raises:
        PublishError: the dataset's revision on the Hub is not the folder that the results were made for, or the Hub did
            not take them. There is a whole pull request or none.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    _check_published(submission.leaderboard)
    names = sorted({entry.task_id for entry in submission.entries})
    with explained(f"submitting to {submission.model}", command="submit"):
        commit = HfApi().create_commit(
            submission.model,
            [CommitOperationAdd(path, str(submission.folder / path)) for path in submission.files],
            commit_message=f"circus-bench results: {len(names)} tasks of {submission.leaderboard.dataset}",
            commit_description=describe_pull_request(submission),
            create_pr=True,
        )
    return str(commit.pr_url)


def describe_pull_request(submission: Submission) -> str:
    """Render the text of the pull request: the values, and how to compute them again."""
    leaderboard = submission.leaderboard
    return render_result(
        model=submission.model,
        dataset=leaderboard.dataset,
        revision=leaderboard.revision,
        metric=METRIC,
        entries=submission.entries,
        results=RESULTS,
    )


def _check_published(leaderboard: Leaderboard) -> None:
    """Refuse a revision whose manifest is another than the folder's."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    where = f"{leaderboard.dataset} at {leaderboard.revision}"
    with explained(f"asking about {where}", command="submit"):
        try:
            path = hf_hub_download(leaderboard.dataset, MANIFEST, repo_type="dataset", revision=leaderboard.revision)
        except EntryNotFoundError as error:
            raise PublishError(
                f"{where} holds no {MANIFEST}: it is no dataset that `circus-bench data make` made"
            ) from error
    held = read_json(Path(path))["benchmarks"]
    other = [
        name
        for name, entry in leaderboard.manifest["benchmarks"].items()
        if name not in held or held[name]["fingerprint"] != entry["fingerprint"]
    ]
    if other:
        raise PublishError(
            f"{where} does not hold what {leaderboard.folder} does ({format_ids(other)}); "
            f"give the revision that was built from it"
        )


def _entry(
    task: EvalTask, scores: Scores, run: Run, *, model: str, leaderboard: Leaderboard, version: str
) -> EvalResultEntry:
    from huggingface_hub import EvalResultEntry

    estimate = scores.by_condition[task.condition][METRIC]
    return EvalResultEntry(
        dataset_id=leaderboard.dataset,
        task_id=task.id,
        value=round(100 * estimate.value, VALUE_DIGITS),
        dataset_revision=leaderboard.revision,
        date=run.manifest.date,
        source_url=f"{_HUB}/{model}/tree/main/{run_folder(task.benchmark)}",
        source_name=_SOURCE,
        notes=_notes(task, scores, run, version),
    )


def _notes(task: EvalTask, scores: Scores, run: Run, version: str) -> str:
    """List what a value cannot be read without."""
    estimate = scores.by_condition[task.condition][METRIC]
    protocol, gap = run.manifest.protocol, scores.comp_gap.value
    facts = [
        f"{METRIC} in per cent, 95 % interval {100 * estimate.low:.2f} to {100 * estimate.high:.2f}",
        f"{scores.n_queries} queries",
        f"condition {task.condition}",
        f"protocol {protocol['id']}, reference {protocol['reference']}",
        f"{run.manifest.n_gallery} gallery images",
        f"model revision {run.manifest.model.revision}, {run.manifest.model.dtype}",
        f"circus-bench {version}",
    ]
    if task.condition is Condition.MULTIMODAL:
        facts.insert(2, "CompGap undefined" if math.isnan(gap) else f"CompGap {gap:.3f}")
    return "; ".join(facts)


def _yaml(entries: Sequence[EvalResultEntry]) -> str:
    import yaml  # type: ignore[import-untyped]
    from huggingface_hub import eval_result_entries_to_yaml

    content: list[Mapping[str, Any]] = list(eval_result_entries_to_yaml(list(entries)))
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000))
