"""List the models of published audits, what each needs, and whether this environment can run it.

The list itself is data: `pool.toml`, next to this module.
"""

from __future__ import annotations

import difflib
import functools
import importlib.metadata
import os
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from circus_bench.errors import CircusError

_FILE = Path(__file__).with_name("pool.toml")
_BYTES_PER_PARAMETER = 2  # bfloat16


class PoolName(StrEnum):
    """The audit that evaluated a model."""

    CIRCUS = "circus"
    """The eleven models of the CIRCUS paper, arXiv:2605.14787."""
    RMIR = "rmir"
    """The models of RMIR's results table, as far as they are known."""


@dataclass(frozen=True, slots=True)
class PoolModel:
    """One model of a published audit.

    Attributes:
        name: its id in mteb's registry.
        title: its name in the tables of the paper.
        circus_id: its name in the files of the CIRCUS release; empty where it is not in that pool.
        pools: the audits that evaluated it.
        parameters: of the checkpoint; 0 where they are not published.
        revision: commit of the weights; empty where none is pinned.
        module: the module whose `metas()` describe and load it.
        extras: the extras of circus-bench that it needs.
        keys: environment variables that may hold the API key, one of which is enough; empty for open weights.
        source: where these facts come from.
    """

    name: str
    title: str
    circus_id: str
    pools: tuple[PoolName, ...]
    parameters: int
    revision: str
    module: str
    extras: tuple[str, ...]
    keys: tuple[str, ...]
    source: str

    @property
    def memory(self) -> int:
        """Bytes of the weights in bfloat16, 0 for an API; activations come on top."""
        return _BYTES_PER_PARAMETER * self.parameters


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that a model needs.

    Attributes:
        what: `memory`, `key`, or `extra ...`.
        wanted: what the model needs.
        found: what there is. Never the key itself.
        met: whether that is enough.
    """

    what: str
    wanted: str
    found: str
    met: bool


def pool(name: str | None = None) -> tuple[PoolModel, ...]:
    """List the models of a pool, or of all pools.

    Raises:
        CircusError: there is no such pool.

    Example:
        >>> len(pool("circus"))
        11
    """
    if name is None:
        return _read_pool()
    if name not in set(PoolName):
        raise CircusError(f"no pool {name!r}; there are: {', '.join(PoolName)}")
    return tuple(model for model in _read_pool() if name in model.pools)


def pool_model(name: str) -> PoolModel:
    """Find a model of the pool by its id, its title, or its name in the CIRCUS release.

    Raises:
        CircusError: there is none; names those that are close.
    """
    named = {key: model for model in _read_pool() for key in (model.circus_id, model.title, model.name) if key}
    if name not in named:
        close = difflib.get_close_matches(name, named, n=3, cutoff=0.4)
        raise CircusError(
            f"no model {name!r} in the pool; close names: {', '.join(close) or 'none'}; see `circus-bench pool list`"
        )
    return named[name]


def needs(model: PoolModel) -> tuple[Need, ...]:
    """List what a model needs, and what this environment has of it. Loads nothing and asks no server."""
    found = []
    if model.memory:
        device, available = _memory()
        found.append(Need("memory", size(model.memory), f"{size(available)} {device}", available >= model.memory))
    for extra in model.extras:
        missing = _missing(extra)
        state = f"missing: {', '.join(missing)}" if missing else "installed"
        found.append(Need(f"extra {extra}", f"pip install 'circus-bench[{extra}]'", state, not missing))
    if model.keys:
        is_set = any(os.environ.get(key) for key in model.keys)
        variables = f"environment variable {' or '.join(model.keys)}"
        found.append(Need("key", variables, "set" if is_set else "not set", is_set))
    return tuple(found)


def size(n_bytes: int) -> str:
    """Format a number of bytes for people.

    Example:
        >>> size(16 * 2**30)
        '16.0 GiB'
    """
    return f"{n_bytes / 2**30:.1f} GiB"


@functools.cache
def _read_pool() -> tuple[PoolModel, ...]:
    models = []
    for entry in tomllib.loads(_FILE.read_text(encoding="utf-8"))["model"]:
        lists = {"pools": tuple(map(PoolName, entry["pools"]))} | {key: tuple(entry[key]) for key in ("extras", "keys")}
        models.append(PoolModel(**{**entry, **lists}))
    return tuple(models)


@functools.cache
def _memory() -> tuple[str, int]:
    """Find the memory that a model would be loaded to, and its free bytes: of the freest GPU, or of the machine."""
    import psutil  # type: ignore[import-untyped]
    import torch

    if torch.cuda.is_available():
        return "free on a GPU", max(torch.cuda.mem_get_info(device)[0] for device in range(torch.cuda.device_count()))
    return "free in RAM", psutil.virtual_memory().available


def _missing(extra: str) -> list[str]:
    """List the requirements of an extra of circus-bench that are not installed in a version that it takes."""
    from packaging.requirements import Requirement

    missing = []
    for line in importlib.metadata.requires("circus-bench") or []:
        requirement = Requirement(line)
        if requirement.marker is None or not requirement.marker.evaluate({"extra": extra}):
            continue
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            version = ""
        if not version or version not in requirement.specifier:
            missing.append(f"{requirement.name}{requirement.specifier}")
    return missing
