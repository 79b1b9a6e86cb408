"""Find the output paths of a task: beside mteb's results, unless the environment says otherwise."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from circus_bench.encoding.encoder import ModelIdentity
from circus_bench.io import slug

if TYPE_CHECKING:
    from mteb.cache import ResultCache

RUNS_VARIABLE, STORE_VARIABLE = "CIRCUS_RUNS", "CIRCUS_STORE"
_STORE = "embeddings"


@dataclass(frozen=True)
class OutputPaths:
    """The output folders of one model on one task.

    Attributes:
        run: of the Run; None where nothing is to be kept.
        store: of the embedding store; None likewise.
    """

    run: Path | None
    store: Path | None


def output_paths(task: str, model: ModelIdentity, *, prediction_folder: Path | None) -> OutputPaths:
    """Find the output folders.

    | | Run | embeddings |
    |---|---|---|
    | `CIRCUS_RUNS`, `CIRCUS_STORE` | `CIRCUS_RUNS/<task>/<model>/<revision>` | `CIRCUS_STORE` |
    | else, mteb has a result cache | `<task>` beside mteb's `<task>.json` | `embeddings` beside mteb's `results` |
    | else, mteb has a prediction folder | `<task>/<model>/<revision>` in it | `embeddings` in it |
    | else | nowhere | nowhere |

    Args:
        task: the task's name.
        model: the model.
        prediction_folder: what mteb was told.
    """
    runs, store = (os.environ.get(name) for name in (RUNS_VARIABLE, STORE_VARIABLE))
    within = Path(task, slug(model.name), slug(model.revision))
    cache, meta = _mteb_cache()
    run: Path | None = None
    root: Path | None = None
    if cache is not None:
        run = cache.get_task_result_path(task, meta).with_suffix("")
        root = cache.cache_path / _STORE
    elif prediction_folder is not None:
        run, root = prediction_folder / within, prediction_folder / _STORE
    return OutputPaths(Path(runs) / within if runs else run, Path(store) if store else root)


def redirect_results_to_temp() -> None:
    """Let mteb write the result files of this process to a folder that is removed at the end.

    mteb lets every process of a job write them, all to the same path at the same time; only one may.
    """
    cache, _ = _mteb_cache()
    if cache is not None:
        elsewhere = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, elsewhere, ignore_errors=True)
        cache.cache_path = Path(elsewhere)


def _mteb_cache() -> tuple[ResultCache | None, Any]:
    """Find the result cache that the running `mteb.evaluate` writes to, and the metadata it files the model under.

    mteb gives a task its prediction folder but not its output folder (`mteb run --output-folder`, or the cache of
    `mteb.evaluate`); only the frame of the caller knows it. Where a future mteb has no such frame, there is no cache
    here, and the environment variables are left.
    """
    from mteb.cache import ResultCache

    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - there is no public way to the caller's variables
    while frame is not None:
        if frame.f_globals.get("__name__") == "mteb.evaluate" and "model_meta" in frame.f_locals:
            cache, meta = frame.f_locals.get("cache"), frame.f_locals["model_meta"]
            if isinstance(cache, ResultCache) and meta is not None:
                return cache, meta
        frame = frame.f_back
    return None, None
