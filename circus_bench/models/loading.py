"""Register the models of circus-bench with mteb, and load an encoder by its name. Imports neither torch nor mteb."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from circus_bench.errors import CircusError
from circus_bench.models.spec import parse_model_spec

if TYPE_CHECKING:
    from mteb.models import EncoderProtocol

POOL_MINI = ("circus-bench/mini-balanced", "circus-bench/mini-visual", "circus-bench/mini-textual")
"""The small encoders that ship with the library: a pool that audits on a CPU in seconds."""


def register() -> None:
    """Add our models to mteb's registry, so that `mteb.get_model` and `mteb run -m` know them.

    For the models of the pool, ours take the place of mteb's entries of the same name: those need torchvision and
    torchcodec, or transformers < 5, and do not run beside the packages that circus-bench installs. Repeating it is
    harmless.
    """
    from mteb.models.model_implementations import MODEL_REGISTRY

    from circus_bench.models.metas import CircusModelMeta
    from circus_bench.models.mini.meta import mini_metas
    from circus_bench.models.registry import pool

    metas = mini_metas()
    for module in dict.fromkeys(model.module for model in pool()):
        metas += importlib.import_module(module).metas()
    for meta in metas:
        if meta.name is not None and not isinstance(MODEL_REGISTRY.get(meta.name), CircusModelMeta):
            MODEL_REGISTRY[meta.name] = meta


def check_known(names: Iterable[str]) -> None:
    """Refuse names that no model can have, before any of the models is loaded.

    Raises:
        CircusError: names the first one that is neither in mteb's registry nor of the form `st:SOURCE` or
            `dual:FUSION:SOURCE` (see `circus_bench.models.spec`), and those that are close to it.
    """
    from mteb.models.model_implementations import MODEL_REGISTRY

    register()
    for name in names:
        if name not in MODEL_REGISTRY and parse_model_spec(name) is None:
            close = difflib.get_close_matches(name, MODEL_REGISTRY, n=5, cutoff=0.5)
            raise CircusError(f"no model {name!r} in mteb's registry; close names: {', '.join(close) or 'none'}")


def load_encoder(name: str, *, revision: str | None = None, device: str | None = None) -> EncoderProtocol:
    """Load an encoder.

    Args:
        name: a name in mteb's registry, such as `circus-bench/mini-balanced`; or `st:SOURCE` for a multimodal
            sentence-transformers model, or `dual:FUSION:SOURCE` for a dual encoder of transformers, where SOURCE is a
            folder or a repository on the Hub (see `circus_bench.models.spec`).
        revision: the revision wanted; the registered one when None.
        device: such as `cpu` or `cuda:0`; the model's own choice when None.

    Raises:
        CircusError: there is no such model, no such revision, no such device, or the model is no encoder.
    """
    import mteb
    from mteb.models import EncoderProtocol

    _check_device(device)
    spec = parse_model_spec(name)
    if spec is not None and spec.fusion is None:
        from circus_bench.models.sentence_transformers import load_sentence_transformer

        return load_sentence_transformer(spec, revision=revision, device=device)
    if spec is not None:
        from circus_bench.models.dual_encoders import DualEncoder

        return DualEncoder(spec, revision=revision, device=device)
    check_known([name])
    try:
        mteb.get_model_meta(name, revision)
    except ValueError as error:
        raise CircusError(str(error)) from error
    model = mteb.get_model(name, revision, device)
    if not isinstance(model, EncoderProtocol):
        raise CircusError(f"{name} is a {type(model).__name__}, not an encoder: it has no embeddings to rank")
    return model


def _check_device(device: str | None) -> None:
    if device is None:
        return
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was compiled for the device
        raise CircusError(f"the device {device!r} cannot be used here ({str(error).splitlines()[0]})") from error
