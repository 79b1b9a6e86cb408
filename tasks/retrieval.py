"""Evaluate a composed retrieval task: one encode and one Run per model, from which every subset is scored."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from mteb.abstasks.retrieval import AbsTaskRetrieval

from circus_bench.benchmark import Condition
from circus_bench.errors import CircusError

if TYPE_CHECKING:
    from mteb.models.models_protocols import EncoderProtocol
    from mteb.timing import TimingStack
    from mteb.types import EncodeKwargs

    from circus_bench.hub.tables import LabeledBenchmark
    from circus_bench.labels.labels import Subset
    from circus_bench.runs.run import Run

# mteb's command line sets the verbosity of the loggers below "mteb", tasks included.
logger = logging.getLogger("mteb.circus_bench.tasks")


class ComposedRetrieval(AbsTaskRetrieval):
    """A composed image retrieval benchmark under the three conditions, on the subsets full, sf and v.

    The gallery is encoded once, every target is ranked in all of it, and the outcome is one Run on all queries; the
    subsets are scored from it. `main_score` is the hit rate of the multimodal queries under the protocol's own
    reference policy (the CIRCUS paper's number, which keeps the reference); `circus_bench.tasks.scores.score_subset`
    says what else a result holds. mteb's own mean over the subsets has no meaning: read the subsets one by one.

    The Run lies beside mteb's result file, in a folder of the task's name, so that an audit can start from it:
    `circus-bench audit OUT/results/*/*/CIRCUS-CIRR`. A Run that was finished for the same model, revision, data and
    protocol is taken as it is, and embeddings that were stored are not made again; delete the folders to start afresh.

    Environment:
        CIRCUS_DATA: a dataset folder, or `ORG/NAME@REVISION` on the Hub; the repository of `metadata.dataset` by
            default. Its subsets are evaluated as far as it knows them.
        CIRCUS_RUNS: a folder for the Runs, in place of mteb's output folder.
        CIRCUS_STORE: a folder for the embeddings, in place of `embeddings` in mteb's output folder.

    Attributes:
        protocol: the protocol that the task is scored under.
        by_group: whether results are broken down by the queries' groups.
        labeled: the benchmark and the labels of its queries, once loaded.
    """

    protocol: ClassVar[str]
    by_group: ClassVar[bool] = False
    labeled: LabeledBenchmark | None = None

    # An image-only query has no instruction. mteb falls back on this where a task has no prompt for an input, so it has
    # to be empty.
    abstask_prompt = ""
    # Ranks are exact and cover the whole gallery, which takes an encoder.
    _support_cross_encoder = False
    _support_search = False

    _folder: Path | None = None
    _run: Run | None = None

    def __init__(self, **kwargs: Any) -> None:
        from circus_bench.tasks.data import resolve_dataset

        super().__init__(**kwargs)
        if self.protocol.partition("/")[0] != "scenes":
            self.metadata = self.metadata.model_copy(update={"dataset": resolve_dataset(self.metadata.dataset)})

    @property
    def main_cutoff(self) -> int:
        """The K of the main score."""
        return int(self.metadata.main_score.rpartition("_")[2])

    def load_data(self, num_proc: int | None = None, *, timer: TimingStack | None = None, **_: Any) -> None:
        """Load the annotations; images are read when they are encoded.

        Args:
            num_proc: not used.
            timer: notes how long it takes.

        Raises:
            CircusError: the data cannot be found or read, or have none of the subsets asked for.
        """
        del num_proc
        if self.data_loaded:
            return
        from mteb.timing import TimingStack

        from circus_bench.hub.tables import SPLIT
        from circus_bench.labels.labels import Subset
        from circus_bench.tasks.data import load_labeled

        with (timer or TimingStack())("Data loading", log_message=f"Loading dataset {self.metadata.name}..."):
            dataset = self.metadata.dataset
            labeled, folder = load_labeled(self.protocol, repository=dataset["path"], revision=dataset["revision"])
            known = [subset for subset in self.hf_subsets if subset in labeled.subsets]
        unknown = [subset for subset in self.hf_subsets if subset not in known]
        if unknown:
            message = (
                f"{self.metadata.name}: the subsets {', '.join(unknown)} need labels or human judgments that "
                f"{folder or 'the data'} have not"
            )
            if not known:
                raise CircusError(message)
            logger.warning("%s; they are left out", message)
        self.hf_subsets = known
        self.labeled, self._folder = labeled, folder
        self.dataset = {s: {SPLIT: cast("Any", _SplitData(labeled, Subset(s), folder))} for s in known}
        self.data_loaded = True

    def unload_data(self) -> None:
        """Forget the data and the Run."""
        super().unload_data()
        self.labeled = self._folder = self._run = None

    def _evaluate_subset(  # type: ignore[override]  # mteb has refused what is no encoder
        self,
        model: EncoderProtocol,
        data_split: Mapping[str, Any],  # noqa: ARG002 - the benchmark holds the same
        *,
        encode_kwargs: EncodeKwargs,
        hf_split: str,
        hf_subset: str,
        prediction_folder: Path | None = None,
        num_proc: int | None = None,
        timer: TimingStack,
        **_: Any,
    ) -> dict[str, Any]:
        """Score a subset, from the one Run of the model.

        Raises:
            CircusError: images are missing or cannot be decoded, vectors cannot be ranked, or `encode_kwargs` asks for
                what is not passed on.
        """
        from circus_bench.distributed import current_job
        from circus_bench.encoding.encoder import EncodeSettings
        from circus_bench.labels.labels import Subset
        from circus_bench.tasks.load_or_run import load_or_run
        from circus_bench.tasks.scores import summarize_scores

        assert self.labeled is not None  # mteb loads before it evaluates
        if lost := sorted(set(encode_kwargs) - {"batch_size", "show_progress_bar"}):
            raise CircusError(f"{self.metadata.name} does not pass on {', '.join(lost)}; set it on the model itself")
        with timer("Encoding and ranking", split=hf_split, subset=hf_subset):
            self._run = load_or_run(
                model,
                self.labeled,
                cached=self._run,
                task=self.metadata.name,
                folder=self._folder,
                prediction_folder=prediction_folder,
                settings=EncodeSettings(batch_size=int(encode_kwargs.get("batch_size", 32)), workers=num_proc or 0),
                shown=bool(encode_kwargs.get("show_progress_bar", True)),
            )
        with timer("Scoring", split=hf_split, subset=hf_subset):
            scores = self._scores(self._run, Subset(hf_subset))
        if not current_job().is_main:
            return scores
        if prediction_folder is not None:
            predicted = _predictions(self._run, {query.id for query in self.labeled.subsets[Subset(hf_subset)]})
            self._save_task_predictions(predicted, model, prediction_folder, hf_subset=hf_subset, hf_split=hf_split)
        manifest = self._run.manifest
        logger.info("%s %s: %s", self.metadata.name, hf_subset, summarize_scores(scores, k=self.main_cutoff))
        if manifest.alarms:
            logger.warning("%s: %s; do not trust this Run", manifest.model.name, ", ".join(manifest.alarms))
        return scores

    def _scores(self, run: Run, subset: Subset) -> dict[str, Any]:
        from circus_bench.tasks.scores import score_subset

        assert self.labeled is not None
        queries = self.labeled.benchmark.queries
        members = {query.id for query in self.labeled.subsets[subset]}
        chosen = np.array([query.id in members for query in queries])
        names = dict.fromkeys(query.group for query in queries) if self.by_group else {}
        groups = {name: np.array([query.group == name for query in queries]) for name in names}
        return score_subset(run, subset=subset, chosen=chosen, k=self.main_cutoff, groups=groups)

    def _calculate_descriptive_statistics_from_split(  # type: ignore[override]  # mteb has no word for unknown
        self,
        split: str,  # noqa: ARG002 - there is one
        *,
        hf_subset: str | None = None,
        compute_overall: bool = False,
        num_proc: int | None = None,  # noqa: ARG002
    ) -> dict[str, Any] | None:
        """Compute the statistics of a subset; None where the data do not have it.

        Over all subsets they are those of `full`, which holds the others' queries, and the gallery is the same.
        """
        from circus_bench.labels.labels import Subset
        from circus_bench.tasks.statistics import compute_statistics

        assert self.labeled is not None
        subset = Subset.FULL if compute_overall or hf_subset is None else Subset(hf_subset)
        queries = self.labeled.subsets.get(subset)
        return compute_statistics(self.labeled.benchmark, queries) if queries else None


class _SplitData(dict[str, Any]):
    """The data of a subset, as mteb's retrieval tasks hold them. Tables are made on demand: no score needs them."""

    def __init__(self, labeled: LabeledBenchmark, subset: Subset, folder: Path | None) -> None:
        queries = labeled.subsets[subset]
        relevant = {query.id: dict.fromkeys(query.targets, 1) for query in queries}
        super().__init__(relevant_docs=relevant, top_ranked=None)
        self._source = labeled, subset, folder

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in ("corpus", "queries")

    def __missing__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        labeled, subset, folder = self._source
        self[name] = _table(labeled, subset, name, folder)
        return self[name]


def _table(labeled: LabeledBenchmark, subset: Subset, name: str, folder: Path | None) -> Any:
    """Load a table as a `datasets.Dataset`: from the parquet files of the folder, or made here."""
    from datasets import Dataset, load_dataset

    from circus_bench.hub.tables import SPLIT, Table, config_name, features, rows

    table = Table(name)
    if folder is not None:
        return load_dataset(str(folder), config_name(labeled.name, subset, table), split=SPLIT)
    columns = features(table, with_images=True)
    return Dataset.from_list(list(rows(labeled, subset, table, with_images=True)), features=columns)


def _predictions(run: Run, members: Collection[str]) -> dict[str, dict[str, float]]:
    """Collect what mteb keeps as predictions: the top of the gallery for each multimodal query, with its scores."""
    top = run.results[Condition.MULTIMODAL]
    return {
        query: dict(zip(ids, map(float, scores), strict=True))
        for query, ids, scores in zip(run.queries, top.top_ids, top.ranking.top_score, strict=True)
        if query in members
    }
