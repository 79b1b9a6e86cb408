"""A dataset folder to a dataset repository on the Hub: one plan, one commit.

Files are uploaded from disk; what the Hub already holds, from this upload or an interrupted one, is not sent again. The
commit names the revision that the plan was made against, so that nothing which somebody else published in between is
overwritten. The token is the one that `huggingface_hub` finds (its login, or HF_TOKEN) and is never shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circus_bench._typing import StrPath
from circus_bench.errors import CircusError, format_ids
from circus_bench.hub.licenses import is_redistributable
from circus_bench.hub.writer import MANIFEST, file_facts, for_local_use, read_manifest, verify
from circus_bench.io import open_parquet

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_DATASET = "dataset"
_STALE = 412  # HTTP "precondition failed": the repository has moved on from the parent commit


class PublishError(CircusError):
    """A dataset folder cannot be published, or the Hub did not take it."""


class Change(StrEnum):
    """The effect of publishing on a file of the repository."""

    NEW = "new"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file and what happens to it.

    Attributes:
        path: within folder and repository.
        size: bytes; of the repository's file where it is removed.
        change: what happens.
    """

    path: str
    size: int
    change: Change


@dataclass(frozen=True)
class Plan:
    """The changes that publishing would make.

    Attributes:
        folder: the dataset folder.
        repo: the repository, `ORG/NAME`.
        parent: the commit that the plan was made against; None where the repository does not exist yet.
        private: whether the repository is, or will be, private.
        files: every file of the folder, and files of the repository that go.
        dropped: benchmarks that the repository holds and the folder does not.
    """

    folder: Path
    repo: str
    parent: str | None
    private: bool
    files: tuple[PlannedFile, ...]
    dropped: tuple[str, ...]

    def of(self, change: Change) -> list[PlannedFile]:
        """List the files that this happens to."""
        return [file for file in self.files if file.change is change]

    @property
    def empty(self) -> bool:
        """Tell whether the repository already holds the folder."""
        return all(file.change is Change.UNCHANGED for file in self.files)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "repo": self.repo,
            "parent": self.parent,
            "private": self.private,
            "files": [{"path": f.path, "bytes": f.size, "change": f.change.value} for f in self.files],
            "dropped": list(self.dropped),
        }


@dataclass(frozen=True, slots=True)
class Published:
    """The outcome.

    Attributes:
        commit: the commit that holds the folder.
        url: its address.
        pull_request: address of the pull request, when one was asked for.
        made: whether a commit was made; False when the repository already held the folder.
    """

    commit: str
    url: str
    pull_request: str | None
    made: bool


def check_publishable(folder: StrPath, *, advance: Callable[[], object] = lambda: None) -> dict[str, Any]:
    """Refuse a dataset folder that must not or should not be published.

    The parquet files are looked into as well: a manifest that was edited by hand does not set pixels free.

    Returns:
        The manifest.

    Raises:
        FormatError: a file is missing or was changed.
        PublishError: the folder holds images that must not be redistributed, or some that cannot be decoded.
    """
    import pyarrow as pa

    folder = Path(folder)
    manifest = verify(folder, advance=advance)
    held = []
    for name, entry in manifest["benchmarks"].items():
        free = is_redistributable(entry["name"], entry["protocol"]["id"], entry["source"])
        data = [path for path in manifest["files"] if path.startswith(f"data/{name}/")]
        pixels = any("image" in open_parquet(folder / path, schema=pa.schema([])).schema_arrow.names for path in data)
        if pixels and not free:
            held.append(name)
    if held:
        raise PublishError(
            f"{folder}: holds images that must not be redistributed ({format_ids(held)}). "
            f"Make a folder without them; this one is for local use."
        )
    reasons = {name: reason for name, entry in manifest["benchmarks"].items() if (reason := for_local_use(entry))}
    if reasons or not manifest["publishable"]:
        told = "; ".join(f"{name}: {reason}" for name, reason in reasons.items()) or "the manifest says so"
        raise PublishError(f"{folder}: is for local use ({told}); `circus-bench doctor` names what cannot be decoded")
    return manifest


def plan(
    folder: StrPath,
    repo: str,
    *,
    private: bool = False,
    ask: bool = True,
    advance: Callable[[], object] = lambda: None,
) -> Plan:
    """Check a dataset folder and compare it with a repository; nothing is changed.

    Args:
        folder: the dataset folder.
        repo: the repository, `ORG/NAME`.
        private: the repository must be private; a new one is made so.
        ask: ask the Hub what it holds; without, the plan is that of a new repository.
        advance: called after each file whose checksum was compared.

    Raises:
        FormatError: a file of the folder is missing or was changed.
        PublishError: the folder must not be published, or the Hub cannot be asked.
    """
    from huggingface_hub import HfApi

    if repo.count("/") != 1 or not all(repo.split("/")):
        raise PublishError(f"{repo!r} is no repository name; expected ORG/NAME, such as my-group/circus")
    folder = Path(folder)
    manifest = check_publishable(folder, advance=advance)
    parent, is_private, remote = None, False, dict[str, Any]()
    if ask:
        with explained(f"asking about {repo}"):
            parent, is_private, remote = _remote(HfApi(), repo)
    if parent is not None and private and not is_private:
        raise PublishError(f"{repo} exists and is public; make it private on the Hub first, or leave --private out")
    facts = manifest["files"] | {MANIFEST: file_facts(folder / MANIFEST)}
    files = [
        PlannedFile(name, of["bytes"], _change(folder / name, of["sha256"], remote.get(name)))
        for name, of in sorted(facts.items())
    ]
    gone = [name for name in sorted(remote) if name.startswith("data/") and name not in facts]
    files += [PlannedFile(name, remote[name].size, Change.REMOVED) for name in gone]
    dropped = {name.split("/")[1] for name in gone} - {*manifest["benchmarks"]}
    return Plan(folder, repo, parent, is_private if parent else private, tuple(files), tuple(sorted(dropped)))


def publish(planned: Plan, *, create_pr: bool = False, remove: bool = False, threads: int = 4) -> Published:
    """Carry out a plan: upload what changed, then make one commit on top of the plan's parent.

    Args:
        planned: from `plan`.
        create_pr: open a pull request instead of committing to the main branch.
        remove: take benchmarks off the repository that the folder does not hold.
        threads: uploads at a time.

    Raises:
        PublishError: benchmarks would be lost, the repository was changed after the plan was made, or the connection
            failed. There is a whole commit or none; run it again.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    if planned.dropped and not remove:
        raise PublishError(
            f"{planned.repo} holds benchmarks that {planned.folder} does not ({format_ids(planned.dropped)}). "
            f"Make them in the folder, or pass --remove to take them off the repository"
        )
    api = HfApi()
    parent = planned.parent
    if parent is not None and planned.empty:
        return Published(parent, f"{api.endpoint}/datasets/{planned.repo}/tree/{parent}", None, made=False)
    if parent is None:
        with explained(f"making {planned.repo}"):
            api.create_repo(planned.repo, repo_type=_DATASET, private=planned.private)
            parent = api.repo_info(planned.repo, repo_type=_DATASET).sha
    operations: list[Any] = [
        CommitOperationAdd(path_in_repo=file.path, path_or_fileobj=str(planned.folder / file.path))
        for file in planned.files
        if file.change in (Change.NEW, Change.CHANGED)
    ]
    operations += [CommitOperationDelete(path_in_repo=file.path) for file in planned.of(Change.REMOVED)]
    with explained(f"publishing to {planned.repo}"):
        commit = api.create_commit(
            planned.repo,
            operations,
            commit_message=_message(planned),
            repo_type=_DATASET,
            create_pr=create_pr,
            parent_commit=parent,
            num_threads=threads,
        )
    return Published(commit.oid, str(commit.commit_url), commit.pr_url, made=True)


def _message(planned: Plan) -> str:
    manifest = read_manifest(planned.folder)
    return f"circus-bench {manifest['package_version']}: {', '.join(sorted(manifest['benchmarks']))}"


def _remote(api: HfApi, repo: str) -> tuple[str | None, bool, dict[str, Any]]:
    """Head commit, privacy and files of a repository; None, False and no files where there is none."""
    from huggingface_hub.errors import RepositoryNotFoundError
    from huggingface_hub.hf_api import RepoFile

    try:
        info = api.repo_info(repo, repo_type=_DATASET)
    except RepositoryNotFoundError:
        return None, False, {}
    tree = api.list_repo_tree(repo, recursive=True, repo_type=_DATASET, revision=info.sha)
    return info.sha, bool(info.private), {entry.path: entry for entry in tree if isinstance(entry, RepoFile)}


def _change(path: Path, sha256: str, remote: Any) -> Change:
    """Compare a file with the repository's: by SHA-256 when that one is in large file storage, else as git does."""
    if remote is None:
        return Change.NEW
    if remote.lfs is not None:
        same = remote.lfs.sha256 == sha256
    else:
        content = path.read_bytes()
        git = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
        same = remote.blob_id == git.hexdigest()
    return Change.UNCHANGED if same else Change.CHANGED


@contextmanager
def explained(what: str, *, command: str = "publish") -> Iterator[None]:
    """Turn the Hub's and the connection's errors into one that says what to do: run `command` again, say."""
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled

    # Besides its own errors the client lets those of its HTTP library through (a base of its own), and wraps what
    # happens in its upload threads into RuntimeError.
    lost: tuple[type[Exception], ...] = (*HfHubHTTPError.__bases__, RuntimeError, ValueError)
    try:
        yield
    except OfflineModeIsEnabled as error:
        raise PublishError(f"{what}: HF_HUB_OFFLINE is set; unset it to publish, or take --dry-run") from error
    except LocalTokenNotFoundError as error:
        raise PublishError(f"{what}: not logged in; run `hf auth login`, or set HF_TOKEN") from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status == _STALE:
            remedy = f"it was changed after the plan was made. Nothing was committed; run {command} again for a new one"
        elif status in (401, 403):
            remedy = "the Hub refused. Run `hf auth login` with a token that may write there, or set HF_TOKEN"
        else:
            remedy = f"run {command} again; it sends what has not arrived"
        raise PublishError(f"{what}: {remedy} (HTTP {status}: {error.server_message or 'no message'})") from error
    except lost as error:
        cause = error.__cause__ or error
        raise PublishError(
            f"{what}: {type(cause).__name__}: {cause}. The repository is as it was, unless the answer to the commit "
            f"was lost; run {command} again, it sends what has not arrived"
        ) from error
