"""Encoders: mteb's own, and those that circus-bench adds to mteb's registry."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from circus_bench.errors import CircusError

if TYPE_CHECKING:
    from mteb.models import EncoderProtocol

POOL_MINI = ("circus-bench/mini-balanced", "circus-bench/mini-visual", "circus-bench/mini-textual")
"""The small encoders that ship with the library: a pool that audits on a CPU in seconds."""


def register() -> None:
    """Add our models to mteb's registry, so that `mteb.get_model` and `mteb run -m` know them.

    Repeating it is harmless.
    """
    from mteb.models.model_implementations import MODEL_REGISTRY

    from circus_bench.models.mini.meta import mini_metas

    for meta in mini_metas():
        if meta.name is not None:
            MODEL_REGISTRY.setdefault(meta.name, meta)


def check_known(names: Iterable[str]) -> None:
    """Refuse names that are not in mteb's registry, before any of the models is loaded.

    Raises:
        CircusError: names the first unknown one, and those that are close to it.
    """
    from mteb.models.model_implementations import MODEL_REGISTRY

    register()
    for name in names:
        if name not in MODEL_REGISTRY:
            close = difflib.get_close_matches(name, MODEL_REGISTRY, n=5, cutoff=0.5)
            raise CircusError(f"no model {name!r} in mteb's registry; close names: {', '.join(close) or 'none'}")


def load_encoder(name: str, *, revision: str | None = None, device: str | None = None) -> EncoderProtocol:
    """Load an encoder that mteb or circus-bench implements.

    Args:
        name: the model's name in mteb's registry, such as `circus-bench/mini-balanced`.
        revision: the revision wanted; the registered one when None.
        device: such as `cpu` or `cuda:0`; the model's own choice when None.

    Raises:
        CircusError: there is no such model, no such revision, or the model is no encoder.
    """
    import mteb
    from mteb.models import EncoderProtocol

    check_known([name])
    try:
        mteb.get_model_meta(name, revision)
    except ValueError as error:
        raise CircusError(str(error)) from error
    model = mteb.get_model(name, revision, device)
    if not isinstance(model, EncoderProtocol):
        raise CircusError(f"{name} is a {type(model).__name__}, not an encoder: it has no embeddings to rank")
    return model
